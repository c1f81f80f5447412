package reclaim

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
)

func TestNodesSayFromWhomAnAcknowledgementIsAwaited(t *testing.T) {
	begin(t, func(w *world, _ *fakeJobs) {
		awaited := func(node string) string { return w.node(node).Annotations[api.AnnotationAwaitedAcknowledgements] }
		id := w.request("on-a")
		mayEach := func(pod string, callers ...string) (entries []string) {
			for _, caller := range callers {
				entries = append(entries, caller+"="+digestOf(id), caller+"="+digestOf("default/"+pod))
			}
			return entries
		}
		host := api.CallerHost + "=" + digestOf(id)
		assert.ElementsMatch(t, mayEach("on-a", "10.1.0.1"), strings.Split(awaited("a"), ","))
		assert.ElementsMatch(t, append(mayEach("on-b", "10.1.0.2", "fd00::2"), host), strings.Split(awaited("b"), ","))
		assert.NotContains(t, awaited("b"), id, "the id is a secret between the autoscaler and the job")

		w.updatePod("on-host", succeeded)
		w.pass(time.Second)
		assert.ElementsMatch(t, mayEach("on-b", "10.1.0.2", "fd00::2"), strings.Split(awaited("b"), ","), "what has ended says no more")
		w.updatePod("on-b", func(pod *corev1.Pod) { pod.Status.PodIPs = pod.Status.PodIPs[:1] })
		w.pass(time.Second)
		assert.ElementsMatch(t, mayEach("on-b", "10.1.0.2"), strings.Split(awaited("b"), ","), "addresses change")

		w.cloud.withdraw("a")
		w.pass(time.Minute)
		for _, node := range []string{"a", "b"} {
			assert.NotContains(t, w.node(node).Annotations, api.AnnotationAwaitedAcknowledgements, "nobody waits any more")
		}
	})
}

func TestNodesAreNotToldOfJobsThatDeclareNoAcknowledgement(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 1, 2)
		w.addNode("a")
		w.runAgent("a")
		w.addPod("p", "a", of("train", jobs.RoleWorker), at("10.1.0.1"), noted(api.AnnotationAwaitCheckpoint, "false"))
		f.start() // first: a node-agent that comes together with the request has its Node written
		w.cloud.reclaim("a")
		w.pass(5 * time.Second)
		assert.Contains(t, w.pod("p").Annotations, api.AnnotationCheckpointRequest)
		assert.NotContains(t, w.node("a").Annotations, api.AnnotationAwaitedAcknowledgements)
	})
}

func TestANodeIsToldOfAcknowledgementsOnceItHasANodeAgent(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 1, 2)
		w.addNode("a")
		w.addPod("p", "a", of("train", jobs.RoleWorker), awaiting, at("10.1.0.1"))
		w.addPod("driver", "a", ownedByDaemonSet)
		w.cloud.reclaim("a")
		f.start()
		w.pass(time.Second)
		assert.NotContains(t, w.node("a").Annotations, api.AnnotationAwaitedAcknowledgements, "nobody would read it")
		w.runAgent("a")
		w.pass(time.Second)
		assert.Contains(t, w.node("a").Annotations, api.AnnotationAwaitedAcknowledgements)
	})
}

// What a leader wrote is put right by the next, wherever it was killed.
func TestTheNextLeaderPutsRightWhatNodesSay(t *testing.T) {
	begin(t, func(w *world, f *fakeJobs) {
		digest := digestOf(w.request("on-a"))
		w.stop()
		for _, node := range []string{"a", "b"} {
			w.updateNode(node, func(node *corev1.Node) {
				node.Annotations[api.AnnotationAwaitedAcknowledgements] = "10.1.0.7=" + strings.Repeat("0", digestLength)
			})
		}
		w.addNode("empty", func(node *corev1.Node) {
			node.Annotations = map[string]string{api.AnnotationAwaitedAcknowledgements: "10.1.0.7=" + digest}
		})
		f.start()
		w.pass(time.Second)
		assert.Contains(t, w.node("a").Annotations[api.AnnotationAwaitedAcknowledgements], "10.1.0.1="+digest)
		assert.NotContains(t, w.node("a").Annotations[api.AnnotationAwaitedAcknowledgements], "10.1.0.7")
		assert.Contains(t, w.node("b").Annotations[api.AnnotationAwaitedAcknowledgements], "10.1.0.2="+digest)
		assert.NotContains(t, w.node("empty").Annotations, api.AnnotationAwaitedAcknowledgements)
	})
}

// digestOf returns the digest as the node-agent computes it.
func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:digestLength]
}
