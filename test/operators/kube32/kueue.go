package main

import (
	"context"
	"fmt"

	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"
	configv1beta1 "sigs.k8s.io/kueue/apis/config/v1beta1"
	kueuev1alpha1 "sigs.k8s.io/kueue/apis/kueue/v1alpha1"
	kueuev1beta1 "sigs.k8s.io/kueue/apis/kueue/v1beta1"
	"sigs.k8s.io/kueue/pkg/cache"
	"sigs.k8s.io/kueue/pkg/config"
	"sigs.k8s.io/kueue/pkg/constants"
	"sigs.k8s.io/kueue/pkg/controller/core"
	"sigs.k8s.io/kueue/pkg/controller/core/indexer"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"
	_ "sigs.k8s.io/kueue/pkg/controller/jobs" // registers the controllers of jobs
	"sigs.k8s.io/kueue/pkg/controller/tas"
	tasindexer "sigs.k8s.io/kueue/pkg/controller/tas/indexer"
	"sigs.k8s.io/kueue/pkg/features"
	"sigs.k8s.io/kueue/pkg/metrics"
	"sigs.k8s.io/kueue/pkg/queue"
	"sigs.k8s.io/kueue/pkg/scheduler"
	"sigs.k8s.io/kueue/pkg/util/kubeversion"
	"sigs.k8s.io/kueue/pkg/webhooks"

	"gpu-spot-autoscaler/test/operators/command"
)

// kueueFrameworks are those of its shipped config/components/manager/controller_manager_config.yaml.
var kueueFrameworks = []string{
	"batch/job", "kubeflow.org/mpijob", "ray.io/rayjob", "ray.io/raycluster", "jobset.x-k8s.io/jobset", "kubeflow.org/paddlejob",
	"kubeflow.org/pytorchjob", "kubeflow.org/tfjob", "kubeflow.org/xgboostjob", "kubeflow.org/jaxjob", "workload.codeflare.dev/appwrapper",
}

// kueueFeatures are those that are alpha and switched on.
var kueueFeatures = map[string]bool{
	string(features.TopologyAwareScheduling):  true,
	string(features.TASFailedNodeReplacement): true,
}

// kueue leaves out MultiKueue, the check of ProvisioningRequests and the server that tells of pending workloads.
var kueue = command.Operator{
	Add:     kueueKinds(),
	Queries: 50, Burst: 100,
	Webhooks: true,
	SetUp:    setUpKueue,
}

func kueueKinds() []func(*runtime.Scheme) error {
	add := []func(*runtime.Scheme) error{
		schedulingv1.AddToScheme, kueuev1beta1.AddToScheme, kueuev1alpha1.AddToScheme, configv1beta1.AddToScheme,
	}
	_ = jobframework.ForEachIntegration(func(_ string, callbacks jobframework.IntegrationCallbacks) error {
		if callbacks.AddToScheme != nil {
			add = append(add, callbacks.AddToScheme)
		}
		return nil
	})
	return add
}

func setUpKueue(ctx context.Context, m ctrl.Manager) error {
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(kueueFeatures); err != nil {
		return err
	}
	_, settings, err := config.Load(m.GetScheme(), "")
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	settings.Integrations.Frameworks = kueueFrameworks
	metrics.Register()
	workloads := cache.New(m.GetClient())
	queues := queue.NewManager(m.GetClient(), workloads)
	if err := indexKueue(ctx, m); err != nil {
		return err
	}
	client, err := discovery.NewDiscoveryClientForConfig(m.GetConfig())
	if err != nil {
		return err
	}
	version := kubeversion.NewServerVersionFetcher(client)
	if err := m.Add(version); err != nil {
		return err
	}
	if err := version.FetchServerVersion(); err != nil {
		return err
	}
	if name, err := core.SetupControllers(m, queues, workloads, &settings); err != nil {
		return fmt.Errorf("controller %s: %w", name, err)
	}
	if name, err := tas.SetupControllers(m, queues, workloads, &settings); err != nil {
		return fmt.Errorf("controller %s: %w", name, err)
	}
	if name, err := webhooks.Setup(m); err != nil {
		return fmt.Errorf("webhook %s: %w", name, err)
	}
	if err := jobframework.SetupControllers(ctx, m, m.GetLogger(),
		jobframework.WithManageJobsWithoutQueueName(settings.ManageJobsWithoutQueueName),
		jobframework.WithWaitForPodsReady(settings.WaitForPodsReady),
		jobframework.WithKubeServerVersion(version),
		jobframework.WithEnabledFrameworks(settings.Integrations.Frameworks),
		jobframework.WithEnabledExternalFrameworks(settings.Integrations.ExternalFrameworks),
		jobframework.WithManagerName(constants.KueueName),
		jobframework.WithLabelKeysToCopy(settings.Integrations.LabelKeysToCopy),
		jobframework.WithCache(workloads),
		jobframework.WithQueues(queues),
		jobframework.WithObjectRetentionPolicies(settings.ObjectRetentionPolicies),
	); err != nil {
		return err
	}
	go queues.CleanUpOnContext(ctx)
	go workloads.CleanUpOnContext(ctx)
	return m.Add(scheduler.New(queues, workloads, m.GetClient(), m.GetEventRecorderFor(constants.AdmissionName)))
}

func indexKueue(ctx context.Context, m ctrl.Manager) error {
	if err := indexer.Setup(ctx, m.GetFieldIndexer()); err != nil {
		return err
	}
	if err := tasindexer.SetupIndexes(ctx, m.GetFieldIndexer()); err != nil {
		return err
	}
	return jobframework.SetupIndexes(ctx, m.GetFieldIndexer(), jobframework.WithEnabledFrameworks(kueueFrameworks))
}
