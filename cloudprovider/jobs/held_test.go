package jobs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
)

func TestSavedWorkIsWrittenOnTheJob(t *testing.T) {
	f := newFixture(t, jobstest.PyTorchJob)
	job, err := f.Registry.Get(t.Context(), jobstest.Ref("pytorchjob", "bert"))
	require.NoError(t, err)
	assert.Zero(t, job.SavedWork())
	saved := jobs.SavedWork{Work: 10 * time.Hour, Of: "24h", At: jobstest.Epoch}
	require.NoError(t, jobs.NewNotes(f.Registry).NoteWork(t.Context(), job, saved))
	job, err = f.Registry.Get(t.Context(), job.Ref)
	require.NoError(t, err)
	assert.Equal(t, saved, job.SavedWork())
}

func TestNothingIsWrittenOnAJobThatCannotBeSuspended(t *testing.T) {
	f := newFixture(t, jobstest.LeaderWorkerSet)
	object := jobstest.Parse(t, jobstest.LeaderWorkerSet)
	job, err := f.Registry.Get(t.Context(), jobstest.Ref("leaderworkerset", object.GetName()))
	require.NoError(t, err)
	assert.ErrorIs(t, jobs.NewNotes(f.Registry).NoteWork(t.Context(), job, jobs.SavedWork{Work: time.Hour, Of: "24h"}), jobs.ErrUnsupported)
}

func TestThePodsOfASuspendedJobSayHowMuchOfTheirWorkIsSaved(t *testing.T) {
	f := newFixture(t, jobstest.PyTorchJob)
	job, err := f.Registry.Get(t.Context(), jobstest.Ref("pytorchjob", "bert"))
	require.NoError(t, err)
	job.Object = job.Object.DeepCopy()
	job.Object.SetAnnotations(map[string]string{api.AnnotationWorkSaved: "10h", api.AnnotationWorkSavedOf: "24h"})
	for _, template := range []string{"Master", "Worker"} {
		path := []string{"spec", "pytorchReplicaSpecs", template, "template", "metadata", "annotations"}
		require.NoError(t, unstructured.SetNestedStringMap(job.Object.Object, map[string]string{api.AnnotationWork: "24h"}, path...))
	}
	pods, err := f.Registry.Gang(job, job.Replicas, func(*corev1.Pod) int { return 64 })
	require.NoError(t, err)
	require.NotEmpty(t, pods)
	for _, pod := range pods {
		assert.Equal(t, "24h", pod.Annotations[api.AnnotationWork])
		assert.Equal(t, "10h0m0s", pod.Annotations[api.AnnotationWorkSaved])
	}
	job.Object.SetAnnotations(map[string]string{api.AnnotationWorkSaved: "10h", api.AnnotationWorkSavedOf: "30h"})
	pods, err = f.Registry.Gang(job, job.Replicas, func(*corev1.Pod) int { return 64 })
	require.NoError(t, err)
	assert.NotContains(t, pods[0].Annotations, api.AnnotationWorkSaved, "the owner has said anew how much is left")
}
