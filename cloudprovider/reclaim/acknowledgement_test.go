package reclaim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/reclaim/handshake"
)

// at gives the pod its addresses.
func at(addresses ...string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		for _, address := range addresses {
			pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: address})
		}
	}
}

// begin reclaims the Node of one of three workers, which the job can do without, once it has given its word.
func begin(t *testing.T, test func(w *world, f *fakeJobs)) {
	t.Helper()
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 1, 3)
		w.addNode("a")
		w.addNode("b")
		w.runAgent("a", "b")
		w.addPod("on-a", "a", of("train", jobs.RoleWorker), awaiting, at("10.1.0.1"))
		w.addPod("on-b", "b", of("train", jobs.RoleWorker), awaiting, at("10.1.0.2", "fd00::2"))
		w.addPod("on-host", "b", of("train", jobs.RoleWorker), awaiting, at("10.0.0.6"), func(pod *corev1.Pod) { pod.Spec.HostNetwork = true })
		w.cloud.reclaim("a")
		f.start()
		w.pass(10 * time.Second)
		require.Empty(t, w.gone(), "its word is waited for")
		test(w, f)
	})
}

func TestTheAcknowledgementEndsTheWait(t *testing.T) {
	onNode := func(node string, entry func(id string, now time.Time) string) func(*world) {
		return func(w *world) {
			id := w.request("on-a")
			w.updateNode(node, func(node *corev1.Node) {
				metav1.SetMetaDataAnnotation(&node.ObjectMeta, api.AnnotationCheckpointAcknowledged, entry(id, time.Now()))
			})
		}
	}
	theID := func(caller string) func(string, time.Time) string {
		return func(id string, _ time.Time) string { return id + "@" + caller }
	}
	thePod := func(pod, caller string) func(string, time.Time) string {
		return func(_ string, now time.Time) string { return fmt.Sprintf("default/%s@%d@%s", pod, now.Unix(), caller) }
	}
	text := func(text string) func(string, time.Time) string {
		return func(string, time.Time) string { return text }
	}
	for name, tc := range map[string]struct {
		speak func(*world)
		ends  bool
	}{
		"on the leaving pod":      {func(w *world) { w.say("on-a") }, true},
		"on any pod of the job":   {func(w *world) { w.say("on-b") }, true},
		"of another request":      {func(w *world) { w.updatePod("on-a", noted(api.AnnotationCheckpointAcknowledged, "1-abc")) }, false},
		"on a pod of another job": {func(w *world) { w.addPod("other", "b", noted(api.AnnotationCheckpointAcknowledged, w.request("on-a"))) }, false},

		"id, from the leaving pod":                                {onNode("a", theID("10.1.0.1")), true},
		"id, from a survivor":                                     {onNode("b", theID("10.1.0.2")), true},
		"id, from a survivor, by IPv6":                            {onNode("b", theID("fd00::2")), true},
		"id, from a pod on the node's network":                    {onNode("b", theID(api.CallerHost)), true},
		"id, among others":                                        {onNode("a", func(id string, _ time.Time) string { return "1-abc@10.1.0.1, " + id + "@10.1.0.1,2-def@10.1.0.1" }), true},
		"id, from another pod of the Node":                        {onNode("a", theID("10.1.0.9")), false},
		"id, from a pod of the job on another Node":               {onNode("a", theID("10.1.0.2")), false},
		"id, from a Node without a pod of the job on its network": {onNode("a", theID(api.CallerHost)), false},
		"id, from nobody":                                         {onNode("a", func(id string, _ time.Time) string { return id }), false},
		"id of another request":                                   {onNode("a", text("1-abc@10.1.0.1")), false},
		"no id, from the leaving pod":                             {onNode("a", text("@10.1.0.1")), false},
		"name, from the pod":                                      {onNode("a", thePod("on-a", "10.1.0.1")), true},
		"name, from another pod of the Node":                      {onNode("a", thePod("on-a", "10.1.0.9")), false},
		"name, from the node's network":                           {onNode("b", thePod("on-host", api.CallerHost)), false},
		"name, from the node's address":                           {onNode("b", thePod("on-host", "10.0.0.6")), false},
		"name, from nobody":                                       {onNode("a", func(_ string, now time.Time) string { return fmt.Sprintf("default/on-a@%d", now.Unix()) }), false},
		"name, from the pod before it was asked":                  {onNode("a", func(_ string, now time.Time) string { return fmt.Sprintf("default/on-a@%d@10.1.0.1", now.Unix()-60) }), false},
		"name of a pod of another job, from a pod of this":        {onNode("a", thePod("other", "10.1.0.1")), false},
		"name, which makes no sense":                              {onNode("a", text("default/on-a@soon@10.1.0.1,,@,@@")), false},
	} {
		t.Run(name, func(t *testing.T) {
			begin(t, func(w *world, _ *fakeJobs) {
				w.seen()
				tc.speak(w)
				w.pass(time.Second)
				if !tc.ends {
					assert.Empty(t, w.gone())
					return
				}
				assert.Equal(t, []string{"on-a"}, w.gone())
				assert.Contains(t, w.seen(), "SpotCheckpointAcknowledged train")
			})
		})
	}
}

func TestAWordGivenBeforeThePodEndsCounts(t *testing.T) {
	begin(t, func(w *world, _ *fakeJobs) {
		w.updatePod("on-host", succeeded)
		w.updatePod("on-b", func(pod *corev1.Pod) {
			noted(api.AnnotationCheckpointAcknowledged, pod.Annotations[api.AnnotationCheckpointRequest])(pod)
			succeeded(pod)
		})
		w.pass(suspendWait + time.Second) // nobody survives
		assert.Equal(t, []string{"on-a"}, w.gone())
	})
}

func TestTheWaitForTheAcknowledgementIsBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		declared string
		grace    time.Duration
		until    time.Duration // after the notice
		missed   bool
	}{
		"by the last minute, and what a decision takes":      {"true", 30 * time.Second, 220 * time.Second, true},
		"by the pod's own grace, where that is longer":       {"true", 100 * time.Second, 180 * time.Second, true},
		"by half the notice, where it would leave none":      {"true", time.Hour, 130 * time.Second, true},
		"by what the pod declares":                           {"45s", 30 * time.Second, 45 * time.Second, true},
		"by the time limit, where the pod declares more":     {"1h", 30 * time.Second, 220 * time.Second, true},
		"by the time limit, where it makes no sense":         {"please", 30 * time.Second, 220 * time.Second, true},
		"by nothing, where the pod declares that none comes": {"false", 30 * time.Second, 0, false},
		"by nothing, where the pod declares nothing":         {"", 30 * time.Second, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			withJobs(t, func(w *world, f *fakeJobs) {
				f.add("train", 0, 1)
				w.addNode("a")
				w.addPod("p", "a", of("train", jobs.RoleWorker), noted(api.AnnotationAwaitCheckpoint, tc.declared), grace(tc.grace))
				missed := func() float64 { return value(t, "gpu_spot_reclaim_checkpoints_total", "fake", "missed") }
				before := missed()
				w.cloud.reclaim("a")
				f.start() // a second after the notice
				if tc.until > 0 {
					w.pass(tc.until - 2*time.Second)
					require.Empty(t, w.gone())
					w.pass(2 * time.Second)
				}
				assert.Equal(t, []string{"p"}, w.gone())
				assert.Contains(t, w.requests(), "create pods/eviction", "evicted, not deleted")
				if tc.missed {
					assert.Contains(t, w.seen(), "SpotCheckpointMissed train")
					assert.Equal(t, before+1, missed())
				} else {
					assert.Equal(t, before, missed())
				}
			})
		})
	}
}

func TestAWordIsAwaitedOfWhatRunsOnly(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 0, 2)
		w.addNode("a")
		w.addPod("starting", "a", of("train", jobs.RoleWorker), awaiting, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending })
		w.addPod("ended", "a", of("train", jobs.RoleWorker), awaiting, succeeded)
		w.cloud.reclaim("a")
		f.start()
		assert.Equal(t, []string{"starting"}, w.gone())
	})
}

func TestTheAcknowledgementOfAJobThatRestartsInPlaceIsNotFollowedByAnotherWait(t *testing.T) {
	for name, tc := range map[string]struct {
		policy corev1.RestartPolicy
		waits  bool
	}{
		"never restarted: the replacement comes first": {corev1.RestartPolicyNever, true},
		"restarted on failure":                         {corev1.RestartPolicyOnFailure, false},
		"restarted always":                             {corev1.RestartPolicyAlways, false},
	} {
		t.Run(name, func(t *testing.T) {
			withJobs(t, func(w *world, f *fakeJobs) {
				f.add("train", 0, 1)
				w.addNode("a")
				w.addPod("p", "a", of("train", jobs.RoleWorker), awaiting, func(pod *corev1.Pod) { pod.Spec.RestartPolicy = tc.policy })
				w.cloud.reclaim("a")
				f.start(func(c *settings) { c.Replaced = func(string) bool { return false } })
				w.say("p")
				w.pass(time.Second)
				assert.Equal(t, tc.waits, len(w.gone()) == 0)
				w.pass(handshake.DefaultReplaceWait)
				assert.Equal(t, []string{"p"}, w.gone())
			})
		})
	}
}

// saving hears what jobs have saved.
type saving struct {
	pods      []string
	asked, at time.Time
	times     int
}

func (s *saving) hear(change *settings) {
	change.Saved = func(_ jobs.Ref, pods []*corev1.Pod, asked, at time.Time) {
		s.pods, s.asked, s.at, s.times = nil, asked, at, s.times+1
		for _, pod := range pods {
			s.pods = append(s.pods, pod.Name)
		}
	}
}

func TestWhatAJobHasSavedIsToldOnce(t *testing.T) {
	begin(t, func(w *world, f *fakeJobs) {
		var heard saving
		w.stop()
		f.start(heard.hear)
		w.pass(10 * time.Second)
		require.Zero(t, heard.times)
		w.say("on-b")
		w.pass(time.Second)
		assert.Equal(t, 1, heard.times)
		assert.ElementsMatch(t, []string{"on-a", "on-b", "on-host"}, heard.pods)
		assert.True(t, heard.at.After(heard.asked.Add(5*time.Second)))
	})
}

func TestWhatAJobSavedWhileNobodyLedIsTold(t *testing.T) {
	begin(t, func(w *world, f *fakeJobs) {
		w.stop()
		w.say("on-a")
		time.Sleep(10 * time.Second)
		var heard saving
		f.start(heard.hear)
		assert.Equal(t, 1, heard.times)
		assert.Equal(t, heard.asked, heard.at, "nobody knows when it was")
	})
}
