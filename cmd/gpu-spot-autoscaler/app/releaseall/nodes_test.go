package releaseall

import (
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	coretaints "k8s.io/autoscaler/cluster-autoscaler/utils/taints"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/api"
)

var now = time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC)

// nodeWith returns a Node of the instance i-<name>, with its own label, annotation and taint, and what the function adds.
func nodeWith(name string, add func(*corev1.Node)) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: "uid", Labels: map[string]string{api.LabelPurchaseOption: "spot"}, Annotations: map[string]string{"theirs": "1"},
		},
		Spec: corev1.NodeSpec{ProviderID: "cn-hangzhou.i-" + name, Taints: []corev1.Taint{{Key: "theirs", Effect: corev1.TaintEffectNoSchedule}}},
	}
	if add != nil {
		add(node)
	}
	return node
}

// reclaiming adds the marks of a reclaim.
func reclaiming(deadline time.Time) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.Labels[api.LabelReclaiming] = "true"
		for key, value := range map[string]string{
			api.AnnotationReclaimDeadline: deadline.Format(time.RFC3339), api.AnnotationReclaimSource: "ecs-poll", api.AnnotationReclaimCordoned: "true",
			api.AnnotationReclaimNoticed: now.Format(time.RFC3339), api.AnnotationNoticeAgent: deadline.Format(time.RFC3339),
			api.AnnotationAwaitedAcknowledgements: "x", api.AnnotationCheckpointAcknowledged: "y",
		} {
			node.Annotations[key] = value
		}
		node.Spec.Unschedulable = true
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: api.TaintReclaim, Effect: corev1.TaintEffectNoSchedule},
			corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
}

// reclaimingFor adds the marks of a reclaim of the source that is not over.
func reclaimingFor(source string) func(*corev1.Node) {
	return func(node *corev1.Node) {
		reclaiming(now.Add(20 * time.Minute))(node)
		node.Annotations[api.AnnotationReclaimSource] = source
	}
}

func annotated(key, value string, cordoned bool) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.Annotations[key] = value
		node.Spec.Unschedulable = cordoned
	}
}

func tainted(keys ...string) func(*corev1.Node) {
	return func(node *corev1.Node) {
		for _, key := range keys {
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
	}
}

func TestNodesKeepNothingOfTheAutoscalerAndAllThatIsOfOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		add        func(*corev1.Node)
		keeps      bool
		isCordoned bool
	}{
		"a false alarm":       {add: reclaiming(now.Add(-2 * time.Minute))},
		"a reclaim":           {add: reclaiming(now.Add(2 * time.Minute)), keeps: true},
		"a reclaim just over": {add: reclaiming(now.Add(-30 * time.Second)), keeps: true},
		"a drill":             {add: reclaimingFor("drill")},
		"a fault":             {add: reclaimingFor("fault"), isCordoned: true},
		"a fault that goes": {keeps: true, add: func(n *corev1.Node) {
			reclaimingFor("fault")(n)
			annotated(api.AnnotationRemoved, now.Format(time.RFC3339), true)(n)
		}},
		"to be given back":                 {add: annotated(api.AnnotationGiveBack, "job/default/x@"+now.Format(time.RFC3339), true)},
		"being removed":                    {add: annotated(api.AnnotationRemoved, now.Add(-time.Minute).Format(time.RFC3339), false), keeps: true},
		"whose removal came to nothing":    {add: annotated(api.AnnotationRemoved, now.Add(-time.Hour).Format(time.RFC3339), false)},
		"with a notice that was withdrawn": {add: annotated(api.AnnotationReclaimCancelled, now.Format(time.RFC3339), false)},
		"cordoned by somebody":             {add: annotated(api.AnnotationReclaimCancelled, now.Format(time.RFC3339), true), isCordoned: true},
		"of our scale-down":                {add: tainted(coretaints.ToBeDeletedTaint, coretaints.DeletionCandidateTaint)},
		"of the scale-down of another autoscaler": {keeps: true, add: func(n *corev1.Node) {
			tainted(coretaints.ToBeDeletedTaint)(n)
			n.Spec.ProviderID = "cn-hangzhou.i-other"
		}},
		"of no instance, with a scale-down's taint": {keeps: true, add: func(n *corev1.Node) {
			tainted(coretaints.ToBeDeletedTaint)(n)
			n.Spec.ProviderID = ""
		}},
	} {
		t.Run(name, func(t *testing.T) {
			node := nodeWith("a", tc.add)
			want := node.DeepCopy()
			if !tc.keeps {
				want = nodeWith("a", nil)
				want.Spec.Unschedulable = tc.isCordoned
			}
			client := fake.NewClientset(node)
			for range 2 {
				r := newNodeReleaser(t, client)
				require.NoError(t, r.unmarkNodes(t.Context(), sets.New("i-a")))
				assert.Empty(t, r.report.Faults)
				is, err := client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
				require.NoError(t, err)
				assert.Equal(t, want, is)
			}
		})
	}
}

func newNodeReleaser(t *testing.T, client *fake.Clientset) *releaser {
	t.Helper()
	r, err := newReleaser(t.Context(), flags{}, clients{kube: client, objects: noObjects(), metadata: noMetadata()}, clocktesting.NewFakeClock(now), io.Discard)
	require.NoError(t, err)
	return r
}

func TestNodesWithMarksAreNamedAndOthersAreNotWritten(t *testing.T) {
	client := fake.NewClientset(nodeWith("a", reclaiming(now.Add(time.Minute))), nodeWith("b", nil), nodeWith("c", reclaiming(now.Add(-time.Hour))),
		nodeWith("d", annotated(api.AnnotationGiveBack, "x@y", true)), nodeWith("e", tainted(coretaints.DeletionCandidateTaint)),
		nodeWith("f", tainted(coretaints.DeletionCandidateTaint)))
	r := newNodeReleaser(t, client)
	require.NoError(t, r.unmarkNodes(t.Context(), sets.New("i-e")))
	slices.SortFunc(r.report.Nodes, func(a, b Node) int { return int(a.Name[0]) - int(b.Name[0]) })
	assert.Equal(t, []Node{
		{Name: "a", Marks: []string{"reclaim"}, Leaving: true}, {Name: "c", Marks: []string{"reclaim"}}, {Name: "d", Marks: []string{"give-back"}},
		{Name: "e", Marks: []string{"scale-down"}},
	}, r.report.Nodes)
	patches := 0
	for _, action := range client.Actions() {
		if action.GetVerb() == "patch" {
			patches++
		}
	}
	assert.Equal(t, 3, patches)
}
