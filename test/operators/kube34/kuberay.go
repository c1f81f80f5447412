package main

import (
	"context"

	routev1 "github.com/openshift/api/route/v1"
	configv1alpha1 "github.com/ray-project/kuberay/ray-operator/apis/config/v1alpha1"
	rayv1 "github.com/ray-project/kuberay/ray-operator/apis/ray/v1"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/batchscheduler"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/utils"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"gpu-spot-autoscaler/test/operators/command"
)

var kubeRay = command.Operator{
	Add: []func(*runtime.Scheme) error{rayv1.AddToScheme, routev1.Install, configv1alpha1.AddToScheme},
	Options: ctrl.Options{Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
		&batchv1.Job{}: {Label: labels.SelectorFromSet(labels.Set{utils.KubernetesCreatedByLabelKey: utils.ComponentName})},
	}}},
	Queries: int(configv1alpha1.DefaultQPS), Burst: configv1alpha1.DefaultBurst,
	SetUp: setUpKubeRay,
}

// setUpKubeRay serves no webhooks, as is the default of the operator.
func setUpKubeRay(ctx context.Context, m ctrl.Manager) error {
	config := configv1alpha1.Configuration{ReconcileConcurrency: configv1alpha1.DefaultReconcileConcurrency}
	schedulers, err := batchscheduler.NewSchedulerManager(ctx, config, m.GetConfig(), m.GetClient())
	if err != nil {
		return err
	}
	schedulers.AddToScheme(m.GetScheme())
	clusters := ray.RayClusterReconcilerOptions{BatchSchedulerManager: schedulers}
	if err := ray.NewReconciler(ctx, m, clusters).SetupWithManager(m, config.ReconcileConcurrency); err != nil {
		return err
	}
	if err := ray.NewRayServiceReconciler(ctx, m, config).SetupWithManager(m, config.ReconcileConcurrency); err != nil {
		return err
	}
	jobs := ray.RayJobReconcilerOptions{BatchSchedulerManager: schedulers}
	return ray.NewRayJobReconciler(ctx, m, jobs, config).SetupWithManager(m, config.ReconcileConcurrency)
}
