package app

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/pricing/ledger"
)

func TestTheCostLedgerIsKeptInAConfigMapThatNobodyElseHasWritten(t *testing.T) {
	client := fake.NewClientset()
	store := &stateStore{client: client, namespace: "kube-system", name: "gpu-spot-autoscaler-ledger"}
	state, err := store.Load(t.Context())
	require.NoError(t, err)
	assert.Empty(t, state)
	require.NoError(t, store.Save(t.Context(), []byte("one")))

	next := &stateStore{client: client, namespace: "kube-system", name: "gpu-spot-autoscaler-ledger"}
	state, err = next.Load(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "one", string(state))

	late := &stateStore{client: client, namespace: "kube-system", name: "gpu-spot-autoscaler-ledger"}
	assert.True(t, apierrors.IsConflict(late.Save(t.Context(), []byte("two"))), "it has not seen that there is one")
}

// oneJob is a registry with one job, or none.
type oneJob struct {
	job jobs.Job
	err error
}

func (o oneJob) Get(context.Context, jobs.Ref) (jobs.Job, error) { return o.job, o.err }

func TestAJobIsToldAtItsEndWhatItCost(t *testing.T) {
	object := &unstructured.Unstructured{}
	cost := ledger.Amounts{Cost: 12.5, OnDemand: 50, GPUHours: 8}
	for name, c := range map[string]struct {
		job  ledger.Job
		jobs oneJob
		want string
	}{
		"finished": {
			ledger.Job{System: "job"}, oneJob{job: jobs.Job{Finished: true, Object: object}},
			"Normal SpotCost The job cost 12.500 CNY for 8.0 GPU-hours; on demand it would have been 50.000 CNY",
		},
		"to run again":       {ledger.Job{System: "job"}, oneJob{job: jobs.Job{Object: object}}, ""},
		"gone":               {ledger.Job{System: "job"}, oneJob{err: fmt.Errorf("get: %w", jobs.ErrNoObject)}, ""},
		"of no known system": {ledger.Job{System: jobs.SystemPod}, oneJob{job: jobs.Job{Finished: true, Object: object}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := record.NewFakeRecorder(1)
			(&costEvents{jobs: c.jobs, recorder: recorder}).ended(t.Context(), c.job, cost, "CNY")
			if c.want == "" {
				assert.Empty(t, recorder.Events)
				return
			}
			assert.Equal(t, c.want, <-recorder.Events)
		})
	}
}
