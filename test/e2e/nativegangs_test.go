package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/test/cluster"
	"gpu-spot-autoscaler/test/rig"
)

// podGroupDefinition defines the PodGroup of a scheduler, with those fields of its spec that tests write. The schemas are those of
// config/crd/volcano/bases in volcano.sh/volcano, config/crd/bases in sigs.k8s.io/scheduler-plugins, and config/crd/bases in
// github.com/koordinator-sh/koordinator.
func podGroupDefinition(group, version string) string {
	return fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: podgroups.%[1]s
  annotations: {api-approved.kubernetes.io: "https://github.com/kubernetes-sigs/scheduler-plugins/pull/52"}
spec:
  group: %[1]s
  names: {kind: PodGroup, listKind: PodGroupList, plural: podgroups, singular: podgroup}
  scope: Namespaced
  versions:
    - name: %[2]s
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {minMember: {type: integer, format: int32}}}}}}
---
apiVersion: %[1]s/%[2]s
kind: PodGroup
metadata: {name: train}
spec: {minMember: 3}
---
`, group, version)
}

// The schedulers of these gangs do not run here: pods are bound as soon as they fit, so that all that waits is the purchase. Each gang has a
// pool of its own, whose nodes the pods of the others may not take.
func TestGangsOfOtherSchedulersAreBoughtAsAWholeOnTheirFirstStart(t *testing.T) {
	s := newSuite(t, newWorld(jobPool("gang0"), jobPool("gang1"), jobPool("gang2"), jobPool("alone")))
	gangs := []struct {
		group, version string
		name           func(*corev1.Pod)
	}{
		{"scheduling.volcano.sh", "v1beta1", func(pod *corev1.Pod) { pod.Annotations = map[string]string{"scheduling.k8s.io/group-name": "train"} }},
		{"scheduling.x-k8s.io", "v1alpha1", func(pod *corev1.Pod) { pod.Labels["scheduling.x-k8s.io/pod-group"] = "train" }},
		{"scheduling.sigs.k8s.io", "v1alpha1", func(pod *corev1.Pod) { pod.Labels["pod-group.scheduling.sigs.k8s.io"] = "train" }},
	}
	var definitions strings.Builder
	for _, gang := range gangs {
		definitions.WriteString(podGroupDefinition(gang.group, gang.version))
	}
	require.NoError(t, s.Cluster.ApplyYAML(t.Context(), strings.NewReader(definitions.String())))
	s.RunAutoscaler(t)
	member := func(gang, i int) *corev1.Pod {
		pod := rig.GPUPod(fmt.Sprintf("gang%d-%d", gang, i), 1)
		gangs[gang].name(pod)
		pod.Spec.NodeSelector = map[string]string{"pool": fmt.Sprint("gang", gang)}
		return pod
	}
	for gang := range gangs {
		s.Submit(t, member(gang, 0), member(gang, 1))
	}
	// A pod of no gang, which comes last, shows that the others were looked at.
	alone := rig.GPUPod("alone", 1)
	alone.Spec.NodeSelector = map[string]string{"pool": "alone"}
	s.Submit(t, alone)
	s.awaitRunning(alone)
	rig.Always(t, 5*time.Second, "nothing is bought for gangs that are not complete", func(context.Context) (bool, error) {
		return len(s.requests("ScaleWithAdjustment")) == 1, nil
	})
	for gang := range gangs {
		s.Submit(t, member(gang, 2))
		s.awaitRunning(member(gang, 0), member(gang, 1), member(gang, 2))
		assert.Len(t, s.instances(fmt.Sprint("asg-gang", gang)), 3, gangs[gang].group)
		assert.Len(t, s.requests("ScaleWithAdjustment"), gang+2, "%s: all of it is bought at once", gangs[gang].group)
	}
}

// indexedJob returns a parallel Job of which each index wants a GPU.
func indexedJob(name string, pods int32) *batchv1.Job {
	spec := rig.GPUPod(name, 1).Spec
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: batchv1.JobSpec{
			Parallelism: &pods, Completions: &pods, CompletionMode: ptr.To(batchv1.IndexedCompletion),
			Template: corev1.PodTemplateSpec{Spec: spec},
		},
	}
}

func (s *suite) submitJob(job *batchv1.Job) {
	s.t.Helper()
	_, err := s.Client.BatchV1().Jobs(job.Namespace).Create(s.t.Context(), job, metav1.CreateOptions{})
	require.NoError(s.t, err)
}

func (s *suite) awaitReadyPods(job string, count int32) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%d pods of job %s are ready", count, job), func(ctx context.Context) (bool, error) {
		got, err := s.Client.BatchV1().Jobs(metav1.NamespaceDefault).Get(ctx, job, metav1.GetOptions{})
		return err == nil && ptr.Deref(got.Status.Ready, 0) == count, err
	})
}

// hasPodGroups returns whether the Kubernetes of the tests can be told to have PodGroups, in the version that this build knows.
func hasPodGroups() bool { return strings.HasPrefix(cluster.Version(), "1.36.") }

func TestAGangOfKubernetesIsBoughtAsAWholeOnItsFirstStart(t *testing.T) {
	if !hasPodGroups() {
		t.Skip("Kubernetes", cluster.Version(), "has no PodGroups that this build knows")
	}
	s := newSuiteWith(t, rig.Options{World: newWorld(singleOfferingPool("asg-1", 3)), Workloads: true})
	s.RunAutoscaler(t)
	s.submitJob(indexedJob("large", 4))
	s.awaitEvent("SpotGangDoesNotFit", "large")
	assert.Empty(t, s.requests("ScaleWithAdjustment"), "three of four pods would wait for the fourth")

	s.submitJob(indexedJob("small", 3))
	s.awaitReadyPods("small", 3)
	assert.Len(t, s.instances("asg-1"), 3)
	assert.Len(t, s.requests("ScaleWithAdjustment"), 1)
}

// A sweep has as many indexes as it likes: its pods work on their own, and Kubernetes makes no gang of them without being asked to.
func TestPodsOfAnIndexedJobThatNobodyDeclaredAGangAreBoughtOneByOne(t *testing.T) {
	s := newSuite(t, newWorld(singleOfferingPool("asg-1", 2)))
	s.RunAutoscaler(t)
	s.submitJob(indexedJob("sweep", 4))
	s.awaitReadyPods("sweep", 2)
	assert.Len(t, s.instances("asg-1"), 2)
}
