package trainingoperator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"gpu-spot-autoscaler/test/cluster"
	"gpu-spot-autoscaler/test/rig"
)

const soon = 2 * time.Minute

// What the adapters take for granted about the operator, which this asks the operator itself.
func TestOperator(t *testing.T) {
	c := cluster.StartForTest(t)
	ForTest(t, c)
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
				restarts, err := j.restarts(ctx, name)
				failed, err2 := j.is(ctx, test.kind, name, "Failed")
				return restarts || failed, errors.Join(err, err2)
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

// restarts goes by the operator's Events: the condition is there only until the operator looks again.
func (j *jobs) restarts(ctx context.Context, name string) (bool, error) {
	list, err := j.client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(list.Items, func(event corev1.Event) bool { return strings.HasSuffix(event.Reason, "JobRestarting") }), nil
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
