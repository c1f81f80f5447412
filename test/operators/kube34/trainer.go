package main

import (
	"context"
	"fmt"

	trainerv1alpha1 "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/controller"
	"github.com/kubeflow/trainer/v2/pkg/runtime/core"
	"github.com/kubeflow/trainer/v2/pkg/webhooks"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	schedulerpluginsv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	volcanov1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"gpu-spot-autoscaler/test/operators/command"
)

// trainer makes JobSets: the JobSet operator is to run too.
var trainer = command.Operator{
	Add: []func(*runtime.Scheme) error{
		trainerv1alpha1.AddToScheme, jobsetv1alpha2.AddToScheme, schedulerpluginsv1alpha1.AddToScheme, volcanov1beta1.AddToScheme,
	},
	Options: ctrl.Options{Client: client.Options{Cache: &client.CacheOptions{Unstructured: true}}},
	Queries: 50, Burst: 100,
	Webhooks: true,
	SetUp:    setUpTrainer,
}

func setUpTrainer(ctx context.Context, m ctrl.Manager) error {
	runtimes, err := core.New(ctx, m.GetClient(), m.GetFieldIndexer())
	if err != nil {
		return err
	}
	if name, err := controller.SetupControllers(m, runtimes, ctrlcontroller.Options{}); err != nil {
		return fmt.Errorf("controller %s: %w", name, err)
	}
	if name, err := webhooks.Setup(m, runtimes); err != nil {
		return fmt.Errorf("webhook %s: %w", name, err)
	}
	return nil
}
