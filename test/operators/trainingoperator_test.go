package operators

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"gpu-spot-autoscaler/test/cluster"
	"gpu-spot-autoscaler/test/rig"
)

const soon = 2 * time.Minute

// What the adapters take for granted about the operator, which this asks the operator itself.
func TestTrainingOperator(t *testing.T) {
	c := cluster.StartForTest(t)
	ForTest(t, c, TrainingOperator)
	all := newJobs(t, c)
	addNode(all, "system")
	addNode(all, "gpu")
	t.Run("a pod is lost", func(t *testing.T) { testWhatLosingAPodMeans(t, c) })
	t.Run("a job is suspended", func(t *testing.T) { testSuspensionCostsTheJobNothing(t, c) })
}

func testWhatLosingAPodMeans(t *testing.T, c *cluster.Cluster) {
	tests := map[string]struct {
		kind          schema.GroupVersionResource
		manifest      func(name string) string
		pods          int
		lost, outcome string
	}{
		"elastic-worker": {
			kind: pytorchJobs, pods: 3, lost: "-worker-1", outcome: "Running",
			manifest: func(name string) string { return pytorchJob(name, "OnFailure", 3, 1, 1) },
		},
		"elastic-host": {
			kind: pytorchJobs, pods: 3, lost: "-worker-0", outcome: "Running",
			manifest: func(name string) string { return pytorchJob(name, "ExitCode", 3, 1, 1) },
		},
		"elastic-never": {
			kind: pytorchJobs, pods: 3, lost: "-worker-1", outcome: "Failed",
			manifest: func(name string) string { return pytorchJob(name, "Never", 3, 1, 1) },
		},
		"mpi-default": {
			kind: mpiJobs, pods: 4, lost: "-worker-1", outcome: "Failed",
			manifest: func(name string) string { return mpiJob(name, "", 3, 1) },
		},
		"mpi-onfailure": {
			kind: mpiJobs, pods: 4, lost: "-worker-1", outcome: "Failed",
			manifest: func(name string) string { return mpiJob(name, "OnFailure", 3, 1) },
		},
		"mpi-exitcode": {
			kind: mpiJobs, pods: 4, lost: "-worker-1", outcome: "Running",
			manifest: func(name string) string { return mpiJob(name, "ExitCode", 3, 1) },
		},
		"mpi-launcher": {
			kind: mpiJobs, pods: 4, lost: "-launcher", outcome: "Failed",
			manifest: func(name string) string { return mpiJob(name, "", 3, 1) },
		},
		"mpi-launcher-exitcode": {
			kind: mpiJobs, pods: 4, lost: "-launcher", outcome: "Running",
			manifest: func(name string) string { return mpiJob(name, "ExitCode", 3, 1) },
		},
		"tf-worker": {
			kind: TFJobs, pods: 3, lost: "-worker-1", outcome: "Failed",
			manifest: func(name string) string { return tfJob(name, false) },
		},
		"tf-dynamic-worker": {
			kind: TFJobs, pods: 3, lost: "-worker-1", outcome: "Running",
			manifest: func(name string) string { return tfJob(name, true) },
		},
		"tf-dynamic-ps": {
			kind: TFJobs, pods: 3, lost: "-ps-0", outcome: "Failed",
			manifest: func(name string) string { return tfJob(name, true) },
		},
		"jax-default": {
			kind: JAXJobs, pods: 3, lost: "-worker-1", outcome: "Failed",
			manifest: func(name string) string { return jaxJob(name, "") },
		},
		"jax-onfailure": {
			kind: JAXJobs, pods: 3, lost: "-worker-1", outcome: "Running",
			manifest: func(name string) string { return jaxJob(name, "restartPolicy: OnFailure,") },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJobs(t, c)
			j.submit(test.manifest(name))
			j.eventually("the job runs whole", func(ctx context.Context) (bool, error) { return j.running(ctx, name, test.pods) })
			before, err := j.pods(t.Context(), name)
			require.NoError(t, err)
			release := j.linger(name + test.lost)
			j.evict(name + test.lost)
			j.eventually("it has ended", func(ctx context.Context) (bool, error) {
				pods, err := j.pods(ctx, name)
				return err == nil && pods[name+test.lost].Status.Phase == corev1.PodFailed, err
			})
			j.eventually("the operator has seen it", func(ctx context.Context) (bool, error) {
				lost, err := j.counts(ctx, test.kind, name)
				restarting, err2 := j.is(ctx, test.kind, name, "Restarting")
				failed, err3 := j.is(ctx, test.kind, name, "Failed")
				return lost || restarting || failed, errors.Join(err, err2, err3)
			})
			release()
			if test.outcome == "Failed" {
				j.eventually("the job has failed", func(ctx context.Context) (bool, error) { return j.is(ctx, test.kind, name, "Failed") })
				return
			}
			j.eventually("the pod is back under its name", func(ctx context.Context) (bool, error) {
				after, err := j.pods(ctx, name)
				again := after[name+test.lost]
				return again != nil && again.UID != before[name+test.lost].UID && again.Status.Phase == corev1.PodRunning, err
			})
			j.eventually("the job runs", func(ctx context.Context) (bool, error) { return j.is(ctx, test.kind, name, "Running") })
			failed, err := j.is(t.Context(), test.kind, name, "Failed")
			require.NoError(t, err)
			require.False(t, failed)
		})
	}
}

func testSuspensionCostsTheJobNothing(t *testing.T, c *cluster.Cluster) {
	tests := map[string]struct {
		kind     schema.GroupVersionResource
		manifest string
		pods     int
	}{
		"held-elastic": {pytorchJobs, pytorchJob("held-elastic", "Never", 3, 1, 1), 3},
		"held-mpi":     {mpiJobs, mpiJob("held-mpi", "", 3, 1), 4},
		"held-tf":      {TFJobs, tfJob("held-tf", false), 3},
		"held-jax":     {JAXJobs, jaxJob("held-jax", ""), 3},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJobs(t, c)
			j.submit(test.manifest)
			j.eventually("the job runs whole", func(ctx context.Context) (bool, error) { return j.running(ctx, name, test.pods) })
			j.suspend(test.kind, name, true)
			j.eventually("its pods are gone", func(ctx context.Context) (bool, error) { return j.running(ctx, name, 0) })
			j.eventually("it says so", func(ctx context.Context) (bool, error) { return j.is(ctx, test.kind, name, "Suspended") })
			j.suspend(test.kind, name, false)
			j.eventually("the job runs whole again", func(ctx context.Context) (bool, error) { return j.running(ctx, name, test.pods) })
			j.eventually("it says so", func(ctx context.Context) (bool, error) { return j.is(ctx, test.kind, name, "Running") })
			conditions, err := j.conditions(t.Context(), test.kind, name)
			require.NoError(t, err)
			require.NotContains(t, conditions, "Failed")
			require.NotContains(t, conditions, "Restarting")
		})
	}
}

func (j *jobs) eventually(what string, condition func(context.Context) (bool, error)) {
	j.Helper()
	rig.Eventually(j.T, soon, what, condition)
}

func (j *jobs) is(ctx context.Context, kind schema.GroupVersionResource, name, condition string) (bool, error) {
	conditions, err := j.conditions(ctx, kind, name)
	return slices.Contains(conditions, condition), err
}

// counts says whether the operator counts a pod that has failed. Its condition Restarting may be gone again at once: which
// of two kinds of replicas it looks at last is left to chance.
func (j *jobs) counts(ctx context.Context, kind schema.GroupVersionResource, name string) (bool, error) {
	object, err := j.dynamic.Resource(kind).Namespace(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	replicas, _, err := unstructured.NestedMap(object.Object, "status", "replicaStatuses")
	for role := range replicas {
		if failed, _, _ := unstructured.NestedInt64(replicas, role, "failed"); failed > 0 {
			return true, err
		}
	}
	return false, err
}

// linger keeps the pod, once it has ended, until released: a kubelet takes a moment too between the end of a pod that was
// deleted and its removal, and what the operator sees in that moment decides.
func (j *jobs) linger(pod string) (release func()) {
	j.Helper()
	patch := func(finalizers string) {
		j.Helper()
		_, err := j.client.CoreV1().Pods(metav1.NamespaceDefault).Patch(j.Context(), pod, types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":`+finalizers+`}}`), metav1.PatchOptions{})
		require.NoError(j, err)
	}
	patch(`["test.gpu-spot.autoscaling/linger"]`)
	return func() { patch("null") }
}

// addNode makes a Node that has room for everything.
func addNode(j *jobs, pool string) {
	j.Helper()
	node := cluster.NewFakeNode(pool, corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"), corev1.ResourcePods: resource.MustParse("100"),
		"nvidia.com/gpu": resource.MustParse("64"),
	})
	node.Labels["pool"] = pool
	_, err := j.client.CoreV1().Nodes().Create(j.Context(), node, metav1.CreateOptions{})
	require.NoError(j, err)
}
