package reclaim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// alone is a pod of the job that has work of its own.
func alone(pod *corev1.Pod) { pod.Labels[labelUnit] = pod.Name }

// inUnit is a pod that has its work in common with those of its unit, and not with the others of its job.
func inUnit(name string) func(pod *corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels[labelUnit] = name }
}

func TestTheUnitOfALostPodIsAskedAndLeavesAndNoOther(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("serve", 0, 4)
		for _, name := range []string{"a-worker", "a-host", "b-worker", "b-host"} {
			unit, role, _ := strings.Cut(name, "-")
			w.addNode(name)
			w.addPod(name, name, of("serve", jobs.Role(role)), inUnit(unit), awaiting)
		}
		w.cloud.reclaim("a-worker", "a-host")
		f.start()
		w.pass(10 * time.Second)
		require.NotEmpty(t, w.request("a-worker"))
		require.Equal(t, w.request("a-worker"), w.request("a-host"))
		require.Empty(t, w.request("b-worker")+w.request("b-host"), "they lose nothing")
		w.say("a-host")
		w.pass(5 * time.Second)
		assert.Equal(t, []string{"a-worker", "a-host"}, w.gone(), "either speaks for both, and the host goes last")
		assert.Empty(t, f.called(), "the others go on")
	})
}

func TestTheAcknowledgementOfAPodThatIsOnItsOwnIsNoOther(t *testing.T) {
	for name, acknowledge := range map[string]func(w *world){
		"by the pod":             func(w *world) { w.say("on-a") },
		"through its Node":       func(w *world) { w.updateNode("a", onNode(w.request("on-a")+"@10.1.0.1")) },
		"by its name, on Node a": func(w *world) { w.updateNode("a", onNode(fmt.Sprintf("default/on-a@%d@10.1.0.1", time.Now().Unix()))) },
	} {
		t.Run(name, func(t *testing.T) {
			withJobs(t, func(w *world, f *fakeJobs) {
				f.add("sweep", 0, 3)
				for i, node := range []string{"a", "b", "c"} {
					w.addNode(node)
					w.addPod("on-"+node, node, of("sweep", jobs.RoleWorker), alone, awaiting, at(fmt.Sprint("10.1.0.", i+1)))
				}
				w.addPod("beside-a", "a", of("sweep", jobs.RoleWorker), alone, awaiting, at("10.1.0.9"))
				w.cloud.reclaim("a", "b")
				f.start()
				w.pass(10 * time.Second)
				require.Empty(t, w.gone())
				require.NotEqual(t, w.request("on-a"), w.request("on-b"), "each is asked by itself")
				require.Empty(t, w.request("on-c"), "it loses nothing")
				acknowledge(w)
				w.pass(20 * time.Second)
				assert.Equal(t, []string{"on-a"}, w.gone(), "the others have saved nothing, and minutes are left")
				assert.Empty(t, f.called())
				w.say("on-b")
				w.pass(time.Second)
				assert.Equal(t, []string{"on-a", "on-b"}, w.gone())
				w.pass(4 * time.Minute)
				assert.Equal(t, []string{"on-a", "on-b", "beside-a"}, w.gone(), "in time, without an acknowledgement")
			})
		})
	}
}

func TestAPodThatIsOnItsOwnWaitsForNobodysGrace(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("sweep", 0, 2)
		w.addNode("a")
		w.addNode("b")
		w.addPod("slow", "a", of("sweep", jobs.RoleWorker), alone, awaiting, grace(2*time.Minute))
		w.addPod("quick", "b", of("sweep", jobs.RoleWorker), alone, awaiting, grace(10*time.Second))
		w.cloud.reclaim("a", "b")
		f.start()
		w.pass(170 * time.Second)
		assert.Equal(t, []string{"slow"}, w.gone(), "the other still has time to save its work")
	})
}

func TestPodsThatAreOnTheirOwnAreSuspendedWhereTheirJobWantsMoreOfThem(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("sweep", 2, 3)
		w.gang("sweep", jobs.RoleWorker, 3)
		for _, pod := range []string{"sweep-worker-0", "sweep-worker-1", "sweep-worker-2"} {
			w.updatePod(pod, alone)
		}
		w.cloud.reclaim("sweep-worker-0")
		f.start()
		w.pass(time.Minute)
		require.Empty(t, f.called(), "two are left")
		w.cloud.reclaim("sweep-worker-1")
		w.poll()
		w.pass(time.Second)
		assert.Equal(t, []string{"suspend sweep"}, f.called())
	})
}

func TestAPodThatIsOnItsOwnIsGivenItsPeaceAgain(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("sweep", 0, 2)
		w.addNode("a")
		w.addPod("on-a", "a", of("sweep", jobs.RoleWorker), alone, awaiting)
		w.cloud.reclaim("a")
		f.start()
		w.pass(5 * time.Second)
		require.NotEmpty(t, w.request("on-a"))
		w.cloud.withdraw("a")
		w.pass(time.Minute)
		assert.Empty(t, w.request("on-a"))
		assert.Empty(t, w.gone())
	})
}

func onNode(entry string) func(*corev1.Node) {
	return func(node *corev1.Node) { node.Annotations[api.AnnotationCheckpointAcknowledged] = entry }
}
