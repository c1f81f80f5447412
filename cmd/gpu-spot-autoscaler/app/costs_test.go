package app

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
	"gpu-spot-autoscaler/pricing/ledger"
)

// versionedClient is a fake that refuses writes of an old version of a ConfigMap, as the API server does.
func versionedClient() *fake.Clientset {
	client := fake.NewClientset()
	last := 0
	client.PrependReactor("*", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		write, isWrite := action.(clienttesting.UpdateAction)
		if !isWrite {
			return false, nil, nil
		}
		object := write.GetObject().(*corev1.ConfigMap)
		if action.GetVerb() == "update" && object.ResourceVersion != fmt.Sprint(last) {
			return true, nil, apierrors.NewConflict(corev1.Resource("configmaps"), object.Name, nil)
		}
		last++
		object.ResourceVersion = fmt.Sprint(last)
		return false, nil, nil
	})
	return client
}

func TestTheCostLedgerIsKeptInAConfigMapThatNobodyElseHasWritten(t *testing.T) {
	client := versionedClient()
	store := &stateStore{client: client, namespace: "kube-system", name: "gpu-spot-autoscaler-ledger"}
	state, err := store.Load(t.Context())
	require.NoError(t, err)
	assert.Empty(t, state)
	require.NoError(t, store.Save(t.Context(), []byte("one")))

	next := &stateStore{client: client, namespace: "kube-system", name: "gpu-spot-autoscaler-ledger"}
	state, err = next.Load(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "one", string(state))

	next.SetAside()
	require.NoError(t, next.Save(t.Context(), []byte("two")))
	after := &stateStore{client: client, namespace: "kube-system", name: "gpu-spot-autoscaler-ledger"}
	state, err = after.Load(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "two", string(state))
	require.NoError(t, after.Save(t.Context(), []byte("three")))
	kept, err := client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), after.name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, map[string][]byte{options.StateKey: []byte("three"), asideKey: []byte("one")}, kept.BinaryData)

	assert.True(t, apierrors.IsConflict(next.Save(t.Context(), []byte("four"))), "somebody has saved since")

	late := &stateStore{client: client, namespace: "kube-system", name: "gpu-spot-autoscaler-ledger"}
	assert.True(t, apierrors.IsConflict(late.Save(t.Context(), []byte("two"))), "it has not seen that there is one")
}

func TestWhatWasSetAsideGoesWhereThereIsNoRoomForIt(t *testing.T) {
	client := versionedClient()
	store := &stateStore{client: client, namespace: "kube-system", name: "gpu-spot-autoscaler-ledger"}
	require.NoError(t, store.Save(t.Context(), make([]byte, 600<<10)))
	store.SetAside()
	require.NoError(t, store.Save(t.Context(), make([]byte, 200<<10)))
	read := func() map[string][]byte {
		kept, err := client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), store.name, metav1.GetOptions{})
		require.NoError(t, err)
		return kept.BinaryData
	}
	require.Contains(t, read(), asideKey)
	require.NoError(t, store.Save(t.Context(), make([]byte, 600<<10)))
	assert.NotContains(t, read(), asideKey)
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
		told bool
	}{
		"finished": {
			ledger.Job{System: "job"}, oneJob{job: jobs.Job{Finished: true, Object: object}},
			"Normal SpotCost The job cost 12.500 CNY for 8.0 GPU-hours; on demand it would have been 50.000 CNY", true,
		},
		"to run again":       {ledger.Job{System: "job"}, oneJob{job: jobs.Job{Object: object}}, "", false},
		"gone":               {ledger.Job{System: "job"}, oneJob{err: fmt.Errorf("get: %w", jobs.ErrNoObject)}, "", true},
		"of no known system": {ledger.Job{System: jobs.SystemPod}, oneJob{job: jobs.Job{Finished: true, Object: object}}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := record.NewFakeRecorder(1)
			assert.Equal(t, c.told, (&costEvents{jobs: c.jobs, recorder: recorder}).ended(t.Context(), c.job, cost, "CNY"))
			if c.want == "" {
				assert.Empty(t, recorder.Events)
				return
			}
			assert.Equal(t, c.want, <-recorder.Events)
		})
	}
}

func TestAPodBearsThePartOfTheNodeThatItRequests(t *testing.T) {
	list := func(amounts ...string) corev1.ResourceList {
		all := corev1.ResourceList{}
		for i := 0; i < len(amounts); i += 2 {
			all[corev1.ResourceName(amounts[i])] = resource.MustParse(amounts[i+1])
		}
		return all
	}
	for name, c := range map[string]struct {
		node, pod corev1.ResourceList
		gpus      float64
		want      float64
	}{
		"whole GPUs":               {list("nvidia.com/gpu", "8", "cpu", "96"), list("nvidia.com/gpu", "2", "cpu", "90"), 8, .25},
		"a slice of eight GPUs":    {list("nvidia.com/gpu", "6", "nvidia.com/mig-3g.40gb", "4"), list("nvidia.com/mig-3g.40gb", "1"), 8, 1. / 16},
		"a pod without GPUs":       {list("nvidia.com/gpu", "8", "cpu", "96"), list("cpu", "90"), 8, 0},
		"a node without GPUs":      {list("cpu", "32"), list("cpu", "8"), 0, .25},
		"a node that is not ready": {list(), list("nvidia.com/gpu", "2"), 8, 0},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{Status: corev1.NodeStatus{Allocatable: c.node}}
			pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: c.pod}}}}}
			assert.InDelta(t, c.want, partOf(node, pod, c.gpus), 1e-9)
		})
	}
}

func TestLongNamesOfJobsAreShortenedAndStayDistinct(t *testing.T) {
	long := strings.Repeat("x", 1000)
	assert.Equal(t, "train", nameOf("train"))
	assert.LessOrEqual(t, len(nameOf(long)), longestName)
	assert.NotEqual(t, nameOf(long), nameOf(long+"y"))
}
