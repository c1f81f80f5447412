package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"gpu-spot-autoscaler/test/cluster"
	"gpu-spot-autoscaler/test/rig"
)

// elsewhere is what the policy adds.
var elsewhere = corev1.NodeSelectorRequirement{Key: "gpu-spot.autoscaling/reclaiming", Operator: corev1.NodeSelectorOpDoesNotExist}

func TestPodThatToleratesEverythingStaysOffAReclaimingNodeIfItAsksForThat(t *testing.T) {
	s := newSuite(t, newWorld(spotPool("asg-1", 10)))
	installKeepOffPolicy(s)
	autoscaler := s.RunAutoscaler(t)
	first := rig.GPUPod("first", 1)
	s.Submit(t, first)
	s.awaitRunning(first)
	autoscaler.Kill() // or it would evict who comes, and buy for who cannot
	node := nodeOfPod(s, first.Name)
	node.Labels["gpu-spot.autoscaling/reclaiming"] = "true"
	node.Spec.Unschedulable = true
	_, err := s.Client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
	require.NoError(t, err)
	s.deletePods(first)

	stubborn, careful := rig.GPUPod("stubborn", 1), rig.GPUPod("careful", 1)
	for _, pod := range []*corev1.Pod{stubborn, careful} {
		pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	careful.Labels[keepOff] = "true"
	s.Submit(t, careful)
	s.eventually("the scheduler has looked at the careful pod", func(ctx context.Context) (bool, error) {
		pod, err := s.pod(ctx, careful.Name)
		return pod != nil && len(pod.Status.Conditions) > 0 && pod.Status.Conditions[0].Reason == corev1.PodReasonUnschedulable, err
	})
	s.Submit(t, stubborn)
	s.awaitRunning(stubborn)
	assert.Equal(t, node.Name, nodeOfPod(s, stubborn.Name).Name, "there is room, and without the policy it is taken")
}

func TestPolicyKeepsWhatAPodAskedForAndLeavesOthersAlone(t *testing.T) {
	s := newSuite(t, newWorld())
	installKeepOffPolicy(s)
	_, err := s.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "careful", Labels: map[string]string{keepOff: "true"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	inNamespace := rig.GPUPod("probe", 1)
	inNamespace.Namespace = "careful"
	awaitPolicyInForce(s, inNamespace)
	gpu := corev1.NodeSelectorRequirement{Key: "aliyun.accelerator/nvidia_name", Operator: corev1.NodeSelectorOpExists}
	name := corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n"}}
	preferred := []corev1.PreferredSchedulingTerm{{Weight: 1, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{gpu}}}}
	required := func(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}}
	}
	expressions := func(all ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: all}
	}
	for what, c := range map[string]struct {
		namespace, label string
		owner            string
		asked, want      *corev1.Affinity
	}{
		"without affinity":         {label: "true", want: required(expressions(elsewhere))},
		"with affinity to pods":    {label: "true", asked: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}, want: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}, NodeAffinity: required(expressions(elsewhere)).NodeAffinity}},
		"with preferences":         {label: "true", asked: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: preferred}}, want: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: preferred, RequiredDuringSchedulingIgnoredDuringExecution: required(expressions(elsewhere)).NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution}}},
		"with alternatives":        {label: "true", asked: required(expressions(gpu), corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{name}}, corev1.NodeSelectorTerm{}), want: required(expressions(gpu, elsewhere), corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{elsewhere}, MatchFields: []corev1.NodeSelectorRequirement{name}}, corev1.NodeSelectorTerm{})},
		"that says so itself":      {label: "true", asked: required(expressions(elsewhere, gpu)), want: required(expressions(elsewhere, gpu))},
		"of a DaemonSet":           {label: "true", owner: "DaemonSet"},
		"of a ReplicaSet":          {label: "true", owner: "ReplicaSet", want: required(expressions(elsewhere))},
		"without the label":        {asked: required(expressions(gpu)), want: required(expressions(gpu))},
		"in a namespace with it":   {namespace: "careful", want: required(expressions(elsewhere))},
		"that will not be told so": {namespace: "careful", label: "false"},
		"that is told twice":       {namespace: "careful", label: "true", want: required(expressions(elsewhere))},
	} {
		pod := rig.GPUPod("any", 1)
		if c.namespace != "" {
			pod.Namespace = c.namespace
		}
		if c.label != "" {
			pod.Labels[keepOff] = c.label
		}
		if c.owner != "" {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: c.owner, Name: "x", UID: "u"}}
		}
		pod.Spec.Affinity = c.asked
		got, err := s.Client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if assert.NoError(t, err, what) {
			assert.Equal(t, c.want, got.Spec.Affinity, "a pod %s", what)
		}
	}
}

// installKeepOffPolicy applies the shipped manifest, in the API version that docs/install.md names for the cluster's Kubernetes,
// and waits until the API server has taken notice of it for pods with the label.
func installKeepOffPolicy(s *suite) {
	s.t.Helper()
	manifest, err := os.ReadFile(filepath.Join("..", "..", keepOffInstall))
	require.NoError(s.t, err)
	served := "v1"
	switch kubernetes := version.MustParseGeneric(cluster.Version()); {
	case kubernetes.LessThan(version.MajorMinor(1, 34)):
		served = "v1alpha1"
	case kubernetes.LessThan(version.MajorMinor(1, 36)):
		served = "v1beta1"
	}
	const apiVersion = "apiVersion: admissionregistration.k8s.io/"
	changed := strings.ReplaceAll(string(manifest), apiVersion+"v1\n", apiVersion+served+"\n")
	require.NoError(s.t, s.Cluster.ApplyYAML(s.t.Context(), strings.NewReader(changed)))
	labelled := rig.GPUPod("probe", 1)
	labelled.Labels[keepOff] = "true"
	awaitPolicyInForce(s, labelled)
}

// awaitPolicyInForce waits until the API server goes by the policy for pods like this one: each of its bindings may take a
// moment of its own.
func awaitPolicyInForce(s *suite, pod *corev1.Pod) {
	s.t.Helper()
	rig.Eventually(s.t, time.Minute, "the admission policy is in force", func(ctx context.Context) (bool, error) {
		got, err := s.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && got.Spec.Affinity != nil, err
	})
}
