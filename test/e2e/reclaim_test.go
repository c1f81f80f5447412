package e2e

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/test/rig"
)

func TestReclaimedNodeIsTaintedAndEmptiedBeforeTheDeadlineAndItsPodsMove(t *testing.T) {
	s := newSuite(t, newWorld(spotPool("asg-1", 10)))
	s.RunAutoscaler(t, "--reclaim-notice-period=40s", "--reclaim-poll-interval=1s")
	deployGPUPods(s, "train", 2)
	var pods []corev1.Pod
	s.eventually("both replicas run", func(ctx context.Context) (bool, error) {
		var err error
		pods, err = runningReplicas(ctx, s, "train")
		return len(pods) == 2, err
	})
	reclaiming := s.instances("asg-1")[0].ID
	require.NoError(t, s.Cloud.Reclaim(reclaiming))
	deadline := time.Now().Add(40 * time.Second)
	s.eventually("its Node is marked", func(ctx context.Context) (bool, error) {
		node, err := s.node(ctx, reclaiming)
		return node != nil && marked(node), err
	})
	s.eventually("its Node is empty", func(ctx context.Context) (bool, error) {
		node, err := s.node(ctx, reclaiming)
		if node == nil || err != nil {
			return false, err
		}
		pods, err := s.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node.Name})
		return err == nil && len(pods.Items) == 0, err
	})
	assert.True(t, time.Now().Before(deadline))
	s.eventually("both replicas run again, elsewhere", func(ctx context.Context) (bool, error) {
		pods, err := runningReplicas(ctx, s, "train")
		if err != nil || len(pods) != 2 {
			return false, err
		}
		node, err := s.node(ctx, reclaiming)
		return node == nil || pods[0].Spec.NodeName != node.Name && pods[1].Spec.NodeName != node.Name, err
	})
	s.eventually("the released instance's Node is gone", func(ctx context.Context) (bool, error) {
		node, err := s.node(ctx, reclaiming)
		return node == nil, err
	})
	bought := 0
	for _, request := range s.requests("ScaleWithAdjustment") {
		n, err := strconv.Atoi(request.Parameters["AdjustmentValue"])
		require.NoError(t, err)
		bought += n
	}
	assert.Equal(t, 3, bought, "two, and one replacement for one reclaim")
}

func TestPodThatNoEvictionMovesIsDeletedBeforeItsNodeGoes(t *testing.T) {
	s := newSuite(t, newWorld(spotPool("asg-1", 10)))
	s.RunAutoscaler(t, "--reclaim-notice-period=40s", "--reclaim-poll-interval=1s")
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "train"}, Spec: policyv1.PodDisruptionBudgetSpec{
		Selector: metav1.SetAsLabelSelector(map[string]string{"app": "train"}), MinAvailable: ptr.To(intstr.FromInt32(1)),
	}}
	_, err := s.Client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault).Create(t.Context(), budget, metav1.CreateOptions{})
	require.NoError(t, err)
	pod := rig.GPUPod("train", 1)
	s.Submit(t, pod)
	s.awaitRunning(pod)
	deadline := time.Now().Add(40 * time.Second)
	require.NoError(t, s.Cloud.Reclaim(s.instances("asg-1")[0].ID))
	s.eventually("the pod is gone", func(ctx context.Context) (bool, error) {
		pod, err := s.pod(ctx, pod.Name)
		return pod == nil, err
	})
	assert.True(t, time.Now().Before(deadline))
	s.awaitEvent("SpotReclaimDeleted")
}

func marked(node *corev1.Node) bool {
	tainted := false
	for _, taint := range node.Spec.Taints {
		tainted = tainted || taint.Key == "status-taint.cluster-autoscaler.kubernetes.io/spot-reclaim" && taint.Effect == corev1.TaintEffectNoSchedule
	}
	_, err := time.Parse(time.RFC3339, node.Annotations["gpu-spot.autoscaling/reclaim-deadline"])
	return tainted && err == nil && node.Spec.Unschedulable && node.Labels["gpu-spot.autoscaling/reclaiming"] == "true"
}

// deployGPUPods keeps n replicas of a GPU pod.
func deployGPUPods(s *suite, name string, n int32) {
	s.t.Helper()
	createDeployment(s, n, rig.GPUPod(name, 1))
}

// createDeployment has a Deployment keep n replicas of the pod.
func createDeployment(s *suite, n int32, pod *corev1.Pod) {
	s.t.Helper()
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	_, err := s.Client.AppsV1().Deployments(metav1.NamespaceDefault).Create(s.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n,
			Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec},
		},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
}

// runningReplicas are the pods of the app that run.
func runningReplicas(ctx context.Context, s *suite, name string) ([]corev1.Pod, error) {
	list, err := s.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil {
		return nil, err
	}
	var running []corev1.Pod
	for _, pod := range list.Items {
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			running = append(running, pod)
		}
	}
	return running, nil
}
