package app

import (
	"fmt"
	"net/url"
	"os"

	"github.com/google/uuid"
	"k8s.io/autoscaler/cluster-autoscaler/config"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/alicloud/client"
	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
)

// Config is what the autoscaler runs on: the options and the clients made of them.
type Config struct {
	*options.Options
	// Kube reaches the cluster, with the budget of --kube-client-qps and -burst.
	Kube       kubernetes.Interface
	KubeConfig *rest.Config
	// ElectionClient is apart, so that the lease is renewed however busy Kube is.
	ElectionClient kubernetes.Interface
	Cloud          *client.Client
	Clock          clock.WithTicker
	// Identity tells this process from other candidates for the lease.
	Identity string
}

// NewConfig makes the clients. It speaks to nobody yet.
func NewConfig(opts *options.Options) (*Config, error) {
	kubeConfig, err := kubeConfig(opts.Autoscaling.KubeClientOpts, opts.Autoscaling.UserAgent)
	if err != nil {
		return nil, fmt.Errorf("configure the Kubernetes client: %w", err)
	}
	c := &Config{Options: opts, KubeConfig: kubeConfig, Clock: clock.RealClock{}}
	if c.Kube, err = kubernetes.NewForConfig(kubeConfig); err != nil {
		return nil, fmt.Errorf("make the Kubernetes client: %w", err)
	}
	election := rest.AddUserAgent(rest.CopyConfig(kubeConfig), "leader-election")
	election.Timeout = opts.LeaderElection.RenewDeadline.Duration / 2
	if c.ElectionClient, err = kubernetes.NewForConfig(election); err != nil {
		return nil, fmt.Errorf("make the Kubernetes client for leader election: %w", err)
	}
	if c.Cloud, err = client.New(rpc.Options{
		Region: opts.Region, Scheme: opts.CloudScheme, Endpoints: opts.Endpoints, CredentialsDir: opts.CredentialsDir, UserAgent: opts.Autoscaling.UserAgent, Clock: c.Clock,
	}); err != nil {
		return nil, err
	}
	if c.Identity, err = identity(); err != nil {
		return nil, fmt.Errorf("name myself for leader election: %w", err)
	}
	return c, nil
}

// identity is the pod's name, of which only one container runs at a time, so that one that was killed goes on with its
// own lease at once; outside a pod it is new for every process.
func identity() (string, error) {
	if pod := os.Getenv("POD_NAME"); pod != "" {
		return pod, nil
	}
	host, err := os.Hostname()
	return host + "_" + uuid.NewString(), err
}

// kubeConfig follows --kubeconfig, --kubernetes or the service account, whichever is there first.
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
