package main

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/controllers"
	"sigs.k8s.io/jobset/pkg/webhooks"

	"gpu-spot-autoscaler/test/operators/command"
)

var jobSet = command.Operator{
	Add:     []func(*runtime.Scheme) error{jobsetv1alpha2.AddToScheme},
	Queries: 500, Burst: 500,
	Webhooks: true,
	SetUp:    setUpJobSet,
}

func setUpJobSet(ctx context.Context, m ctrl.Manager) error {
	if err := controllers.SetupJobSetIndexes(ctx, m.GetFieldIndexer()); err != nil {
		return err
	}
	if err := controllers.SetupPodIndexes(ctx, m.GetFieldIndexer()); err != nil {
		return err
	}
	sets := controllers.NewJobSetReconciler(m.GetClient(), m.GetScheme(), m.GetEventRecorderFor("jobset"))
	if err := sets.SetupWithManager(m); err != nil {
		return err
	}
	pods := controllers.NewPodReconciler(m.GetClient(), m.GetScheme(), m.GetEventRecorderFor("pod"))
	if err := pods.SetupWithManager(m); err != nil {
		return err
	}
	setHook, err := webhooks.NewJobSetWebhook(m.GetClient())
	if err != nil {
		return err
	}
	if err := setHook.SetupWebhookWithManager(m); err != nil {
		return err
	}
	return webhooks.NewPodWebhook(m.GetClient()).SetupWebhookWithManager(m)
}
