package trim

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
)

func gpus(n string) apiv1.ResourceRequirements {
	return apiv1.ResourceRequirements{Requests: apiv1.ResourceList{"nvidia.com/gpu": resource.MustParse(n)}}
}

func TestTrimmedPodThatWasAskedForACheckpointKeepsItsAddresses(t *testing.T) {
	pod := &apiv1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{api.AnnotationCheckpointRequest: "1-a"}},
		Status:     apiv1.PodStatus{PodIPs: []apiv1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}},
	}
	for range 2 {
		trimPod(pod)
		assert.Equal(t, []apiv1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}, pod.Status.PodIPs)
	}
	delete(pod.Annotations, api.AnnotationCheckpointRequest)
	trimPod(pod)
	assert.Empty(t, pod.Status.PodIPs, "a hundred thousand others have some too")
}

// isDoneTraining in cloudprovider/reclaim/handshake reads it.
func TestTrimmedPodThatWasAskedForACheckpointKeepsWhenItsContainersEnded(t *testing.T) {
	ended := apiv1.ContainerState{Terminated: &apiv1.ContainerStateTerminated{FinishedAt: metav1.Unix(100, 0)}}
	pod := &apiv1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{api.AnnotationCheckpointRequest: "1-a"}},
		Status: apiv1.PodStatus{ContainerStatuses: []apiv1.ContainerStatus{
			{Name: "runs", ImageID: "i", State: apiv1.ContainerState{Running: &apiv1.ContainerStateRunning{}}},
			{Name: "restarted", ImageID: "i", LastTerminationState: *ended.DeepCopy()},
			{Name: "ended", ImageID: "i", State: apiv1.ContainerState{Terminated: &apiv1.ContainerStateTerminated{FinishedAt: metav1.Unix(100, 0), Message: "long"}}},
		}},
	}
	for range 2 {
		trimPod(pod)
		assert.Equal(t, []apiv1.ContainerStatus{{Name: "restarted", LastTerminationState: ended}, {Name: "ended", State: ended}}, pod.Status.ContainerStatuses)
	}
	delete(pod.Annotations, api.AnnotationCheckpointRequest)
	trimPod(pod)
	assert.Empty(t, pod.Status.ContainerStatuses)
}

// Package progress and spotfirst read it.
func TestTrimmedPodThatStatesItsWorkKeepsWhenItsContainersWereStarted(t *testing.T) {
	running := apiv1.ContainerState{Running: &apiv1.ContainerStateRunning{StartedAt: metav1.Unix(50, 0)}}
	pod := &apiv1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{api.AnnotationWork: "24h", api.AnnotationCheckpointRequest: "1-a"}},
		Status: apiv1.PodStatus{ContainerStatuses: []apiv1.ContainerStatus{
			{Name: "runs", ImageID: "i", State: *running.DeepCopy()},
			{Name: "ended", ImageID: "i", State: apiv1.ContainerState{Terminated: &apiv1.ContainerStateTerminated{StartedAt: metav1.Unix(50, 0), FinishedAt: metav1.Unix(100, 0), Message: "long"}}},
		}},
	}
	ended := apiv1.ContainerState{Terminated: &apiv1.ContainerStateTerminated{StartedAt: metav1.Unix(50, 0), FinishedAt: metav1.Unix(100, 0)}}
	for range 2 {
		trimPod(pod)
		assert.Equal(t, []apiv1.ContainerStatus{{Name: "runs", State: running}, {Name: "ended", State: ended}}, pod.Status.ContainerStatuses)
	}
	delete(pod.Annotations, api.AnnotationCheckpointRequest)
	trimPod(pod)
	assert.Equal(t, []apiv1.ContainerStatus{{Name: "runs", State: running}}, pod.Status.ContainerStatuses)
}

func TestTrimmedPodKeepsWhatDecidesWhereItGoes(t *testing.T) {
	always := apiv1.ContainerRestartPolicyAlways
	affinity := &apiv1.Affinity{NodeAffinity: &apiv1.NodeAffinity{}}
	pod := &apiv1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", Labels: map[string]string{"app": "a"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
			Annotations: map[string]string{apiv1.LastAppliedConfigAnnotation: "{}", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
		},
		Spec: apiv1.PodSpec{
			NodeName: "n", NodeSelector: map[string]string{"gpu": "a10"}, Affinity: affinity,
			Tolerations: []apiv1.Toleration{{Key: "t"}}, Priority: ptr.To[int32](7), SchedulerName: "s",
			ImagePullSecrets: []apiv1.LocalObjectReference{{Name: "s"}},
			InitContainers:   []apiv1.Container{{Name: "sidecar", Image: "i", RestartPolicy: &always, Resources: gpus("1")}},
			Containers: []apiv1.Container{{
				Name: "c", Image: "i", Env: []apiv1.EnvVar{{Name: "E"}}, Resources: gpus("2"), LivenessProbe: &apiv1.Probe{},
				Ports: []apiv1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 81, HostPort: 81}},
			}},
			Volumes: []apiv1.Volume{
				{Name: "token", VolumeSource: apiv1.VolumeSource{Projected: &apiv1.ProjectedVolumeSource{}}},
				{Name: "scratch", VolumeSource: apiv1.VolumeSource{EmptyDir: &apiv1.EmptyDirVolumeSource{}}},
				{Name: "data", VolumeSource: apiv1.VolumeSource{PersistentVolumeClaim: &apiv1.PersistentVolumeClaimVolumeSource{ClaimName: "d"}}},
			},
		},
		Status: apiv1.PodStatus{
			Phase: apiv1.PodRunning, PodIP: "10.0.0.1", NominatedNodeName: "n",
			Conditions: []apiv1.PodCondition{
				{Type: apiv1.PodReady, Status: apiv1.ConditionTrue}, {Type: apiv1.ContainersReady, Status: apiv1.ConditionFalse},
				{Type: apiv1.DisruptionTarget, Status: apiv1.ConditionTrue},
			},
			ContainerStatuses: []apiv1.ContainerStatus{{Name: "c", ImageID: "i", Resources: ptr.To(gpus("2"))}},
		},
	}
	want := &apiv1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", Labels: map[string]string{"app": "a"},
			Annotations: map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
		},
		Spec: apiv1.PodSpec{
			NodeName: "n", NodeSelector: map[string]string{"gpu": "a10"}, Affinity: affinity,
			Tolerations: []apiv1.Toleration{{Key: "t"}}, Priority: ptr.To[int32](7), SchedulerName: "s",
			InitContainers: []apiv1.Container{{Name: "sidecar", RestartPolicy: &always, Resources: gpus("1")}},
			Containers:     []apiv1.Container{{Name: "c", Resources: gpus("2"), Ports: []apiv1.ContainerPort{{ContainerPort: 81, HostPort: 81}}}},
			Volumes: []apiv1.Volume{
				{Name: "scratch", VolumeSource: apiv1.VolumeSource{EmptyDir: &apiv1.EmptyDirVolumeSource{}}},
				{Name: "data", VolumeSource: apiv1.VolumeSource{PersistentVolumeClaim: &apiv1.PersistentVolumeClaimVolumeSource{ClaimName: "d"}}},
			},
		},
		Status: apiv1.PodStatus{
			Phase: apiv1.PodRunning, NominatedNodeName: "n",
			Conditions: []apiv1.PodCondition{
				{Type: apiv1.ContainersReady, Status: apiv1.ConditionFalse}, {Type: apiv1.DisruptionTarget, Status: apiv1.ConditionTrue},
			},
		},
	}
	trim := New()
	for range 2 { // an informer may hand its objects through again
		trimmed, err := trim(pod)
		require.NoError(t, err)
		assert.Equal(t, want, trimmed)
	}
}

func TestTrimmedPodKeepsWhatAContainerHoldsWhileItIsResized(t *testing.T) {
	pod := &apiv1.Pod{
		Spec:   apiv1.PodSpec{Containers: []apiv1.Container{{Name: "c", Resources: gpus("1")}}},
		Status: apiv1.PodStatus{ContainerStatuses: []apiv1.ContainerStatus{{Name: "c", ImageID: "i", Resources: ptr.To(gpus("2"))}}},
	}
	trimPod(pod)
	assert.Equal(t, []apiv1.ContainerStatus{{Name: "c", Resources: ptr.To(gpus("2"))}}, pod.Status.ContainerStatuses)
}

func TestTrimLeavesOtherObjectsAlone(t *testing.T) {
	trim := New()
	node := &apiv1.Node{Status: apiv1.NodeStatus{Images: []apiv1.ContainerImage{{SizeBytes: 1}}, Phase: apiv1.NodeRunning}}
	trimmed, err := trim(node)
	require.NoError(t, err)
	assert.Equal(t, &apiv1.Node{Status: apiv1.NodeStatus{Phase: apiv1.NodeRunning}}, trimmed)
	tombstone := "not an object"
	trimmed, err = trim(tombstone)
	require.NoError(t, err)
	assert.Equal(t, tombstone, trimmed)
}

func TestPodsAreListedInPagesAndTrimmed(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		options := action.(clienttesting.ListActionImpl).ListOptions
		assert.NotEqual(t, "0", options.ResourceVersion)
		assert.Positive(t, options.Limit)
		list := &apiv1.PodList{}
		page := 1
		fmt.Sscanf(options.Continue, "%d", &page) // the first page has none
		for i := range 2 {
			list.Items = append(list.Items, apiv1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("p-%d-%d", page, i)},
				Spec:       apiv1.PodSpec{Containers: []apiv1.Container{{Name: "c", Image: "i"}}},
			})
		}
		if page < 3 {
			list.Continue = fmt.Sprint(page + 1)
		}
		return true, list, nil
	})
	trim := New()
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(trim))
	WatchPods(factory, trim)
	lister := factory.Core().V1().Pods().Lister()
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	pods, err := lister.Pods("default").List(labels.Everything())
	require.NoError(t, err)
	assert.Len(t, pods, 6)
	for _, pod := range pods {
		assert.Empty(t, pod.Spec.Containers[0].Image, pod.Name)
	}
}
