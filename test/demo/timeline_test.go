package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/market"
)

var (
	began = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)
	cheap = offering{a10, zoneL}
)

// after is a moment of the run.
func after(seconds float64) time.Time {
	return began.Add(time.Duration(seconds * float64(time.Second)))
}

// fixture is what the tests turn into snapshots.
type fixture struct{ snapshot }

func newFixture() *fixture {
	return &fixture{snapshot{
		pods: map[string]pod{}, nodes: map[string]node{}, instances: map[string]alisim.InstanceView{},
		quotes: map[offering]market.Quote{cheap: {Available: true, Spot: 3, OnDemand: 10}},
	}}
}

// at returns a snapshot, with what is new since the last one.
func (w *fixture) at(seconds float64) snapshot {
	s := w.snapshot
	s.at = after(seconds)
	w.requests, w.clusterEvents = nil, nil
	return s
}

func (w *fixture) pod(name string, p pod) {
	p.job, p.gpus = gangJob, 1
	w.pods[name] = p
}

func (w *fixture) request(action string, seconds float64, parameters map[string]string) {
	w.requests = append(w.requests, alisim.RequestView{
		Time: after(seconds), Action: action, Parameters: parameters, RequestID: fmt.Sprint(action, seconds),
	})
}

func (w *fixture) buy(seconds float64) {
	w.request("ScaleWithAdjustment", seconds, map[string]string{"InstanceType.1": a10, "VSwitchId.1": "vsw-l", "AdjustmentValue": "2"})
}

func (w *fixture) event(reason, object, text string) {
	w.clusterEvents = append(w.clusterEvents, clusterEvent{reason: reason, object: object, text: text})
}

func (w *fixture) instance(id string, created float64) {
	w.instances[id] = alisim.InstanceView{ID: id, InstanceType: a10, Zone: zoneL, Created: after(created), Status: "Running"}
}

func (w *fixture) notice(id string, deadline float64) {
	i := w.instances[id]
	i.Deadline = after(deadline)
	w.instances[id] = i
}

func testTimeline() *timeline {
	return newTimeline([]job{{Name: gangJob, Pods: 2}}, map[string]string{"vsw-l": zoneL})
}

// kinds are the events in short: kind, job and instance.
func kinds(events []*event) (list []string) {
	for _, e := range events {
		list = append(list, fmt.Sprintf("%s %s %s", e.Kind, e.Job, e.Instance))
	}
	return list
}

func TestWholeLifeOfAJob(t *testing.T) {
	w, c := newFixture(), testTimeline()
	triggered := "pod triggered scale-up: [{asg/" + a10 + "/" + zoneL + "/spot 0->2 (max: 30)}]"

	w.pod("a", pod{phase: corev1.PodPending})
	assert.Empty(t, c.advance(w.at(0)), "one of two pods: more may come")
	w.pod("b", pod{phase: corev1.PodPending})
	assert.Equal(t, []string{"pods_pending allreduce-8 "}, kinds(c.advance(w.at(.1))))

	w.buy(1)
	assert.Empty(t, c.advance(w.at(1)), "for whom it is will be told")
	w.event("TriggeredScaleUp", "a", triggered)
	w.event("TriggeredScaleUp", "b", triggered)
	bought := c.advance(w.at(1.2))
	assert.Equal(t, []string{"scale_up allreduce-8 "}, kinds(bought), "once for both pods")
	assert.Equal(t, after(1), bought[0].Time)
	assert.Equal(t, 2, bought[0].Count)
	assert.InDelta(t, 3, bought[0].Price, 0)
	assert.Equal(t, "cheapest GPU-hours: ¥3.000 "+cheap.String(), bought[0].Message)

	for _, id := range []string{"i-1", "i-2"} {
		w.instance(id, 2)
		w.nodes[id] = node{name: "node-" + id, ready: true, gpus: 1}
	}
	ready := c.advance(w.at(5))
	assert.Equal(t, []string{"node_ready  i-1", "node_ready  i-2"}, kinds(ready))
	w.pod("a", pod{phase: corev1.PodRunning, node: "node-i-1"})
	w.pod("b", pod{phase: corev1.PodRunning, node: "node-i-2"})
	assert.Equal(t, []string{"pods_running allreduce-8 "}, kinds(c.advance(w.at(6))))
	assert.Equal(t, []string{"node_ready allreduce-8 i-1", "node_ready allreduce-8 i-2"}, kinds(ready), "now it is known for whom")

	w.notice("i-1", 40)
	reclaiming := c.advance(w.at(10))
	assert.Equal(t, []string{"notice allreduce-8 i-1"}, kinds(reclaiming))
	assert.Equal(t, after(40), reclaiming[0].Deadline)
	w.nodes["i-1"] = node{name: "node-i-1", ready: true, tainted: after(10.4), gpus: 1}
	assert.Equal(t, []string{"tainted allreduce-8 i-1"}, kinds(c.advance(w.at(10.5))))
	w.pod("a", pod{phase: corev1.PodRunning, node: "node-i-1", request: "r1"})
	w.pod("b", pod{phase: corev1.PodRunning, node: "node-i-2", request: "r1", acknowledged: "r0"})
	assert.Equal(t, []string{"warned allreduce-8 i-1"}, kinds(c.advance(w.at(10.6))), "the acknowledgement is of an older checkpoint")
	w.pod("b", pod{phase: corev1.PodRunning, node: "node-i-2", request: "r1", acknowledged: "r1"})
	assert.Equal(t, []string{"checkpointed allreduce-8 i-1"}, kinds(c.advance(w.at(10.8))), "any pod speaks for its job")
	delete(w.pods, "a")
	w.pod("c", pod{phase: corev1.PodPending})
	assert.Equal(t, []string{"drained allreduce-8 i-1"}, kinds(c.advance(w.at(11))))
	assert.Equal(t, []string{"pods_pending allreduce-8 "}, kinds(c.advance(w.at(11.7))), "it waits on")

	w.instance("i-3", 12)
	w.nodes["i-3"] = node{name: "node-i-3", ready: true, gpus: 1}
	w.pod("c", pod{phase: corev1.PodRunning, node: "node-i-3"})
	assert.Equal(t, []string{"node_ready allreduce-8 i-3", "pods_moved allreduce-8 "}, kinds(c.advance(w.at(20))))

	w.pod("b", pod{phase: corev1.PodSucceeded, node: "node-i-2"})
	w.pod("c", pod{phase: corev1.PodSucceeded, node: "node-i-3"})
	assert.Equal(t, []string{"node_idle allreduce-8 i-2", "node_idle allreduce-8 i-3", "job_done allreduce-8 "}, kinds(c.advance(w.at(30))))

	w.request("RemoveInstances", 41, map[string]string{"InstanceId.1": "i-2", "InstanceId.2": "i-3"})
	delete(w.instances, "i-1")
	assert.Equal(t, []string{"scale_down allreduce-8 i-2", "scale_down allreduce-8 i-3", "released allreduce-8 i-1"}, kinds(c.advance(w.at(41))))
	clear(w.instances)
	assert.Equal(t, []string{"released allreduce-8 i-2", "released allreduce-8 i-3"}, kinds(c.advance(w.at(43))))
}

func TestPurchaseWithoutAWordIsToldAfterAWhileAndLearnsItsJobFromItsNodes(t *testing.T) {
	w, c := newFixture(), testTimeline()
	w.buy(1)
	assert.Empty(t, c.advance(w.at(1)))
	told := c.advance(w.at(2))
	assert.Equal(t, []string{"scale_up  "}, kinds(told))
	w.instance("i-1", 3)
	w.nodes["i-1"] = node{name: "node", ready: true, gpus: 1}
	w.pod("a", pod{phase: corev1.PodRunning, node: "node"})
	c.advance(w.at(4))
	assert.Equal(t, []string{"scale_up allreduce-8 "}, kinds(told))
}

func TestPodThatComesBackOntoAReclaimingNodeHasNotMoved(t *testing.T) {
	w, c := newFixture(), testTimeline()
	for _, id := range []string{"i-1", "i-2"} {
		w.instance(id, 0)
		w.nodes[id] = node{name: "node-" + id, ready: true, gpus: 1}
		w.pod("on-"+id, pod{phase: corev1.PodRunning, node: "node-" + id})
	}
	c.advance(w.at(1))
	w.notice("i-1", 40)
	w.nodes["i-1"] = node{name: "node-i-1", ready: true, tainted: after(10.2), gpus: 1}
	delete(w.pods, "on-i-1")
	c.advance(w.at(2))
	w.pod("again", pod{phase: corev1.PodRunning, node: "node-i-1"})
	assert.Empty(t, c.advance(w.at(3)))
	assert.Equal(t, state{At: after(3), Running: 1, Reclaiming: 1}, c.courses[0].now())
}

func TestPurchasesInAnEvent(t *testing.T) {
	for name, test := range map[string]struct {
		event clusterEvent
		want  []offering
	}{
		"one group":       {clusterEvent{reason: "TriggeredScaleUp", text: "pod triggered scale-up: [{asg/ecs.x/z-a/spot 0->3 (max: 20)}]"}, []offering{{"ecs.x", "z-a"}}},
		"two groups":      {clusterEvent{reason: "TriggeredScaleUp", text: "pod triggered scale-up: [{asg/x/a/spot 0->3 (max: 20)} {asg/x/b/spot 1->3 (max: 20)}]"}, []offering{{"x", "a"}, {"x", "b"}}},
		"a foreign group": {clusterEvent{reason: "TriggeredScaleUp", text: "pod triggered scale-up: [{other 0->3 (max: 20)}]"}, nil},
		"another reason":  {clusterEvent{reason: "Scheduled", text: "{asg/x/a/spot 0->3"}, nil},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, test.event.purchases()) })
	}
}

func TestEventsAboutLikeNodesAreToldTogether(t *testing.T) {
	ready := func(instance, of string) *event { return &event{Kind: nodeReady, Instance: instance, Offering: of} }
	groups := grouped([]*event{ready("i-1", "a"), ready("i-2", "b"), ready("i-3", "a"), {Kind: offeringChosen}, {Kind: offeringChosen}})
	var sizes []int
	for _, g := range groups {
		sizes = append(sizes, len(g))
	}
	assert.Equal(t, []int{2, 1, 1, 1}, sizes)
}

func TestATaintIsTimedFromItsNoticeHoweverSeldomOneLooks(t *testing.T) {
	w, c := newFixture(), testTimeline()
	w.instance("i-1", 0)
	w.nodes["i-1"] = node{name: "node-i-1", ready: true, gpus: 1}
	c.advance(w.at(9))
	w.notice("i-1", 40) // since 10
	w.nodes["i-1"] = node{name: "node-i-1", ready: true, gpus: 1, tainted: after(10.2)}
	told := c.advance(w.at(11))
	assert.Equal(t, []string{"notice  i-1", "tainted  i-1", "drained  i-1"}, kinds(told), "all between two looks")
	assert.Equal(t, []time.Time{after(10), after(10.2)}, []time.Time{told[0].Time, told[1].Time})
	r := newReport(c, &ledger{samples: []sample{{}}}, nil, nil)
	assert.InDelta(t, .2, r.Summary.NoticeToTaint, 1e-9)
	assert.Equal(t, "0.2 s", seconds(r.Summary.NoticeToTaint))
}

func TestTheObserverTimesTheTaintItself(t *testing.T) {
	o := &observer{tainted: map[string]time.Time{}}
	marked := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: reclaimTaint}}}}
	o.noteTaint(&corev1.Node{ObjectMeta: marked.ObjectMeta}, after(1))
	assert.Zero(t, o.taintedSince(marked))
	o.noteTaint(marked, after(2))
	o.noteTaint(marked, after(3))
	assert.Equal(t, after(2), viewNode(marked, o.taintedSince(marked)).tainted)
	o.noteTaint(&corev1.Node{ObjectMeta: marked.ObjectMeta}, after(4))
	o.noteTaint(marked, after(5))
	assert.Equal(t, after(5), o.taintedSince(marked), "another notice")
}
