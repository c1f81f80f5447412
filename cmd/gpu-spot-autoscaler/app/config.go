package app

import (
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/google/uuid"
	"k8s.io/autoscaler/cluster-autoscaler/config"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/alicloud/client"
	"gpu-spot-autoscaler/cloudprovider/alicloud/dryrun"
	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/ess/snapshot"
	"gpu-spot-autoscaler/cloudprovider/reclaim/poll"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/plan"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/serve"
	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/market"
)

// Config is the options and the clients made of them.
type Config struct {
	*options.Options
	// Kube is limited by --kube-client-qps and --kube-client-burst.
	Kube       kubernetes.Interface
	KubeConfig *rest.Config
	// ElectionClient has a limit of its own, so that the lease is renewed however busy Kube is.
	ElectionClient kubernetes.Interface
	Cloud          Cloud
	// DryRun has what would have been done, nil unless this is a dry run.
	DryRun *dryrun.Cloud
	// Submitted is what a plan adds to the cluster, and Shortages are those that the leader knows; nil unless this is a plan.
	Submitted *plan.Submitted
	Shortages map[pricing.Offering]snapshot.Shortage
	// Serve is where the provider is served to another core, nil if this process has a core of its own.
	Serve *serve.Options
	Clock clock.WithTicker
	// Identity distinguishes this process from other candidates for the lease.
	Identity string
}

// Cloud is what the autoscaler asks of Alibaba Cloud.
type Cloud interface {
	ess.Cloud
	pricing.Source
	market.StockSource
	poll.Cloud
}

// dryRunKeep is how long what a dry run has decided counts: as long as a new GPU node takes to be ready, and some more. The pods for which it would
// have been bought wait for it meanwhile, as they would for a real one.
const dryRunKeep = 10 * time.Minute

// NewConfig makes the clients. It sends no requests.
func NewConfig(opts *options.Options) (*Config, error) {
	kubeConfig, err := kubeConfig(opts.Autoscaling.KubeClientOpts, opts.Autoscaling.UserAgent)
	if err != nil {
		return nil, fmt.Errorf("configure the Kubernetes client: %w", err)
	}
	return newConfig(opts, kubeConfig)
}

func newConfig(opts *options.Options, kubeConfig *rest.Config) (c *Config, err error) {
	c = &Config{Options: opts, KubeConfig: kubeConfig, Clock: clock.RealClock{}}
	election := rest.AddUserAgent(rest.CopyConfig(kubeConfig), "leader-election")
	if opts.DryRun {
		kubeConfig.Wrap(dryrun.Transport)
	}
	if c.Kube, err = kubernetes.NewForConfig(kubeConfig); err != nil {
		return nil, fmt.Errorf("make the Kubernetes client: %w", err)
	}
	election.Timeout = opts.LeaderElection.RenewDeadline.Duration / 2
	if c.ElectionClient, err = kubernetes.NewForConfig(election); err != nil {
		return nil, fmt.Errorf("make the Kubernetes client for leader election: %w", err)
	}
	alibaba, err := client.New(rpc.Options{
		Region: opts.Region, Scheme: opts.CloudScheme, Endpoints: opts.Endpoints, CredentialsDir: opts.CredentialsDir, UserAgent: opts.Autoscaling.UserAgent, Clock: c.Clock,
	})
	if err != nil {
		return nil, err
	}
	if c.Cloud = alibaba; opts.DryRun {
		c.DryRun = dryrun.New(alibaba, c.Clock, dryRunKeep)
		c.Cloud = c.DryRun
	}
	if c.Identity, err = identity(); err != nil {
		return nil, fmt.Errorf("name myself for leader election: %w", err)
	}
	return c, nil
}

// identity returns the name of the pod. Only one container of a pod runs at a time, so a container that was killed can go on with
// its own lease at once. Outside of a pod, every process gets an identity of its own.
func identity() (string, error) {
	if pod := os.Getenv("POD_NAME"); pod != "" {
		return pod, nil
	}
	host, err := os.Hostname()
	return host + "_" + uuid.NewString(), err
}

// kubeConfig returns the configuration of --kubeconfig, else of --kubernetes, else of the service account.
func kubeConfig(opts config.KubeClientOptions, userAgent string) (*rest.Config, error) {
	kube, err := kubeConfigSource(opts)
	if err != nil {
		return nil, err
	}
	kube.QPS, kube.Burst, kube.ContentType = opts.KubeClientQPS, opts.KubeClientBurst, opts.APIContentType
	return rest.AddUserAgent(kube, userAgent), nil
}

func kubeConfigSource(opts config.KubeClientOptions) (*rest.Config, error) {
	switch {
	case opts.KubeConfigPath != "":
		return clientcmd.BuildConfigFromFlags("", opts.KubeConfigPath)
	case opts.Master != "":
		master, err := url.Parse(opts.Master)
		if err != nil {
			return nil, fmt.Errorf("--kubernetes: %w", err)
		}
		return config.GetKubeClientConfig(master)
	default:
		return rest.InClusterConfig()
	}
}
