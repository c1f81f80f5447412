// Package drain empties reclaiming Nodes: it evicts pods as long as there is time, and deletes them after that. It asks the
// handshakes which pods may be evicted.
package drain

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
	"gpu-spot-autoscaler/cloudprovider/reclaim/handshake"
	"gpu-spot-autoscaler/cloudprovider/reclaim/mark"
	"gpu-spot-autoscaler/cloudprovider/reclaim/nodepatch"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/work"
)

const (
	// checkAfter is when to look again after pods were deleted: there may be new ones.
	checkAfter = 5 * time.Second
	// handshakeCheck is how soon to look again while there are pods whose job is to be looked at first, and lateCheck the same when
	// there is no more time. The handshake wakes the drain when it lets pods go, so this is for those that it let go before: in a
	// reclaim of thousands of pods many wait for the first look at their job.
	handshakeCheck = 2 * time.Second
	lateCheck      = 500 * time.Millisecond
	// lateMargin is how much time must be left for a job to be given handshake.LateGrace.
	lateMargin = 15 * time.Second
)

// Handshakes decide which pods may be evicted. They are implemented by *handshake.Controller, which adds Nodes to the queue of
// drains when pods may be evicted.
type Handshakes interface {
	MayEvict(pod *corev1.Pod, node *corev1.Node, n notice.Notice) handshake.Answer
	// LookAt has the pod's job looked at soon.
	LookAt(pod *corev1.Pod)
}

// Config is what a Drainer is made of. Everything is required.
type Config struct {
	Cluster    *cluster.Cluster
	Notices    *notice.Store
	Handshakes Handshakes
	// Queue has the Nodes that are to be looked at.
	Queue work.Queue[string]
	// MarksWaiting returns whether Nodes are about to be marked. Nothing is evicted before they are, because it could be
	// scheduled to one of them.
	MarksWaiting func() bool
	// Client evicts and deletes pods, and annotates Nodes.
	Client kubernetes.Interface
	// Evictions and Deletions bound how many of them are requested at once.
	Evictions, Deletions *work.Requests
	Events               *events.Recorder
	Clock                clock.WithTicker
}

// Drainer is safe for concurrent use.
type Drainer struct {
	config Config
	pdbs   *pdbs

	mu sync.Mutex
	// attempts are by Node.
	attempts map[string]attempts
	// unlooked are the Nodes whose jobs are to be looked at once no marks are waiting.
	unlooked sets.Set[string]
}

// New returns a Drainer that has not begun.
func New(config Config) *Drainer {
	return &Drainer{config: config, pdbs: newPDBs(config.Cluster, config.Clock), attempts: map[string]attempts{}, unlooked: sets.New[string]()}
}

// Sync takes one step toward a Node without pods: evictions while there is time, deletions after that. It has the Node looked at
// again when time alone changes what may go. When a pod changes, or its job has got further, somebody else has to add the Node to
// the queue.
func (d *Drainer) Sync(ctx context.Context, name string) error {
	node := d.config.Cluster.Node(name)
	if node == nil {
		d.Forget(name)
	}
	if node == nil || !cluster.IsMarked(node) {
		return nil
	}
	n, reclaiming := d.config.Notices.Of(node)
	if !reclaiming || d.config.Notices.Verdicts.On(n.InstanceID) != notice.Pending {
		return nil
	}
	if d.config.MarksWaiting() {
		d.config.Queue.AddAfter(name, handshake.MarksRetry)
		return nil
	}
	pods := cluster.Drainable(d.config.Cluster.PodsOn(name))
	if d.takeUnlooked(name) {
		for _, pod := range pods {
			d.config.Handshakes.LookAt(pod)
		}
	}
	if !n.Evicts() {
		return nil
	}
	if len(pods) == 0 {
		return d.noteDrained(ctx, node, n)
	}
	s := &step{Drainer: d, node: node, notice: n, attempts: d.attemptsOn(name, pods), now: d.config.Clock.Now()}
	next, doubtful := d.config.Notices.DoubtfulUntil(n)
	switch {
	case doubtful:
		s.evictSome(ctx, pods) // none of them, but their jobs are looked at
	case s.now.Before(n.DeleteFrom()) || n.Yields(): // no PodDisruptionBudget is broken for what need not be
		next = s.evictSome(ctx, pods)
	default:
		next = s.deleteAll(ctx, pods)
	}
	d.config.Queue.AddAfter(name, next.Sub(d.config.Clock.Now()))
	return nil
}

// Forget forgets a Node that is gone, or whose notice was withdrawn.
func (d *Drainer) Forget(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.attempts, name)
	d.unlooked.Delete(name)
	d.pdbs.forget(name)
}

// LookAtJobs has the jobs on the Node looked at in the first step that need not wait for marks. A job that is being asked already says
// nothing when that changes what it waits for, such as the confirmation of the notice.
func (d *Drainer) LookAtJobs(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unlooked.Insert(name)
}

func (d *Drainer) takeUnlooked(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	is := d.unlooked.Has(name)
	d.unlooked.Delete(name)
	return is
}

// noteDrained notes once that the Node is without pods. Pods that come back later are evicted again, and nothing is noted.
func (d *Drainer) noteDrained(ctx context.Context, node *corev1.Node, n notice.Notice) error {
	now := d.config.Clock.Now()
	changed, err := nodepatch.Apply(ctx, d.config.Client, node, func(node *corev1.Node) { mark.Drained(node, now) })
	if err != nil || !changed {
		return err
	}
	left := n.Deadline.Sub(now)
	if !n.IsMove() { // nobody takes its instance at the deadline
		noticeToEmpty.WithLabelValues(string(n.Source)).Observe(now.Sub(n.FirstSeen).Seconds())
		leftWhenEmpty.WithLabelValues(string(n.Source)).Observe(left.Seconds())
	}
	klog.FromContext(ctx).Info("Drained", "node", klog.KObj(node), "instance", n.InstanceID, "left", left)
	what := n.Prefix() + "No pods are left on instance %s, %s before its release"
	if n.IsMove() {
		what = "No pods are left on on-demand instance %s, %s before the end of the move; it is given back"
	}
	d.config.Events.Eventf(node, events.ReasonDrained, what, n.InstanceID, events.FormatLeft(left))
	return nil
}

// Outcome returns how the reclaim of a Node ended that is gone now.
func (d *Drainer) Outcome(node *corev1.Node) string {
	switch {
	case !cluster.IsDrained(node) || d.config.Cluster.Occupied(node):
		return mark.OutcomeLate
	case node.Annotations[api.AnnotationReclaimForced] != "":
		return mark.OutcomeDeleted
	}
	return mark.OutcomeDrained
}

// step is one step with one Node.
type step struct {
	*Drainer
	node     *corev1.Node
	notice   notice.Notice
	attempts attempts
	now      time.Time
}

// evictSome evicts those of the pods that may be evicted, and returns when to look again at the latest.
func (s *step) evictSome(ctx context.Context, pods []*corev1.Pod) (next time.Time) {
	next = s.notice.DeleteFrom()
	if s.notice.Yields() {
		next = s.now.Add(checkAfter)
	}
	var ready []*corev1.Pod
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue // it is terminating
		}
		reason, until := s.staysFor(pod, s.ask(pod))
		if reason == "" {
			again, allowed := s.pdbs.take(pod)
			if allowed {
				ready = append(ready, pod)
				continue
			}
			reason, until = "its PodDisruptionBudget does not allow its eviction", again
		}
		klog.FromContext(ctx).V(2).Info("The pod stays for now", "pod", klog.KObj(pod), "node", s.node.Name, "reason", reason)
		if !until.IsZero() {
			next = notice.Earlier(next, until)
		}
	}
	return notice.Earlier(next, s.requestAll(ctx, s.config.Evictions, ready, s.evict))
}

// ask asks the handshakes whether the pod may be evicted. If they do not know it, they look at its job.
func (s *step) ask(pod *corev1.Pod) handshake.Answer {
	answer := s.config.Handshakes.MayEvict(pod, s.node, s.notice)
	if answer.Unknown {
		s.config.Handshakes.LookAt(pod)
	}
	return answer
}

// staysFor returns why the pod must stay for now, going by the handshakes' answer and by former requests, and when to look again,
// zero if somebody will say. The reason is empty if it may go.
func (s *step) staysFor(pod *corev1.Pod, answer handshake.Answer) (reason string, until time.Time) {
	again := s.attempts[pod.UID].next
	switch {
	case answer.Unknown:
		return answer.Reason, s.now.Add(handshakeCheck) // nothing wakes the drain if the look finds that it may be evicted already
	case answer.Reason != "":
		return answer.Reason, answer.From
	case again.After(s.now):
		return "its eviction was requested", again
	}
	return "", time.Time{}
}

// deleteAll deletes the pods when there is no more time to evict them. It returns when to look again at the latest.
func (s *step) deleteAll(ctx context.Context, pods []*corev1.Pod) (next time.Time) {
	next = s.now.Add(checkAfter)
	var ready []*corev1.Pod
	for _, pod := range pods {
		switch attempt := s.attempts[pod.UID]; {
		case s.hasTimeFor(pod) && s.isAskedLate(s.ask(pod)):
			next = s.now.Add(lateCheck)
		case attempt.refusals == 0 && attempt.next.After(s.now): // it is terminating
		default:
			ready = append(ready, pod)
		}
	}
	if slices.ContainsFunc(ready, s.takesTooLong) {
		s.noteForced(ctx)
	}
	return notice.Earlier(next, s.requestAll(ctx, s.config.Deletions, ready, s.delete))
}

// hasTimeFor returns whether the pod may still be given time for a handshake with its job.
func (s *step) hasTimeFor(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && s.notice.Deadline.Sub(s.now) >= lateMargin
}

// isAskedLate returns whether the answer is that the handshake with the pod's job has begun only now, or is yet to begin.
func (s *step) isAskedLate(answer handshake.Answer) bool {
	return answer.Reason != "" && (answer.Begun.IsZero() || s.now.Sub(answer.Begun) < handshake.LateGrace)
}

// requestAll makes the request for all pods. It returns when to repeat it for those that were refused: for each of them later
// every time, so that a PodDisruptionBudget is not asked without end, and one pod's refusal does not hold up the others.
func (s *step) requestAll(ctx context.Context, requests *work.Requests, pods []*corev1.Pod,
	request func(context.Context, *corev1.Pod) error) (next time.Time) {
	next = s.notice.Deadline.Add(time.Hour)
	var mu sync.Mutex
	err := requests.ForEach(ctx, pods, func(ctx context.Context, pod *corev1.Pod) error {
		err := request(ctx, pod)
		mu.Lock()
		defer mu.Unlock()
		next = notice.Earlier(next, s.attempts.add(pod, s.config.Clock.Now(), err))
		if errors.Is(err, errRefused) {
			klog.FromContext(ctx).V(2).Info("Will request it again", "pod", klog.KObj(pod), "node", s.node.Name, "answer", err.Error())
			return nil
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Could not move all pods, will try again", "node", klog.KObj(s.node))
	}
	return next
}
