// Command training-operator is Kubeflow's training operator, the controllers of PyTorchJobs and MPIJobs as they are. Its
// own command insists on webhooks, and those on certificates; this one leaves both out.
// It is started by package gpu-spot-autoscaler/test/trainingoperator, not by hand.
package main

import (
	"context"
	"fmt"
	"os"

	kubeflowv1 "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	"github.com/kubeflow/training-operator/pkg/config"
	"github.com/kubeflow/training-operator/pkg/controller.v1/common"
	"github.com/kubeflow/training-operator/pkg/controller.v1/mpi"
	"github.com/kubeflow/training-operator/pkg/controller.v1/pytorch"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// ready is what this command says on its standard output, once, when its caches are filled.
const ready = "ready"

func main() {
	ctrl.SetLogger(klog.NewKlogr())
	if err := run(ctrl.SetupSignalHandler(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "training-operator:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) != 1 {
		return fmt.Errorf("usage: training-operator KUBECONFIG")
	}
	client, err := clientcmd.BuildConfigFromFlags("", arguments[0])
	if err != nil {
		return err
	}
	client.QPS, client.Burst = 20, 30 // what the operator's own command has, from controller-runtime
	operator, err := newManager(client)
	if err != nil {
		return err
	}
	return operator.Start(ctx)
}

func newManager(client *rest.Config) (manager.Manager, error) {
	setDefaults()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kubeflowv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	operator, err := ctrl.NewManager(client, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
	})
	if err != nil {
		return nil, err
	}
	gangs := common.GenNonGangSchedulerSetupFunc()
	if err := pytorch.NewReconciler(operator, gangs).SetupWithManager(operator, 1); err != nil {
		return nil, err
	}
	if err := mpi.NewReconciler(operator, gangs).SetupWithManager(operator, 1); err != nil {
		return nil, err
	}
	return operator, operator.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if operator.GetCache().WaitForCacheSync(ctx) {
			fmt.Println(ready)
		}
		return nil
	}))
}

// setDefaults does what the flags of the operator's own command do.
func setDefaults() {
	config.Config.PyTorchInitContainerImage = config.PyTorchInitContainerImageDefault
	config.Config.PyTorchInitContainerTemplateFile = config.PyTorchInitContainerTemplateFileDefault
	config.Config.PyTorchInitContainerMaxTries = config.PyTorchInitContainerMaxTriesDefault
	config.Config.MPIKubectlDeliveryImage = config.MPIKubectlDeliveryImageDefault
}
