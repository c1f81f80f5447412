package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/rig"
)

// TestHandshake follows jobs from the warning to the end of their last pod on a reclaiming node.
func TestHandshake(t *testing.T) {
	s := newSharedJobSuite(t, "ordered", "silent", "correlated")
	for name, part := range map[string]func(*jobSuite){
		"warned, heard out, drained in order and within budgets": orderedJobIsHeardOutAndDrained,
		"a word that never comes is not waited for too long":     silentJobIsDrainedInTime,
		"one decision for all nodes that are lost at once":       correlatedReclaimIsOneDecision,
	} {
		t.Run(name, func(t *testing.T) { part(s.subtest(t)) })
	}
}

// member is a pod of a job that only annotations make.
func member(job, role string) *corev1.Pod {
	pod := rig.GPUPod(job+"-"+role, 1)
	pod.Labels["job"] = job
	pod.Annotations = map[string]string{api.AnnotationJob: job, api.AnnotationRole: role}
	pod.Spec.NodeSelector = map[string]string{"pool": job}
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](2)
	return pod
}

func orderedJobIsHeardOutAndDrained(s *jobSuite) {
	launcher, host, worker, guarded := member("ordered", "launcher"), member("ordered", "host"), member("ordered", "worker"), member("ordered", "worker")
	guarded.Name = "ordered-guarded"
	guarded.Labels["guarded"] = "ordered"
	launcher.Annotations[api.AnnotationAwaitCheckpoint] = "true"
	s.Submit(s.t, launcher, host, worker, guarded)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "guarded"}, Spec: policyv1.PodDisruptionBudgetSpec{
		Selector: metav1.SetAsLabelSelector(map[string]string{"guarded": "ordered"}), MinAvailable: ptr.To(intstr.FromInt32(1)),
	}}
	budgets := s.Client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault)
	_, err := budgets.Create(s.t.Context(), budget, metav1.CreateOptions{})
	require.NoError(s.t, err)
	pods := s.awaitRunningPods("job=ordered", 4) // guarded, host, launcher, worker
	order := s.watchTerminations("job=ordered")

	reclaiming := s.reclaimNodesOf(pods[0], pods[1], pods[3])
	request := awaitCheckpointRequest(s, pods)
	rig.Always(s.t, 3*time.Second, "nobody goes before the word", func(ctx context.Context) (bool, error) {
		return podsRemain(ctx, s, pods...)
	})
	acknowledge(s, pods[2], request) // a survivor speaks for all
	s.awaitEvent("SpotCheckpointAcknowledged", request)
	order.await(s.t, pods[3])
	rig.Always(s.t, 2*time.Second, "the budget and the order are kept", func(ctx context.Context) (bool, error) {
		return podsRemain(ctx, s, pods[0], pods[1])
	})
	require.NoError(s.t, budgets.Delete(s.t.Context(), "guarded", metav1.DeleteOptions{}))
	s.awaitGone(reclaiming)
	order.requireOrder(s.t, pods[3], pods[1])
	order.requireOrder(s.t, pods[0], pods[1])
	for _, pod := range reclaiming.pods {
		order.requireGracePeriod(s.t, pod)
	}
	s.eventually("the survivor is no longer warned", func(ctx context.Context) (bool, error) {
		pod, err := s.pod(ctx, pods[2].Name)
		return err == nil && pod.Annotations[api.AnnotationCheckpointRequest] == "" && pod.Annotations[api.AnnotationReclaimDeadline] == "", err
	})
	for _, pod := range reclaiming.pods {
		assert.Zero(s.t, countEvents(s, "Pod", pod.Name, "SpotReclaimDeleted"))
	}
}

func silentJobIsDrainedInTime(s *jobSuite) {
	pod := member("silent", "worker")
	pod.Annotations[api.AnnotationAwaitCheckpoint] = "10s"
	s.Submit(s.t, pod)
	pods := s.awaitRunningPods("job=silent", 1)
	order := s.watchTerminations("job=silent")
	reclaiming := s.reclaimNodesOf(pods...)
	awaitCheckpointRequest(s, pods)
	asked := time.Now()
	s.awaitGone(reclaiming)
	assert.Greater(s.t, time.Since(asked), 5*time.Second, "the word was waited for")
	order.requireGracePeriod(s.t, pods[0])
	s.awaitEvent("SpotCheckpointMissed")
}

func correlatedReclaimIsOneDecision(s *jobSuite) {
	const workers = 4
	s.submit(fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata: {name: correlated}
spec: {completionMode: Indexed, parallelism: %d, completions: %d, backoffLimit: 0, template: %s}
`, workers, workers, gpuTemplate("correlated", `metadata: {annotations: {gpu-spot.autoscaling/await-checkpoint: "true"}}`)))
	pods := s.awaitRunningPods("job-name=correlated", workers)
	reclaiming := s.reclaimNodesOf(pods[0], pods[1], pods[2])
	request := awaitCheckpointRequest(s, pods)
	assert.Equal(s.t, false, s.field(batchJobs, "correlated", "spec.suspend"), "the word comes first")
	acknowledge(s, pods[1], request)
	s.awaitJobEvent("Job", "correlated", "SpotJobSuspended", 1)
	s.awaitGone(reclaiming)
	s.awaitJobEvent("Job", "correlated", "SpotJobResumed", 1)
	s.requireOtherNodes(reclaiming, s.awaitRunningPods("job-name=correlated", workers))
	assert.Nil(s.t, s.field(batchJobs, "correlated", "status.failed"), "nothing was counted as a failure")
	assert.Equal(s.t, 1, countEvents(s, "Job", "correlated", "SpotJobSuspended"))
	assert.Equal(s.t, 1, countEvents(s, "Job", "correlated", "SpotJobWarned"))
}

// awaitCheckpointRequest waits until all of the pods have the same request for a checkpoint, and returns it.
func awaitCheckpointRequest(s *jobSuite, pods []corev1.Pod) (request string) {
	s.t.Helper()
	s.eventually("all pods have one request and a deadline", func(ctx context.Context) (bool, error) {
		requests := map[string]bool{}
		for _, pod := range pods {
			now, err := s.pod(ctx, pod.Name)
			if err != nil || now == nil || now.Annotations[api.AnnotationReclaimDeadline] == "" {
				return false, err
			}
			request = now.Annotations[api.AnnotationCheckpointRequest]
			requests[request] = true
		}
		return len(requests) == 1 && request != "", nil
	})
	return request
}

// podsRemain reports whether the pods exist and are not being deleted.
func podsRemain(ctx context.Context, s *jobSuite, pods ...corev1.Pod) (bool, error) {
	for _, pod := range pods {
		now, err := s.pod(ctx, pod.Name)
		if err != nil || now == nil || now.UID != pod.UID || now.DeletionTimestamp != nil {
			return false, err
		}
	}
	return true, nil
}

// acknowledge annotates the pod with the acknowledgement of the request, as its process would.
func acknowledge(s *jobSuite, pod corev1.Pod, request string) {
	s.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, api.AnnotationCheckpointAcknowledged, request)
	_, err := s.Client.CoreV1().Pods(pod.Namespace).Patch(s.t.Context(), pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(s.t, err)
}

// countEvents returns how often an Event with the reason was recorded on the object.
func countEvents(s *jobSuite, kind, name, reason string) (n int) {
	s.t.Helper()
	list, err := s.Client.CoreV1().Events(metav1.NamespaceDefault).List(s.t.Context(), metav1.ListOptions{
		FieldSelector: "reason=" + reason + ",involvedObject.kind=" + kind + ",involvedObject.name=" + name,
	})
	require.NoError(s.t, err)
	for _, event := range list.Items {
		n += int(max(event.Count, 1))
	}
	return n
}

func TestReplacementIsBoughtBeforeTheFirstEviction(t *testing.T) {
	w := newWorld(spotPool("asg-1", 10))
	w.NoticePeriod = metav1.Duration{Duration: 2 * time.Minute}
	s := newSuite(t, w)
	s.RunAutoscaler(t, "--reclaim-notice-period=2m", "--reclaim-poll-interval=1s")
	deployGPUPods(s, "train", 2)
	var pods []corev1.Pod
	s.eventually("both replicas run", func(ctx context.Context) (bool, error) {
		var err error
		pods, err = runningReplicas(ctx, s, "train")
		return len(pods) == 2, err
	})
	const slow = 8 * time.Second
	s.injectFault(alisim.Fault{Action: "ScaleWithAdjustment", Kind: alisim.FaultLatency, Latency: slow})
	before := len(s.requests("ScaleWithAdjustment"))
	js := &jobSuite{suite: s}
	node, err := s.Client.CoreV1().Nodes().Get(t.Context(), pods[0].Spec.NodeName, metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, s.Cloud.Reclaim(instanceOf(node)))
	noticed := time.Now()
	rig.Always(t, slow-2*time.Second, "the pod stays while the purchase is under way", func(ctx context.Context) (bool, error) {
		return podsRemain(ctx, js, pods[0])
	})
	s.eventually("the pod is evicted", func(ctx context.Context) (bool, error) {
		remains, err := podsRemain(ctx, js, pods[0])
		return !remains, err
	})
	assert.Greater(t, len(s.requests("ScaleWithAdjustment")), before)
	assert.Less(t, time.Since(noticed), time.Minute)
}

// TestTheDrainWaitsUntilTheReplacementIsReadyAndAsksForTheLastCheckpoint has nodes that take 25 s to come up, and kills the leader meanwhile.
func TestTheDrainWaitsUntilTheReplacementIsReadyAndAsksForTheLastCheckpoint(t *testing.T) {
	w := newWorld(spotPool("asg-1", 10))
	w.BootDelay = metav1.Duration{Duration: 25 * time.Second}
	w.NoticePeriod = metav1.Duration{Duration: 3 * time.Minute}
	flags := []string{"--reclaim-notice-period=3m", "--reclaim-poll-interval=1s", "--scale-down-unneeded-time=5m"}
	s := newSuite(t, w)
	autoscaler := s.RunAutoscaler(t, flags...)
	job := &jobSuite{suite: s}
	template := rig.GPUPod("train", 1)
	template.Annotations = map[string]string{api.AnnotationAwaitCheckpoint: "true"}
	createDeployment(s, 1, template)
	var pods []corev1.Pod
	s.eventually("the job trains", func(ctx context.Context) (bool, error) {
		var err error
		pods, err = runningReplicas(ctx, s, "train")
		return len(pods) == 1, err
	})
	reclaiming := s.instances("asg-1")[0].ID
	require.NoError(t, s.Cloud.Reclaim(reclaiming))
	noticed := time.Now()
	first := awaitCheckpointRequest(job, pods)
	acknowledge(job, pods[0], first)
	s.awaitEvent("SpotCheckpointAcknowledged", first)
	autoscaler.Kill()
	s.RunAutoscaler(t, flags...)
	replacement := func(ctx context.Context) (ready bool, err error) {
		nodes, err := s.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for i := range nodes.Items {
			node := &nodes.Items[i]
			if gpus := node.Status.Allocatable[api.ResourceGPU]; instanceOf(node) != reclaiming && !gpus.IsZero() {
				return true, nil
			}
		}
		return false, nil
	}
	s.eventually("another checkpoint is asked for", func(ctx context.Context) (bool, error) {
		pod, err := s.pod(ctx, pods[0].Name)
		if err != nil || pod == nil || pod.DeletionTimestamp != nil {
			return false, fmt.Errorf("the job was not asked before its pod left: %w", err)
		}
		return pod.Annotations[api.AnnotationCheckpointRequest] != first, nil
	})
	ready, err := replacement(t.Context())
	require.NoError(t, err)
	assert.True(t, ready, "not before the replacement has its GPU")
	assert.Less(t, time.Since(noticed), 90*time.Second)
	last := awaitCheckpointRequest(job, pods)
	rig.Always(t, 3*time.Second, "the last acknowledgement is awaited", func(ctx context.Context) (bool, error) {
		return podsRemain(ctx, job, pods...)
	})
	acknowledge(job, pods[0], last)
	s.awaitEvent("SpotCheckpointAcknowledged", last)
	s.eventually("the pod runs on the replacement", func(ctx context.Context) (bool, error) {
		moved, err := runningReplicas(ctx, s, "train")
		return len(moved) == 1 && moved[0].UID != pods[0].UID, err
	})
	assert.Less(t, time.Since(noticed), 2*time.Minute, "long before the deadline")
}
