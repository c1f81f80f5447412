// Command kube32 is one of the job operators whose libraries are Kubernetes 1.32's, with its controllers and webhooks as
// they are: kueue, mpi-operator or training-operator. What it leaves out of their own commands is what a cluster needs and
// a test does not: the election of a leader, metrics, and the making of certificates.
// It is started by package gpu-spot-autoscaler/test/operators, not by hand.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

const (
	// ready is what this command says on its standard output, once, when its caches are filled and its webhooks answer.
	ready = "ready"

	startedInterval = 50 * time.Millisecond
)

// operator is how one of them is put into a manager.
type operator struct {
	// add puts its kinds into the scheme.
	add []func(*runtime.Scheme) error
	// options are those of the manager that its own command sets, beside the scheme.
	options ctrl.Options
	// queries a second, and as many as a burst may be, are what its own command allows itself.
	queries, burst int
	// webhooks says that it serves some.
	webhooks bool
	setUp    func(context.Context, ctrl.Manager) error
}

var operators = map[string]operator{
	"kueue": kueue, "mpi-operator": mpiOperator, "training-operator": trainingOperator,
}

func main() {
	ctrl.SetLogger(klog.NewKlogr())
	if err := run(ctrl.SetupSignalHandler(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) != 4 {
		return fmt.Errorf("usage: kube32 OPERATOR KUBECONFIG WEBHOOK-PORT CERTIFICATE-DIRECTORY")
	}
	o, known := operators[arguments[0]]
	if !known {
		return fmt.Errorf("unknown operator %q: there are %q", arguments[0], slices.Sorted(maps.Keys(operators)))
	}
	port, err := strconv.Atoi(arguments[2])
	if err != nil {
		return fmt.Errorf("webhook port: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", arguments[1])
	if err != nil {
		return err
	}
	config.QPS, config.Burst = float32(o.queries), o.burst
	m, err := o.newManager(ctx, config, webhook.Options{Host: "127.0.0.1", Port: port, CertDir: arguments[3]})
	if err != nil {
		return fmt.Errorf("set up %s: %w", arguments[0], err)
	}
	return m.Start(ctx)
}

func (o operator) newManager(ctx context.Context, config *rest.Config, webhooks webhook.Options) (ctrl.Manager, error) {
	options := o.options
	options.Scheme = runtime.NewScheme()
	for _, add := range append([]func(*runtime.Scheme) error{clientgoscheme.AddToScheme}, o.add...) {
		if err := add(options.Scheme); err != nil {
			return nil, err
		}
	}
	options.Metrics = metricsserver.Options{BindAddress: "0"}
	options.HealthProbeBindAddress = "0"
	options.WebhookServer = webhook.NewServer(webhooks)
	m, err := ctrl.NewManager(config, options)
	if err != nil {
		return nil, err
	}
	if err := o.setUp(ctx, m); err != nil {
		return nil, err
	}
	return m, m.Add(manager.RunnableFunc(func(ctx context.Context) error { return o.sayReady(ctx, m) }))
}

func (o operator) sayReady(ctx context.Context, m ctrl.Manager) error {
	if !m.GetCache().WaitForCacheSync(ctx) {
		return nil // it ends
	}
	if o.webhooks {
		started := m.GetWebhookServer().StartedChecker()
		if err := wait.PollUntilContextCancel(ctx, startedInterval, true, func(context.Context) (bool, error) {
			return started(nil) == nil, nil
		}); err != nil {
			return nil
		}
	}
	fmt.Println(ready)
	return nil
}
