package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/rig"
	"gpu-spot-autoscaler/test/standin"
)

func TestAJobSurvivesAFaultyGPUAndItsNodeIsReplaced(t *testing.T) {
	s := newJobSuiteWithoutAutoscaler(t, newWorld(), "training")
	const flag = "--node-fault-conditions=NvidiaXID79Error=3m,GPUError"
	s.runLeader(flag)
	s.runOperator(standin.NewETOperator)
	s.submit(fmt.Sprintf(`
apiVersion: kai.alibabacloud.com/v1alpha1
kind: TrainingJob
metadata: {name: training}
spec:
  restartPolicy: OnFailure
  backoffLimit: 0
  etReplicaSpecs:
    launcher: {replicas: 1, template: %s}
    worker: {replicas: 4, minReplicas: 2, maxReplicas: 4, template: %s}
`, systemTemplate("horovodrun python train.py"), gpuTemplate("training", `metadata: {annotations: {gpu-spot.autoscaling/await-checkpoint: "60s"}}`)))
	workers := s.awaitRunningPods(workersOfET("training"), 4)
	s.awaitField(standin.TrainingJobs, "training", "status.phase", "Running")
	well, faulty := s.instanceOfPod(workers[0]), s.instanceOfPod(workers[2])

	setCondition(s.suite, well, corev1.NodeCondition{
		Type: "GPUError", Status: corev1.ConditionTrue, Reason: "NodeHasNvidiaXidError", Message: "NVRM: Xid (PCI:0000:00:07): 31, pid=4711, MMU Fault",
	})
	setCondition(s.suite, faulty, corev1.NodeCondition{
		Type: "NvidiaXID79Error", Status: corev1.ConditionTrue, Reason: "NodeHasNvidiaXID79Error", Message: "GPU has fallen off the bus",
	})
	awaitMarkFrom(s.suite, faulty, "fault")
	s.awaitEvent("SpotNodeFault", "NvidiaXID79Error", faulty)
	request := awaitCheckpointRequest(s, workers)
	s.eventually("the replacement is bought", func(context.Context) (bool, error) { return boughtOfPool(s, "training") == 5, nil })
	remain, err := podsRemain(t.Context(), s, workers...)
	require.NoError(t, err)
	assert.True(t, remain, "nobody goes before the acknowledgement")

	s.autoscaler.Kill()
	s.runLeader(flag)
	rig.Always(t, 5*time.Second, "the next leader waits for it, too", func(ctx context.Context) (bool, error) {
		return podsRemain(ctx, s, workers...)
	})
	assert.Equal(t, request, awaitCheckpointRequest(s, workers), "the job is not asked twice")
	acknowledge(s, workers[0], request)

	s.eventually("the faulty instance is given back", func(context.Context) (bool, error) {
		return !slices.ContainsFunc(s.Cloud.Instances(), func(i alisim.InstanceView) bool { return i.ID == faulty }), nil
	})
	s.eventually("its Node is gone", func(ctx context.Context) (bool, error) {
		node, err := s.node(ctx, faulty)
		return node == nil, err
	})
	s.awaitRunningPods(workersOfET("training"), 4)
	s.awaitNotHeld(standin.TrainingJobs, "training")
	now := s.awaitRunningPods(workersOfET("training"), 4)
	for i, survivor := range workers {
		assert.Equal(t, i != 2, has(now, survivor), "%s trained on, unless its GPU was lost", survivor.Name)
	}
	assert.EqualValues(t, 0, s.field(standin.TrainingJobs, "training", "status.restartCount"))
	s.requireBought("training", 5)
	node, err := s.node(t.Context(), well)
	require.NoError(t, err)
	require.NotNil(t, node)
	assert.False(t, marked(node), "an error of a program takes no node away")
	assert.NotContains(t, node.Annotations, api.AnnotationReclaimCancelled)
}

func TestADetectorThatDeclaresAllNodesFaultyCostsFewOfThem(t *testing.T) {
	s := newSuite(t, newWorld(spotPool("asg-1", 10)))
	s.RunAutoscaler(t, "--node-fault-max-nodes=1", "--scale-down-unneeded-time=10m")
	deployGPUPods(s, "train", 3)
	s.eventually("all replicas run", func(ctx context.Context) (bool, error) {
		pods, err := runningReplicas(ctx, s, "train")
		return len(pods) == 3, err
	})
	instances := s.instances("asg-1")
	for _, instance := range instances {
		setCondition(s, instance.ID, corev1.NodeCondition{Type: "NvidiaDeviceLost", Status: corev1.ConditionTrue, Reason: "NodeHasNvidiaDeviceLost"})
	}
	s.awaitEvent("SpotNodeFaultHeld", "NvidiaDeviceLost")
	isGone := func(instance alisim.InstanceView) bool {
		return !slices.ContainsFunc(s.Cloud.Instances(), func(i alisim.InstanceView) bool { return i.ID == instance.ID })
	}
	s.eventually("one is given back", func(context.Context) (bool, error) { return slices.ContainsFunc(instances, isGone), nil })
	rig.Always(t, 20*time.Second, "the others stay as they are", func(ctx context.Context) (bool, error) {
		gone, reclaiming := 0, 0
		for _, instance := range instances {
			if isGone(instance) {
				gone++
			}
		}
		nodes, err := s.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: api.LabelReclaiming + "=true"})
		if err == nil {
			reclaiming = len(nodes.Items)
		}
		return gone == 1 && reclaiming <= 1, err
	})
}

// instanceOfPod returns the instance that the pod runs on.
func (s *jobSuite) instanceOfPod(pod corev1.Pod) string {
	s.t.Helper()
	node, err := s.Client.CoreV1().Nodes().Get(s.t.Context(), pod.Spec.NodeName, metav1.GetOptions{})
	require.NoError(s.t, err)
	return instanceOf(node)
}
