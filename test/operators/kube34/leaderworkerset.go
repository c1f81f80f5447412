package main

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	leaderworkersetv1 "sigs.k8s.io/lws/api/leaderworkerset/v1"
	"sigs.k8s.io/lws/pkg/controllers"
	"sigs.k8s.io/lws/pkg/webhooks"

	"gpu-spot-autoscaler/test/operators/command"
)

var leaderWorkerSet = command.Operator{
	Add:     []func(*runtime.Scheme) error{leaderworkersetv1.AddToScheme},
	Queries: 500, Burst: 500,
	Webhooks: true,
	SetUp:    setUpLeaderWorkerSet,
}

// setUpLeaderWorkerSet has no scheduler of gangs, as is the default of the operator.
func setUpLeaderWorkerSet(_ context.Context, m ctrl.Manager) error {
	if err := controllers.SetupIndexes(m.GetFieldIndexer()); err != nil {
		return err
	}
	events := m.GetEventRecorderFor("leaderworkerset")
	if err := controllers.NewLeaderWorkerSetReconciler(m.GetClient(), m.GetScheme(), events).SetupWithManager(m); err != nil {
		return err
	}
	if err := controllers.NewPodReconciler(m.GetClient(), m.GetScheme(), events, nil).SetupWithManager(m); err != nil {
		return err
	}
	if err := webhooks.SetupLeaderWorkerSetWebhook(m); err != nil {
		return err
	}
	return webhooks.NewPodWebhook(nil).Setup(m)
}
