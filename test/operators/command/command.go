// Package command is what the commands of kube32 and kube34 have in common: it runs one of their operators, with its controllers and
// webhooks as they are. What it leaves out of the operators' own commands is what a cluster needs and a test does not: the election of a
// leader, metrics, and the making of certificates.
//
// It is a module of its own, without a version of Kubernetes' libraries: each command links it with its own.
package command

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

// Operator is how one of them is put into a manager.
type Operator struct {
	// Add puts its kinds into the scheme.
	Add []func(*runtime.Scheme) error
	// Options are those of the manager that its own command sets, beside the scheme.
	Options ctrl.Options
	// Queries a second, and as many as a Burst may be, are what its own command allows itself.
	Queries, Burst int
	// Webhooks says that it serves some.
	Webhooks bool
	SetUp    func(context.Context, ctrl.Manager) error
}

// Main runs the operator that the arguments of the process name, until a signal ends it:
//
//	COMMAND OPERATOR KUBECONFIG WEBHOOK-PORT CERTIFICATE-DIRECTORY
func Main(operators map[string]Operator) {
	ctrl.SetLogger(klog.NewKlogr())
	if err := run(ctrl.SetupSignalHandler(), operators, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, operators map[string]Operator, arguments []string) error {
	if len(arguments) != 4 {
		return fmt.Errorf("want the arguments OPERATOR KUBECONFIG WEBHOOK-PORT CERTIFICATE-DIRECTORY, not %q", arguments)
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
	config.QPS, config.Burst = float32(o.Queries), o.Burst
	m, err := o.newManager(ctx, config, webhook.Options{Host: "127.0.0.1", Port: port, CertDir: arguments[3]})
	if err != nil {
		return fmt.Errorf("set up %s: %w", arguments[0], err)
	}
	return m.Start(ctx)
}

func (o Operator) newManager(ctx context.Context, config *rest.Config, webhooks webhook.Options) (ctrl.Manager, error) {
	options := o.Options
	options.Scheme = runtime.NewScheme()
	for _, add := range append([]func(*runtime.Scheme) error{clientgoscheme.AddToScheme}, o.Add...) {
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
	if err := o.SetUp(ctx, m); err != nil {
		return nil, err
	}
	return m, m.Add(manager.RunnableFunc(func(ctx context.Context) error { return o.sayReady(ctx, m) }))
}

func (o Operator) sayReady(ctx context.Context, m ctrl.Manager) error {
	if !m.GetCache().WaitForCacheSync(ctx) {
		return nil // it ends
	}
	if o.Webhooks {
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
