package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// kind says what happened.
type kind string

// Kinds of events, in the order in which they happen.
const (
	podsPending    kind = "pods_pending"
	offeringChosen kind = "offering_chosen"
	scaleUp        kind = "scale_up"
	purchaseFailed kind = "purchase_failed"
	nodeReady      kind = "node_ready"
	podsRunning    kind = "pods_running"
	notice         kind = "notice"
	tainted        kind = "tainted"
	warned         kind = "warned"
	checkpointed   kind = "checkpointed"
	drained        kind = "drained"
	podsMoved      kind = "pods_moved"
	jobDone        kind = "job_done"
	nodeIdle       kind = "node_idle"
	scaleDown      kind = "scale_down"
	released       kind = "released"
)

// event is an entry of report.json. Fields that do not apply are left out.
type event struct {
	Time time.Time `json:"time"`
	Kind kind      `json:"kind"`
	Job  string    `json:"job,omitempty"`
	// Pods are those pending or running; Pod is the one where it is one.
	Pods []string `json:"pods,omitempty"`
	Pod  string   `json:"pod,omitempty"`
	Node string   `json:"node,omitempty"`
	// Instance, Offering and Price are of the node; a scale_up has the offering alone, and how many instances were asked for.
	Instance string `json:"instance,omitempty"`
	Offering string `json:"offering,omitempty"`
	Count    int    `json:"count,omitempty"`
	// Price is what the spot market asks for one instance-hour at that time, in CNY.
	Price float64 `json:"price,omitempty"`
	// Deadline is when the instance will be released.
	Deadline time.Time `json:"deadline,omitzero"`
	// Forced says that the demo asked for the reclaim, since the trace had none in time.
	Forced  bool   `json:"forced,omitempty"`
	Message string `json:"message,omitempty"`
}

// span is a stretch of time in which a node worked for a job.
type span struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to,omitzero"`
	Job  string    `json:"job"`
}

// instanceRecord is what became of an instance. Times are zero for what did not happen.
type instanceRecord struct {
	Instance string    `json:"instance"`
	Node     string    `json:"node,omitempty"`
	Offering string    `json:"offering"`
	GPUs     int       `json:"gpus,omitempty"`
	Created  time.Time `json:"created"`
	Ready    time.Time `json:"ready,omitzero"`
	Notice   time.Time `json:"notice,omitzero"`
	Tainted  time.Time `json:"tainted,omitzero"`
	// Warned is when its pods were asked for a checkpoint, Checkpointed when their job said that it had saved one.
	Warned       time.Time `json:"warned,omitzero"`
	Checkpointed time.Time `json:"checkpointed,omitzero"`
	Drained      time.Time `json:"drained,omitzero"`
	Deadline     time.Time `json:"deadline,omitzero"`
	// Removed is when the autoscaler asked for its removal.
	Removed  time.Time `json:"removed,omitzero"`
	Released time.Time `json:"released,omitzero"`
	Work     []span    `json:"work,omitempty"`

	offering offering
	// readyEvent waits for the job that the node turns out to be for.
	readyEvent *event
}

// job is the one it works for, or worked for last.
func (l *instanceRecord) job() string {
	if len(l.Work) == 0 {
		return ""
	}
	return l.Work[len(l.Work)-1].Job
}

// state counts a job's GPU pods at a moment: those that wait for a node, those that run, and those on nodes with a
// notice, whether they run or not.
type state struct {
	At         time.Time `json:"at"`
	Pending    int       `json:"pending"`
	Running    int       `json:"running"`
	Reclaiming int       `json:"reclaiming,omitempty"`
}

// jobRecord is what became of a job.
type jobRecord struct {
	job
	// States are its changes.
	States []state `json:"states"`
	// Lost is when it lost pods to a reclaim first, Done when it had succeeded.
	Lost time.Time `json:"lost,omitzero"`
	Done time.Time `json:"done,omitzero"`
	// announced are the counts of the last event about each.
	announcedPending, announcedRunning int
	// reduced says that it has not been whole since it lost pods.
	reduced bool
}

func (c *jobRecord) now() state {
	if len(c.States) == 0 {
		return state{}
	}
	return c.States[len(c.States)-1]
}

// settle is for how long counts must not have changed to be announced, unless they are complete.
const settle = 600 * time.Millisecond

// timeline turns snapshots into events. It reads nothing but them, so that equal snapshots give equal timelines.
type timeline struct {
	events  []*event
	courses []*jobRecord
	// instances by ID, and in the order of their creation.
	instances map[string]*instanceRecord
	ordered   []*instanceRecord
	// forced are the instances whose reclaim the demo asked for.
	forced map[string]bool

	podJobs map[string]string
	// purchases in the order of their requests.
	purchases []*purchase
	zones     map[string]string // by vSwitch
}

func newTimeline(jobs []job, zones map[string]string) *timeline {
	c := &timeline{
		instances: map[string]*instanceRecord{}, forced: map[string]bool{}, podJobs: map[string]string{}, zones: zones,
	}
	for _, j := range jobs {
		c.courses = append(c.courses, &jobRecord{job: j})
	}
	return c
}

// advance takes the next snapshot and returns what happened since the one before.
func (c *timeline) advance(s snapshot) []*event {
	before := len(c.events)
	for name, p := range s.pods {
		c.podJobs[name] = p.job
	}
	c.meetInstances(s)
	c.followPurchases(s)
	c.followNodes(s)
	c.followReclaims(s)
	for _, job := range c.courses {
		c.followJob(s, job)
	}
	c.followRemovals(s)
	return c.events[before:]
}

func (c *timeline) add(e event) *event {
	if len(e.Pods) == 1 {
		e.Pod = e.Pods[0]
	}
	c.events = append(c.events, &e)
	return &e
}

// about begins an event about an instance.
func (l *instanceRecord) about(s snapshot, k kind) event {
	return event{
		Time: s.at, Kind: k, Job: l.job(), Node: l.Node, Instance: l.Instance, Offering: l.Offering,
		Price: s.quotes[l.offering].Spot,
	}
}

func (c *timeline) meetInstances(s snapshot) {
	var fresh []*instanceRecord
	for id, i := range s.instances {
		if c.instances[id] == nil {
			o := offeringOf(i)
			c.instances[id] = &instanceRecord{Instance: id, Offering: o.String(), Created: i.Created, offering: o}
			fresh = append(fresh, c.instances[id])
		}
	}
	slices.SortFunc(fresh, func(a, b *instanceRecord) int {
		return strings.Compare(a.Offering+a.Instance, b.Offering+b.Instance)
	})
	c.ordered = append(c.ordered, fresh...)
}

// followNodes sees nodes come, work and idle.
func (c *timeline) followNodes(s snapshot) {
	working := c.working(s)
	for _, l := range c.ordered {
		n, registered := s.nodes[l.Instance]
		if !registered {
			l.stopWork(s.at)
			continue
		}
		l.Node, l.GPUs = n.name, max(l.GPUs, n.gpus)
		if n.ready && l.Ready.IsZero() {
			l.Ready = s.at
			l.readyEvent = c.add(l.about(s, nodeReady))
		}
		job := working[n.name]
		if job != "" && job != l.currentJob() {
			l.stopWork(s.at)
			l.Work = append(l.Work, span{From: s.at, Job: job})
			if len(l.Work) == 1 {
				c.learnJob(l, job)
			}
			if l.readyEvent != nil && l.readyEvent.Job == "" {
				l.readyEvent.Job = job
			}
		}
		if job == "" && l.currentJob() != "" {
			l.stopWork(s.at)
			if l.Notice.IsZero() && l.Removed.IsZero() && s.instances[l.Instance].Deadline.IsZero() {
				c.add(l.about(s, nodeIdle))
			}
		}
	}
}

// working returns the job of each node that has pods of one.
func (c *timeline) working(s snapshot) map[string]string {
	jobs := map[string]string{}
	for _, p := range s.pods {
		if p.node != "" && p.gpus > 0 && p.phase != corev1.PodSucceeded && p.phase != corev1.PodFailed {
			jobs[p.node] = p.job
		}
	}
	return jobs
}

func (l *instanceRecord) currentJob() string {
	if len(l.Work) == 0 || !l.Work[len(l.Work)-1].To.IsZero() {
		return ""
	}
	return l.Work[len(l.Work)-1].Job
}

func (l *instanceRecord) stopWork(at time.Time) {
	if l.currentJob() != "" {
		l.Work[len(l.Work)-1].To = at
	}
}

// followJob sees a job wait, run, shrink, be whole again and succeed.
func (c *timeline) followJob(s snapshot, job *jobRecord) {
	var pending, running []string
	succeeded, reclaiming := 0, 0
	for name, p := range s.pods {
		switch {
		case p.job != job.Name:
		case p.phase == corev1.PodSucceeded && p.gpus == 0: // the launcher: the job is over
			succeeded = job.Pods
		case p.phase == corev1.PodSucceeded:
			succeeded++
		case p.gpus == 0 || p.phase == corev1.PodFailed:
		case c.isReclaimingNode(p.node):
			reclaiming++
		case p.leaving:
		case p.phase == corev1.PodRunning:
			running = append(running, name)
		case p.phase == corev1.PodPending && p.node == "":
			pending = append(pending, name)
		}
	}
	if now := job.now(); now.Pending != len(pending) || now.Running != len(running) || now.Reclaiming != reclaiming {
		job.States = append(job.States, state{At: s.at, Pending: len(pending), Running: len(running), Reclaiming: reclaiming})
	}
	if job.Done.IsZero() && succeeded >= job.Pods {
		job.Done = s.at
		c.add(event{Time: s.at, Kind: jobDone, Job: job.Name})
	}
	if job.Done.IsZero() {
		c.announce(s, job, pending, running)
	}
}

func (c *timeline) announce(s snapshot, job *jobRecord, pending, running []string) {
	slices.Sort(pending)
	slices.Sort(running)
	settled := s.at.Sub(job.now().At) >= settle
	if len(pending) > job.announcedPending && (settled || len(pending) == job.Pods) {
		c.add(event{Time: s.at, Kind: podsPending, Job: job.Name, Pods: pending, Count: len(pending)})
		job.announcedPending = len(pending)
	}
	if len(pending) == 0 {
		job.announcedPending = 0
	}
	whole := len(running) == job.Pods
	if len(running) > job.announcedRunning && (whole || settled && !job.reduced) {
		e := event{Time: s.at, Kind: podsRunning, Job: job.Name, Pods: running, Count: len(running)}
		if job.reduced {
			e.Kind, job.reduced = podsMoved, false
		}
		c.add(e)
		job.announcedRunning = len(running)
	}
	job.announcedRunning = min(job.announcedRunning, len(running))
}

// followRemovals sees instances given back and gone.
func (c *timeline) followRemovals(s snapshot) {
	for _, r := range s.requests {
		if r.Action != "RemoveInstances" || r.Code != "" {
			continue
		}
		for n := 1; r.Parameters[fmt.Sprintf("InstanceId.%d", n)] != ""; n++ {
			l := c.instances[r.Parameters[fmt.Sprintf("InstanceId.%d", n)]]
			if l != nil && l.Removed.IsZero() {
				l.Removed = r.Time
				e := l.about(s, scaleDown)
				e.Time = r.Time
				c.add(e)
			}
		}
	}
	for _, l := range c.ordered {
		if _, exists := s.instances[l.Instance]; !exists && l.Released.IsZero() {
			l.Released = s.at
			l.stopWork(s.at)
			e := l.about(s, released)
			e.Deadline = l.Deadline
			c.add(e)
		}
	}
}

// count returns how many events of a kind there are for a job; "" is any event that has one.
func (c *timeline) count(k kind, job string) int {
	n := 0
	for _, e := range c.events {
		if e.Kind == k && e.Job != "" && (job == "" || e.Job == job) {
			n++
		}
	}
	return n
}
