package processors

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/autoscaler/cluster-autoscaler/processors/pods"
	"k8s.io/utils/ptr"
)

func ownedBy(kind string) podOption {
	return func(pod *apiv1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "owner", Controller: ptr.To(true)}}
	}
}

func inPhase(phase apiv1.PodPhase) podOption {
	return func(pod *apiv1.Pod) { pod.Status.Phase = phase }
}

func leaving(pod *apiv1.Pod) { pod.DeletionTimestamp = ptr.To(metav1.NewTime(epoch)) }

func TestEvacuees(t *testing.T) {
	running := inPhase(apiv1.PodRunning)
	for name, test := range map[string]struct {
		pod  *apiv1.Pod
		want bool
	}{
		"a worker on a doomed node counts as pending": {newPod("pod", onNode("doomed"), running, ownedBy("TrainingJob")), true},
		"also one that has not started":               {newPod("pod", onNode("doomed"), ownedBy("Job")), true},
		"one on another node does not":                {newPod("pod", onNode("sound"), running, ownedBy("Job")), false},
		"but one that is on its way out does":         {newPod("pod", onNode("doomed"), running, ownedBy("Job"), leaving), true},
		"nor one that has ended":                      {newPod("pod", onNode("doomed"), inPhase(apiv1.PodSucceeded), ownedBy("Job")), false},
		"nor one that nobody will make anew":          {newPod("pod", onNode("doomed"), running), false},
		"nor one that belongs to the machine":         {newPod("pod", onNode("doomed"), running, ownedBy("DaemonSet")), false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, _, _ := newContext([]*apiv1.Pod{test.pod}, []*apiv1.Node{newNode("doomed"), newNode("sound")})
			e := NewEvacuees(pods.NewDefaultPodListProcessor(), func(node *apiv1.Node) bool { return node.Name == "doomed" })
			got, err := e.Process(ctx, newPods(1, "pending"))
			require.NoError(t, err)
			want := []string{"pending-0"}
			if test.want {
				want = append(want, "pod")
			}
			assert.Equal(t, want, names(got))
			for _, pod := range got {
				assert.Empty(t, pod.Spec.NodeName)
			}
		})
	}
}

func TestEvacueesThatHaveTheirSuccessorDoNotCount(t *testing.T) {
	later := func(pod *apiv1.Pod) { pod.CreationTimestamp = metav1.NewTime(epoch.Add(time.Minute)) }
	told := func(pod *apiv1.Pod) { // half a minute after all pods were made, with grace until a minute after
		pod.DeletionTimestamp = ptr.To(metav1.NewTime(epoch.Add(time.Minute)))
		pod.DeletionGracePeriodSeconds = ptr.To[int64](30)
	}
	owned := ownedBy("ReplicaSet")
	all := []*apiv1.Pod{
		newPod("going-1", onNode("doomed"), owned, told), newPod("going-2", onNode("doomed"), owned, told),
		newPod("going-3", onNode("doomed"), owned, told), newPod("stays", onNode("sound"), owned),
		newPod("moved", onNode("sound"), owned, later), newPod("waits", owned, later),
	}
	ctx, _, _ := newContext(all, []*apiv1.Node{newNode("doomed"), newNode("sound")})
	e := NewEvacuees(pods.NewDefaultPodListProcessor(), func(node *apiv1.Node) bool { return node.Name == "doomed" })
	got, err := e.Process(ctx, all[5:])
	require.NoError(t, err)
	assert.Equal(t, []string{"waits", "going-3"}, names(got), "one of three has no successor yet")
	assert.Nil(t, got[1].DeletionTimestamp)
	assert.NotNil(t, all[2].DeletionTimestamp, "the lister's own is left alone")
}
