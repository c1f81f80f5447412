package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/rig"
)

// Spot is dear at first, so that the job gets on-demand instances. Then it is cheap.
func TestAJobOnDemandMovesToSpotOnceThatPays(t *testing.T) {
	onDemand := singleOfferingPool("asg-on-demand", 10)
	onDemand.SpotStrategy = alisim.NoSpot
	onDemand.Tags[api.TagMoveToSpot] = "true"
	s := newSuite(t, newWorld(singleOfferingPool("asg-spot", 10), onDemand))
	s.Cloud.SetPrice(a10, zoneA, 9.5, 10)
	s.RunAutoscaler(t, "--restart-time=1s", "--price-refresh-interval=2s")
	job := indexedJob("moves", 2)
	job.Spec.BackoffLimit = ptr.To[int32](0)
	job.Spec.Template.Annotations = map[string]string{
		api.AnnotationAwaitCheckpoint: "true", api.AnnotationWork: "24h", api.AnnotationDeadline: time.Now().Add(48 * time.Hour).Format(time.RFC3339),
	}
	s.submitJob(job)
	s.awaitReadyPods("moves", 2)
	before := s.podsOf("moves")
	require.Len(t, s.instances("asg-on-demand"), 2)

	s.Cloud.SetPrice(a10, zoneA, .2, 10)
	s.eventually("spot is bought before anything is done to the job", func(context.Context) (bool, error) { return len(s.instances("asg-spot")) == 2, nil })
	var request string
	s.eventually("it is asked for a checkpoint", func(ctx context.Context) (bool, error) {
		pod, err := s.pod(ctx, before[0].Name)
		if pod == nil || err != nil {
			return false, err
		}
		request = pod.Annotations[api.AnnotationCheckpointRequest]
		return request != "", nil
	})
	s.awaitEvent("SpotJobMoves")
	rig.Always(t, 3*time.Second, "it stays until its work is saved", func(ctx context.Context) (bool, error) {
		return len(s.instances("asg-on-demand")) == 2 && s.podsOf("moves")[0].UID == before[0].UID, ctx.Err()
	})
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, api.AnnotationCheckpointAcknowledged, request)
	_, err := s.Client.CoreV1().Pods(metav1.NamespaceDefault).Patch(t.Context(), before[1].Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)

	s.awaitEvent("SpotJobResumed")
	s.eventually("on-demand is given back", func(context.Context) (bool, error) { return len(s.instances("asg-on-demand")) == 0, nil })
	s.awaitReadyPods("moves", 2)
	for _, pod := range s.podsOf("moves") {
		assert.NotEqual(t, before[0].UID, pod.UID)
		assert.NotEqual(t, before[1].UID, pod.UID)
	}
	got, err := s.Client.BatchV1().Jobs(metav1.NamespaceDefault).Get(t.Context(), "moves", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Zero(t, got.Status.Failed, "nothing was counted as a failure")
	saved, err := time.ParseDuration(got.Annotations[api.AnnotationWorkSaved])
	require.NoError(t, err, "how much of its work is saved is written on it")
	assert.Greater(t, saved, 5*time.Second)
	assert.Less(t, saved, 10*time.Minute)
	assert.Equal(t, "24h", got.Annotations[api.AnnotationWorkSavedOf])
	assert.Len(t, s.instances("asg-spot"), 2)
	assert.Equal(t, 4, boughtInstances(s), "nothing was bought twice")
}

// podsOf returns the pods of the Job, by name.
func (s *suite) podsOf(job string) []corev1.Pod {
	s.t.Helper()
	list, err := s.Client.CoreV1().Pods(metav1.NamespaceDefault).List(s.t.Context(), metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=" + job})
	require.NoError(s.t, err)
	return list.Items
}
