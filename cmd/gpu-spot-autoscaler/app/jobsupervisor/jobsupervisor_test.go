package jobsupervisor_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/problems"
	"gpu-spot-autoscaler/cloudprovider/problems/problemstest"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/jobsupervisor"
)

// supervisorPod is one as Arena's chart has it made.
func supervisorPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "arena-system", Name: "elastic-job-supervisor-5d8f7c-x2x9p",
		Labels:          map[string]string{"app": "elastic-job-supervisor", "pod-template-hash": "5d8f7c"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "elastic-job-supervisor-5d8f7c", Controller: ptr.To(true)}},
	}}
}

func TestElasticJobSupervisorIsReportedAsLongAsItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		recorded := &problemstest.Events{}
		board := problems.NewBoard(recorded, clock.RealClock{})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { jobsupervisor.Run(ctx, corelisters.NewPodLister(pods), board) })
		defer running.Wait()
		defer cancel()
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		require.NoError(t, pods.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "train"}}))
		pass(2 * time.Minute)
		assert.Empty(t, recorded.Take())

		require.NoError(t, pods.Add(supervisorPod()))
		pass(10 * time.Minute)
		assert.Equal(t, []string{"SpotClusterProblem: Cluster (job_supervisor): Elastic-Job-Supervisor runs, too, and suspends and resumes the same jobs by the same annotations. " +
			"Stop it, since the autoscaler does its work: kubectl -n arena-system scale deployment elastic-job-supervisor --replicas=0"}, recorded.Take(), "one Event, not one a minute")
		require.Len(t, board.Report().Problems, 1)

		ended := supervisorPod()
		ended.Status.Phase = corev1.PodFailed
		require.NoError(t, pods.Update(ended))
		pass(2 * time.Minute)
		require.Len(t, recorded.Take(), 1, "that it is over")
		assert.Empty(t, board.Report().Problems)
	})
}
