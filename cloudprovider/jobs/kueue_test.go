package jobs

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"gpu-spot-autoscaler/cloudprovider/api"
)

const workloadOfTrain = `
apiVersion: kueue.x-k8s.io/v1beta1
kind: Workload
metadata:
  name: job-train-1a2b3
  uid: uid-workload
  labels: {kueue.x-k8s.io/job-uid: uid-train}
  ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: uid-train, controller: true}]
spec: {queueName: gpu, active: true}
`

var queuedJob = strings.Replace(indexedJob, "metadata:\n", "metadata:\n  labels: {kueue.x-k8s.io/queue-name: gpu}\n", 1)

func TestAJobThatKueueAdmitsIsEndedAndResumedThroughItsWorkload(t *testing.T) {
	for name, tc := range map[string]struct{ job, workload string }{
		"in a queue":                    {queuedJob, workloadOfTrain},
		"without one":                   {indexedJob, workloadOfTrain},
		"whose Workload was made first": {queuedJob, strings.Replace(workloadOfTrain, "  labels: {kueue.x-k8s.io/job-uid: uid-train}\n", "", 1)},
		"whose Workload says nothing":   {queuedJob, strings.Replace(workloadOfTrain, ", active: true", "", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			another := strings.NewReplacer("job-train-1a2b3", "job-another", "uid: uid-train", "uid: uid-another", "uid-workload", "uid-2").Replace(workloadOfTrain)
			w := newWorld(t, tc.job, tc.workload, another)
			require.NoError(t, w.registry.Suspend(ctx, w.get("job", "train"), ReasonReclaim))
			writes := w.writes()
			require.Len(t, writes, 2)
			assert.Contains(t, writes[0], "patch jobs ")
			assert.NotContains(t, writes[0], "suspend\":true", "that is Kueue's")
			assert.Equal(t, `patch workloads {"metadata":{"uid":"uid-workload"},"spec":{"active":false}}`, writes[1])
			assert.Equal(t, []string{ReasonSuspended}, w.events())
			assert.True(t, isActive(w.object(workloads, "job-another")))

			require.NoError(t, w.registry.Suspend(ctx, w.get("job", "train"), ReasonReclaim))
			assert.Empty(t, w.writes(), "the same again")

			w.set(w.registry.byName["job"].Resource(), "train", true, "spec", "suspend") // Kueue
			job := w.get("job", "train")
			assert.Equal(t, HeldSuspended, heldAs(job))
			w.writes()
			require.NoError(t, w.registry.Resume(ctx, job, 4))
			writes = w.writes()
			require.Len(t, writes, 2)
			assert.Equal(t, `patch workloads {"metadata":{"uid":"uid-workload"},"spec":{"active":true}}`, writes[0])
			assert.True(t, w.get("job", "train").Suspended, "until Kueue admits it")
			assert.Empty(t, w.get("job", "train").Object.GetLabels()[api.LabelHeld])
			require.NoError(t, w.registry.Resume(ctx, w.get("job", "train"), 4))
			assert.Empty(t, w.writes(), "the same again")
		})
	}
}

func TestHowLongAJobOfKueueWaitsIsKueuesToSay(t *testing.T) {
	w := newWorld(t, queuedJob, workloadOfTrain)
	require.ErrorIs(t, w.registry.Suspend(context.Background(), w.get("job", "train"), ReasonMaxWait), ErrUnsupported)
	assert.Empty(t, w.writes())
}

func TestAJobOfNoQueueIsSuspendedItselfWhereKueueIsNot(t *testing.T) {
	w := newWorld(t, indexedJob)
	w.dynamic.PrependReactor("list", "workloads", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(workloads.GroupResource(), "")
	})
	require.NoError(t, w.registry.Suspend(context.Background(), w.get("job", "train"), ReasonReclaim))
	assert.True(t, w.get("job", "train").Suspended)
}

func TestAJobIsNotSuspendedBesideKueueWhereItCannotBeAsked(t *testing.T) {
	w := newWorld(t, queuedJob, workloadOfTrain)
	w.dynamic.PrependReactor("list", "workloads", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(workloads.GroupResource(), "", errors.New("no rule"))
	})
	require.ErrorContains(t, w.registry.Suspend(context.Background(), w.get("job", "train"), ReasonReclaim), "finding its Workload")
	assert.Empty(t, w.writes())
}
