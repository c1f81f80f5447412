package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// options are the flags.
type options struct {
	nodeName, address, metadataEndpoint, kubeconfig string
	port                                            uint16
	allowFrom                                       []string
	pace                                            pace
}

func (o *options) addTo(flags *pflag.FlagSet) {
	flags.StringVar(&o.nodeName, "node-name", os.Getenv("NODE_NAME"), "name of the Node that this runs on; default: the environment's NODE_NAME")
	flags.StringVar(&o.address, "address", "127.0.0.1", "IP address at which pods are answered; give the node's own, so that its pods reach it")
	flags.Uint16Var(&o.port, "port", 8790, "port of that address")
	flags.StringSliceVar(&o.allowFrom, "allow-from", nil, "networks (CIDR) whose pods are answered; default: the pod networks of the Node or, if it has none, all")
	flags.StringVar(&o.metadataEndpoint, "metadata-endpoint", "http://100.100.100.200", "base URL of the instance metadata")
	flags.DurationVar(&o.pace.usual, "poll-interval", 5*time.Second, "how often the metadata is polled")
	flags.DurationVar(&o.pace.protected, "protected-poll-interval", time.Minute, "how often the metadata is polled in the protected period")
	flags.DurationVar(&o.pace.protection, "protected-period", 55*time.Minute,
		"age of the Node up to which its instance is not reclaimed: the protected hour without the time to boot; 0 for instances bought without one (SpotDuration=0)")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; default: the service account of the pod")
}

// validate returns the networks of --allow-from, and an error that names every flag that is wrong.
func (o *options) validate() (networks []netip.Prefix, err error) {
	var wrong []error
	refuse := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	if o.nodeName == "" {
		refuse("--node-name is missing")
	}
	if endpoint, err := url.Parse(o.metadataEndpoint); err != nil || endpoint.Host == "" {
		refuse("--metadata-endpoint: %q is not a URL", o.metadataEndpoint)
	}
	if o.pace.usual <= 0 || o.pace.protected <= 0 || o.pace.protection < 0 {
		refuse("--poll-interval and --protected-poll-interval have to be above 0, --protected-period not below")
	}
	for _, text := range o.allowFrom {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			refuse("--allow-from: %w", err)
		}
		networks = append(networks, network)
	}
	return networks, errors.Join(wrong...)
}

// Run runs the process with its arguments. It returns nil when ctx has ended, or after --help.
func Run(ctx context.Context, args []string) error {
	var opts options
	flags := pflag.NewFlagSet("node-agent", pflag.ContinueOnError)
	opts.addTo(flags)
	logging := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(logging)
	flags.AddGoFlag(logging.Lookup("v"))
	if err := flags.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("it takes no arguments, but was given %q", flags.Args())
	}
	networks, err := opts.validate()
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", opts.kubeconfig)
	if err != nil {
		return err
	}
	return run(ctx, opts, networks, config)
}

func run(ctx context.Context, opts options, networks []netip.Prefix, config *rest.Config) error {
	node, err := newRESTNode(config, opts.nodeName)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(opts.address, strconv.Itoa(int(opts.port))))
	if err != nil {
		return fmt.Errorf("--address, --port: %w", err)
	}
	klog.FromContext(ctx).Info("Serving", "address", listener.Addr(), "node", opts.nodeName)

	a := newAgent(newMetadataClient(opts.metadataEndpoint, time.Now), node, clock.RealClock{}, opts.pace)
	allowed := guard(a.podOfThisNode)
	if len(networks) > 0 {
		allowed = among(networks)
	}
	ctx, cancel := context.WithCancel(ctx) // a failure of the server ends the loops too
	var loops sync.WaitGroup
	defer loops.Wait()
	defer cancel()
	a.start(ctx, &loops)
	return serve(ctx, listener, a.handler(allowed))
}
