package main

import (
	"context"
	"fmt"

	kubeflowv1 "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	"github.com/kubeflow/training-operator/pkg/config"
	controllerv1 "github.com/kubeflow/training-operator/pkg/controller.v1"
	"github.com/kubeflow/training-operator/pkg/controller.v1/common"
	"github.com/kubeflow/training-operator/pkg/webhooks"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"

	"gpu-spot-autoscaler/test/operators/command"
)

// trainingOperator has all kinds of jobs and no scheduler of gangs, as is the default of the operator.
var trainingOperator = command.Operator{
	Add:     []func(*runtime.Scheme) error{kubeflowv1.AddToScheme},
	Queries: 20, Burst: 30,
	Webhooks: true,
	SetUp:    setUpTrainingOperator,
}

func setUpTrainingOperator(_ context.Context, m ctrl.Manager) error {
	// These are the defaults of the command's flags.
	config.Config.PyTorchInitContainerImage = config.PyTorchInitContainerImageDefault
	config.Config.PyTorchInitContainerTemplateFile = config.PyTorchInitContainerTemplateFileDefault
	config.Config.PyTorchInitContainerMaxTries = config.PyTorchInitContainerMaxTriesDefault
	config.Config.MPIKubectlDeliveryImage = config.MPIKubectlDeliveryImageDefault

	var kinds controllerv1.EnabledSchemes
	kinds.FillAll()
	gangs := common.GenNonGangSchedulerSetupFunc()
	for _, kind := range kinds {
		if err := controllerv1.SupportedSchemeReconciler[kind](m, gangs, 1); err != nil {
			return fmt.Errorf("controller of %s: %w", kind, err)
		}
		if err := webhooks.SupportedSchemeWebhook[kind](m); err != nil {
			return fmt.Errorf("webhook of %s: %w", kind, err)
		}
	}
	return nil
}
