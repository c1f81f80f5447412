// Package serve is the command "serve": its flags, and the gRPC servers. What it serves is package externalgrpc; the autoscaler's own package
// constructs it.
package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	certutil "k8s.io/client-go/util/cert"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
)

// The flags.
const (
	flagAddress         = "serve-address"
	flagCertFile        = "serve-tls-cert-file"
	flagKeyFile         = "serve-tls-private-key-file"
	flagClientCAFile    = "serve-client-ca-file"
	flagExpanderAddress = "serve-expander-address"
)

// Options are the flags of the command. The files are PEM, and are read again when they change.
type Options struct {
	// Address is the host:port of the provider, for clients whose certificate one in ClientCAFile has signed.
	Address, CertFile, KeyFile, ClientCAFile string
	// ExpanderAddress is that of the expander, "" for none.
	ExpanderAddress string
}

func (o *Options) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Address, flagAddress, ":8087", "Host and port at which the provider is served to Cluster Autoscaler (--cloud-provider=externalgrpc).")
	fs.StringVar(&o.CertFile, flagCertFile, "", "File with the certificate of both addresses, PEM. Required.")
	fs.StringVar(&o.KeyFile, flagKeyFile, "", "File with the key of --"+flagCertFile+", PEM. Required.")
	fs.StringVar(&o.ClientCAFile, flagClientCAFile, "",
		"File with the certificates by one of which that of the client has to be signed, PEM. Whoever has such a certificate may buy and release instances. Required.")
	fs.StringVar(&o.ExpanderAddress, flagExpanderAddress, "",
		"Host and port at which the expander is served (--expander=grpc), whose protocol has no certificate of the client: it answers at those addresses alone from which a client with a certificate has connected to --"+flagAddress+". Default: none.")
}

// Validate returns an error for every flag that is missing.
func (o *Options) Validate() (missing []error) {
	for flag, value := range map[string]string{
		flagAddress: o.Address, flagCertFile: o.CertFile, flagKeyFile: o.KeyFile, flagClientCAFile: o.ClientCAFile,
	} {
		if value == "" {
			missing = append(missing, fmt.Errorf("--%s is required", flag))
		}
	}
	return missing
}

// readFiles returns an error if the files cannot be read, or have no certificate and its key.
func (o *Options) readFiles() error {
	if _, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile); err != nil {
		return fmt.Errorf("--%s, --%s: %w", flagCertFile, flagKeyFile, err)
	}
	if _, err := certutil.NewPool(o.ClientCAFile); err != nil {
		return fmt.Errorf("--%s: %w", flagClientCAFile, err)
	}
	return nil
}

// NewCommand returns the command "serve", which takes the flags of the autoscaler, too, and sets its options. run runs the autoscaler.
func NewCommand(opts *options.Options, run func(context.Context, *pflag.FlagSet, *Options) error) *cobra.Command {
	o := &Options{}
	own := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	o.addFlags(own)
	command := &cobra.Command{
		Use:   "serve",
		Short: "Serve the pools to a Cluster Autoscaler of another version, and deal with reclaims beside it",
		Long: `Serves the pools and the prices by gRPC to a Cluster Autoscaler that the cluster has to keep, which has to run with
--cloud-provider=externalgrpc and may run with --expander=grpc. Reclaims, held jobs, costs and problems are dealt with here.

It takes all flags of the autoscaler, too. Those of Cluster Autoscaler's loop have no effect: they are to be given to the other one.
docs/serve.md says what else is different.`,
		Example: `  gpu-spot-autoscaler serve --region=cn-hangzhou --cluster-name=my-cluster \
    --serve-tls-cert-file=tls.crt --serve-tls-private-key-file=tls.key --serve-client-ca-file=ca.crt`,
		Args:         cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if opts.DryRun {
				return errors.New("--dry-run is not for serve: Cluster Autoscaler would wait for nodes that nobody buys")
			}
			if err := utilerrors.NewAggregate(o.Validate()); err != nil {
				return err
			}
			if err := o.readFiles(); err != nil { // before a cluster is looked for
				return err
			}
			return run(command.Context(), command.Flags(), o)
		},
	}
	command.Flags().AddFlagSet(own)
	for _, section := range opts.Sections().FlagSets {
		command.Flags().AddFlagSet(section)
	}
	command.SetHelpFunc(func(command *cobra.Command, _ []string) {
		fmt.Fprintf(command.OutOrStdout(), "%s\n\nUsage:\n  %s\n\nExamples:\n%s\n\nFlags:\n\n%s", command.Long, command.UseLine(), command.Example, own.FlagUsages())
	})
	return command
}
