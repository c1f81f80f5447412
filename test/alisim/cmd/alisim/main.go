// Command alisim runs a simulated Alibaba Cloud on this machine, for trying things without an account.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/temper"
)

const help = `A world file describes the region, its zones, the pools and the market; test/alisim/worlds/small.yaml is one
to begin with. Point an Alibaba Cloud SDK at the printed endpoint (scheme http), or use it as HTTP_PROXY, and use
the printed access key. AssumeRoleWithOIDC goes to the TLS endpoint; its authority is in the printed file, for
SSL_CERT_FILE.

While it runs:
  curl -s http://ENDPOINT/_sim/state                                    everything there is
  curl -s http://ENDPOINT/_sim/reclaim -d '{"instanceId": "i-…"}'       give an instance its notice
  curl -s http://ENDPOINT/_sim/stock -d '{"instanceType": "ecs.gn7i-c8g1.2xlarge", "zone": "ap-southeast-1a", "stock": 0}'
  curl -s http://ENDPOINT/_sim/price -d '{"instanceType": "…", "zone": "…", "spot": 5, "onDemand": 9.5}'
  curl -s http://ENDPOINT/_sim/faults -d '{"action": "ScaleWithAdjustment", "kind": "throttle", "times": 3}'
  curl -s -X DELETE http://ENDPOINT/_sim/faults                         all faults off
  curl -s http://ENDPOINT/metadata/i-…/latest/meta-data/instance/spot/termination-time`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var world, base, kubeconfig string
	var opts alisim.Options
	cmd := &cobra.Command{
		Use:          "alisim --world FILE",
		Short:        "A simulated Alibaba Cloud: ESS, ECS, VPC and STS, with a spot market",
		Long:         "Alisim runs a simulated Alibaba Cloud (ESS, ECS, VPC, STS and instance metadata, with a spot market) on this machine.\n\n" + help,
		Example:      "  alisim --world test/alisim/worlds/small.yaml --listen 127.0.0.1:8600",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd, world, base, kubeconfig, opts)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&world, "world", "", "the world file (required)")
	flags.StringVar(&base, "temper", "", "strict or lenient, in place of what the world file says")
	flags.StringVar(&kubeconfig, "kubeconfig", "", "a cluster in which booted instances register as Nodes; without it there are none")
	flags.StringVar(&opts.Listen, "listen", "127.0.0.1:8600", "address of the HTTP endpoint")
	flags.StringVar(&opts.ListenTLS, "listen-tls", "127.0.0.1:8601", "address of the TLS endpoint, for STS")
	flags.StringVar(&opts.Dir, "dir", "", "directory for the certificate of the TLS endpoint's authority (default a temporary one)")
	if err := cmd.MarkFlagRequired("world"); err != nil {
		panic(err)
	}
	return cmd
}

func run(cmd *cobra.Command, worldFile, base, kubeconfig string, opts alisim.Options) error {
	world, err := alisim.LoadWorld(worldFile)
	if err != nil {
		return err
	}
	if base != "" {
		if world.Temper, err = temper.Of(base); err != nil {
			return err
		}
	}
	if kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return err
		}
		opts.Kube = config
	}
	srv, err := alisim.Start(cmd.Context(), world, opts)
	if err != nil {
		return err
	}
	defer srv.Stop()
	fmt.Fprintf(cmd.OutOrStdout(), "endpoint    http://%s\nsts         https://%s\nauthority   %s\naccess key  %s\nsecret      %s\nregion      %s\ntemper      %s\n",
		srv.Endpoint(), srv.STSEndpoint(), srv.CAFile(), srv.AccessKey().ID, srv.AccessKey().Secret, srv.Region(), srv.Temper().Base)
	<-cmd.Context().Done()
	return nil
}
