package etjob

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
)

func TestTrainingJobScaleInThatFailsIsNotRepeatedForEver(t *testing.T) {
	f := newFixture(t, jobstest.TrainingJob)
	job := f.Get("trainingjob", "mnist")
	for range maxFailedScalers {
		require.NoError(t, f.Registry.Shrink(context.Background(), job, []string{"mnist-worker-2"}))
		writes := f.Writes()
		end(f, scaleIns, strings.Fields(writes[len(writes)-1])[2], "ScaleFailed")
	}
	f.Writes()
	require.ErrorContains(t, f.Registry.Shrink(context.Background(), job, []string{"mnist-worker-2"}), "failed 3 times")
	assert.Empty(t, f.Writes())

	f.Clock.SetTime(jobstest.Epoch.Add(failedScalerAge))
	require.NoError(t, f.Registry.Shrink(context.Background(), job, []string{"mnist-worker-2"}), "for another reclaim, it is tried again")
	assert.Len(t, f.Writes(), 2)
}

func TestTrainingJobScaleOutThatFailsIsNotRepeatedForEver(t *testing.T) {
	ctx := context.Background()
	for name, test := range map[string]struct {
		workers []any
		grow    func(*jobs.Registry, jobs.Job) error
	}{
		"back to what it had": {[]any{"mnist-worker-0", "mnist-worker-1"}, func(r *jobs.Registry, job jobs.Job) error { return r.Grow(ctx, job, 4) }},
		"beyond": {[]any{"mnist-worker-0", "mnist-worker-1", "mnist-worker-2", "mnist-worker-3"},
			func(r *jobs.Registry, job jobs.Job) error { return r.GrowBeyond(ctx, job, 6) }},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, jobstest.Labelled(t, jobstest.TrainingJob, api.LabelGrow, api.GrowBuy))
			f.Set(resource, "mnist", test.workers, "status", "targetWorkers")
			f.Writes()
			job := f.Get("trainingjob", "mnist")
			for range maxFailedScalers {
				require.NoError(t, test.grow(f.Registry, job))
				writes := f.Writes()
				require.NotEmpty(t, writes)
				require.Contains(t, writes[0], "create scaleouts")
				end(f, scaleOuts, strings.Fields(writes[0])[2], "ScaleFailed")
			}
			require.ErrorContains(t, test.grow(f.Registry, job), "failed 3 times")
			assert.Empty(t, f.Writes())

			f.Clock.SetTime(jobstest.Epoch.Add(failedScalerAge))
			require.NoError(t, test.grow(f.Registry, job), "later, there may be room for them")
			assert.Contains(t, strings.Join(f.Writes(), "\n"), "create scaleouts")
		})
	}
}

// scalers are the names of those that are there.
func scalers(f *jobstest.Fixture) (names []string) {
	f.Helper()
	for _, resource := range []schema.GroupVersionResource{scaleIns, scaleOuts} {
		list, err := f.Dynamic.Resource(resource).Namespace("ml").List(context.Background(), metav1.ListOptions{})
		require.NoError(f, err)
		for i := range list.Items {
			names = append(names, list.Items[i].GetName())
		}
	}
	return names
}

// begin has the operator note which pods the scaler is about.
func begin(f *jobstest.Fixture, resource schema.GroupVersionResource, name string, pods ...any) {
	f.Helper()
	field := map[schema.GroupVersionResource]string{scaleIns: "toDeletePods", scaleOuts: "addPods"}[resource]
	f.Set(resource, name, pods, "status", field)
	f.Writes()
}

const foreignScaleIn = `
apiVersion: kai.alibabacloud.com/v1alpha1
kind: ScaleIn
metadata: {name: theirs}
spec: {selector: {name: %s}, toDelete: {podNames: [mnist-worker-3]}}
`

func TestTrainingJobScaleInIsTakenBackUnlessItHasBegun(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, jobstest.TrainingJob, fmt.Sprintf(foreignScaleIn, "another"))
	ref := jobstest.Ref("trainingjob", "mnist")
	reclaiming := []string{"mnist-worker-2", "mnist-worker-3"}
	shrinking := func() bool {
		leaving, err := f.Registry.Shrinking(ctx, ref, append(reclaiming, "mnist-worker-0"))
		require.NoError(t, err)
		if len(leaving) > 0 {
			require.Equal(t, reclaiming, leaving, "no others")
		}
		return len(leaving) > 0
	}
	require.False(t, shrinking())
	require.NoError(t, f.Registry.Shrink(ctx, f.Get("trainingjob", "mnist"), reclaiming))
	ours := scalers(f)[0]
	require.True(t, shrinking())
	begin(f, scaleIns, ours, "mnist-worker-2", "mnist-worker-3")
	require.True(t, shrinking())
	require.NoError(t, f.Registry.CancelShrink(ctx, ref, reclaiming))
	assert.Contains(t, scalers(f), ours, "it keeps to its pods")

	begin(f, scaleIns, ours)
	require.NoError(t, f.Registry.CancelShrink(ctx, ref, []string{"mnist-worker-0"}))
	assert.Contains(t, scalers(f), ours, "its pods are there")
	require.NoError(t, f.Registry.CancelShrink(ctx, ref, []string{"mnist-worker-2"}))
	assert.Equal(t, []string{"theirs"}, scalers(f), "it would be carried out on all workers")
	assert.False(t, shrinking())

	require.NoError(t, f.Registry.CancelShrink(ctx, jobstest.Ref("pytorchjob", "mnist"), reclaiming))
	require.ErrorIs(t, f.Registry.CancelShrink(ctx, jobstest.Ref("pod", "mnist"), reclaiming), jobs.ErrNoObject)
}

const workerPod = `
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {group-name: kai.alibabacloud.com, training-job-name: mnist, training-job-role: worker}}
`

func TestTrainingJobScaleInOfWorkersThatAreGoneIsTakenBackUnlessItHasBegun(t *testing.T) {
	ctx := context.Background()
	theirs := fmt.Sprintf(foreignScaleIn, "mnist") // of a worker that does not exist either
	f := newFixture(t, jobstest.TrainingJob, fmt.Sprintf(workerPod, "mnist-worker-0"), fmt.Sprintf(workerPod, "mnist-worker-2"))
	ref := jobstest.Ref("trainingjob", "mnist")
	require.NoError(t, f.Registry.CancelStaleShrinks(ctx, ref), "there is none")
	require.NoError(t, f.Registry.Shrink(ctx, f.Get("trainingjob", "mnist"), []string{"mnist-worker-2", "mnist-worker-3"}))
	ours := scalers(f)[0]
	_, err := f.Dynamic.Resource(scaleIns).Namespace("ml").Create(ctx, jobstest.Parse(t, theirs), metav1.CreateOptions{})
	require.NoError(t, err)

	var busy *jobs.BusyError
	require.ErrorAs(t, f.Registry.CancelStaleShrinks(ctx, ref), &busy, "worker 2 exists: the operator would take it out and no other")
	require.NoError(t, f.Kube.CoreV1().Pods("ml").Delete(ctx, "mnist-worker-2", metav1.DeleteOptions{}))
	begin(f, scaleIns, ours, "mnist-worker-2", "mnist-worker-3")
	require.NoError(t, f.Registry.CancelStaleShrinks(ctx, ref))
	assert.ElementsMatch(t, []string{ours, "theirs"}, scalers(f), "it keeps to its pods")
	begin(f, scaleIns, ours)
	keeps := []string{"theirs"}
	for kind, conditions := range map[string]string{"ScaleOut": "[]", "ScaleIn": "[{type: ScaleFailed, status: 'True'}]"} {
		keeps = append(keeps, "mnist-spot-"+strings.ToLower(kind))
		other := jobstest.Parse(t, fmt.Sprintf(`{apiVersion: kai.alibabacloud.com/v1alpha1, kind: %s, metadata: {name: %s},
			spec: {selector: {name: mnist}, toDelete: {podNames: [mnist-worker-2]}}, status: {conditions: %s}}`, kind, keeps[len(keeps)-1], conditions))
		_, err := f.Dynamic.Resource(map[string]schema.GroupVersionResource{"ScaleOut": scaleOuts, "ScaleIn": scaleIns}[kind]).
			Namespace("ml").Create(ctx, other, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	made := jobstest.ParsePod(t, fmt.Sprintf(workerPod, "mnist-worker-2"))
	made.CreationTimestamp = metav1.NewTime(jobstest.Epoch.Add(time.Minute))
	_, err = f.Kube.CoreV1().Pods("ml").Create(ctx, made, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, f.Registry.CancelStaleShrinks(ctx, ref))
	assert.ElementsMatch(t, keeps, scalers(f), "it would be carried out on another worker 2, or on all")

	require.NoError(t, f.Registry.CancelStaleShrinks(ctx, jobstest.Ref("pytorchjob", "mnist")))
	require.ErrorIs(t, f.Registry.CancelStaleShrinks(ctx, jobstest.Ref("pod", "mnist")), jobs.ErrNoObject)
}

func TestTrainingJobThatBeganAnewIsNotShrinking(t *testing.T) {
	f := newFixture(t, jobstest.TrainingJob)
	require.NoError(t, f.Registry.Shrink(context.Background(), f.Get("trainingjob", "mnist"), []string{"mnist-worker-3"}))
	for phase, want := range map[string]bool{"Running": true, "Scaling": true, "Created": false, "Failed": false, "": false, "Suspended": false} {
		f.Set(resource, "mnist", phase, "status", "phase")
		leaving, err := f.Registry.Shrinking(context.Background(), jobstest.Ref("trainingjob", "mnist"), []string{"mnist-worker-3"})
		require.NoError(t, err)
		assert.Equal(t, want, len(leaving) > 0, "phase %q", phase)
	}
}

func TestTrainingJobScaleInThatHasYetToBeginMakesRoomForOneOfMore(t *testing.T) {
	f := newFixture(t, jobstest.TrainingJob)
	job := f.Get("trainingjob", "mnist")
	require.NoError(t, f.Registry.Shrink(context.Background(), job, []string{"mnist-worker-3"}))
	first := scalers(f)[0]
	require.NoError(t, f.Registry.Shrink(context.Background(), job, []string{"mnist-worker-2", "mnist-worker-3"}))
	second := scalers(f)
	require.Len(t, second, 1)
	assert.NotEqual(t, first, second[0])
	begin(f, scaleIns, second[0], "mnist-worker-2", "mnist-worker-3")
	var busy *jobs.BusyError
	require.ErrorAs(t, f.Registry.Shrink(context.Background(), job, []string{"mnist-worker-1", "mnist-worker-3"}), &busy)
}

func TestTrainingJobMeetsNoScalerOfItsFormerLife(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, jobstest.TrainingJob, fmt.Sprintf(foreignScaleIn, "mnist"), strings.Replace(fmt.Sprintf(foreignScaleIn, "another"), "theirs", "of-another", 1))
	begin(f, scaleIns, "theirs", "mnist-worker-3")
	require.NoError(t, f.Registry.Suspend(ctx, f.Get("trainingjob", "mnist"), jobs.HeldForReclaim))
	assert.Equal(t, []string{"of-another"}, scalers(f), "one that has begun goes too: the workers of the next life have the same names")

	late := jobstest.Parse(t, fmt.Sprintf(foreignScaleIn, "mnist"))
	_, err := f.Dynamic.Resource(scaleIns).Namespace("ml").Create(ctx, late, metav1.CreateOptions{})
	require.NoError(t, err)
	f.Set(resource, "mnist", "Suspended", "status", "phase")
	require.NoError(t, f.Registry.Resume(ctx, f.Get("trainingjob", "mnist"), 4))
	assert.Equal(t, []string{"of-another"}, scalers(f))
}

func TestTrainingJobScaleInWhoseWorkersTheOperatorHasJustDeletedIsLeftToIt(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, jobstest.TrainingJob, fmt.Sprintf(workerPod, "mnist-worker-2"))
	ref := jobstest.Ref("trainingjob", "mnist")
	require.NoError(t, f.Registry.Shrink(ctx, f.Get("trainingjob", "mnist"), []string{"mnist-worker-2"}))
	ours := scalers(f)[0]
	taken := map[string]any{"type": "Scaling", "status": "True", "lastTransitionTime": f.Clock.Now().Format(time.RFC3339)}
	f.Set(scaleIns, ours, []any{taken}, "status", "conditions")
	require.NoError(t, f.Kube.CoreV1().Pods("ml").Delete(ctx, "mnist-worker-2", metav1.DeleteOptions{}))

	f.Clock.Step(executionTime - time.Second)
	require.NoError(t, f.Registry.CancelShrink(ctx, ref, []string{"mnist-worker-2"}))
	var busy *jobs.BusyError
	require.ErrorAs(t, f.Registry.CancelStaleShrinks(ctx, ref), &busy)
	assert.Equal(t, []string{ours}, scalers(f))

	f.Clock.Step(time.Second)
	require.NoError(t, f.Registry.CancelStaleShrinks(ctx, ref))
	assert.Empty(t, scalers(f), "the operator was not at it: it would delete all workers")
}

func TestTrainingJobScaleInThatTheOperatorTookIsTakenBackWhileItsWorkersAreThere(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, jobstest.TrainingJob, fmt.Sprintf(workerPod, "mnist-worker-2"))
	require.NoError(t, f.Registry.Shrink(ctx, f.Get("trainingjob", "mnist"), []string{"mnist-worker-2"}))
	taken := map[string]any{"type": "Scaling", "status": "True", "lastTransitionTime": f.Clock.Now().Format(time.RFC3339)}
	f.Set(scaleIns, scalers(f)[0], []any{taken}, "status", "conditions")
	require.NoError(t, f.Registry.CancelShrink(ctx, jobstest.Ref("trainingjob", "mnist"), []string{"mnist-worker-2"}))
	assert.Empty(t, scalers(f), "they are evicted next")
}
