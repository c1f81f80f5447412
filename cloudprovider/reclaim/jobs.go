package reclaim

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// Jobs is what the controller asks of the job systems. It is implemented by *jobs.Registry.
type Jobs interface {
	// Member is called for every pod of the cluster whenever it changes, and goes by the pod alone.
	Member(pod *corev1.Pod) jobs.Membership
	// Alone says whether the pod has only its controller in common with others of its job. It goes by the pod alone.
	Alone(pod *corev1.Pod) bool
	// Get reads the job's object. The error wraps jobs.ErrNoObject where it has none.
	Get(ctx context.Context, ref jobs.Ref) (jobs.Job, error)
	// Shrinking and CancelShrink are those of jobs.Registry.
	Shrinking(ctx context.Context, ref jobs.Ref, pods []string) ([]string, error)
	CancelShrink(ctx context.Context, ref jobs.Ref, pods []string) error
	// Stop has the job save its work and end, where it listens for that, and returns how many of its pods heard it.
	Stop(ctx context.Context, job jobs.Job) (heard int, err error)
	// Warn, Shrink and Suspend are those of jobs.Registry.
	Warn(ctx context.Context, job jobs.Job, warning jobs.Warning) error
	Shrink(ctx context.Context, job jobs.Job, pods []string) error
	Suspend(ctx context.Context, job jobs.Job, reason jobs.Reason) error
}

// soloJobs is for clusters in which no job systems are known: every pod is on its own.
type soloJobs struct{}

var _ Jobs = soloJobs{}

func (soloJobs) Member(pod *corev1.Pod) jobs.Membership {
	ref := jobs.Ref{System: jobs.SystemPod, NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}}
	return jobs.Membership{Ref: ref, Role: jobs.RoleWorker}
}

func (soloJobs) Alone(*corev1.Pod) bool { return false } // its job is its own already

func (soloJobs) Get(_ context.Context, ref jobs.Ref) (jobs.Job, error) {
	return jobs.Job{}, fmt.Errorf("%s: %w", ref, jobs.ErrNoObject)
}

func (soloJobs) Warn(context.Context, jobs.Job, jobs.Warning) error { return jobs.ErrUnsupported }

func (soloJobs) Shrink(context.Context, jobs.Job, []string) error { return jobs.ErrUnsupported }

func (soloJobs) Shrinking(context.Context, jobs.Ref, []string) ([]string, error) { return nil, nil }

func (soloJobs) CancelShrink(context.Context, jobs.Ref, []string) error { return nil }

func (soloJobs) Stop(context.Context, jobs.Job) (int, error) { return 0, nil }

func (soloJobs) Suspend(context.Context, jobs.Job, jobs.Reason) error { return jobs.ErrUnsupported }

// round is one handshake with one job, or with one pod that is on its own: a request for a checkpoint, the word, a decision, the release of its pods. All
// Nodes of a correlated reclaim share one. What must outlive this process is written on the pods and on the job; the rest
// is found out again by the next leader.
type round struct {
	// id is that of the request.
	id        string
	requested time.Time
	// deadline is the first of those of the job's Nodes.
	deadline time.Time
	// seen is when this process met the round.
	seen time.Time
	// doomed are the pods that lose their Node in this round, never changed, but replaced.
	doomed sets.Set[types.UID]
	// spared are the pods that the decision left out, because their loss was doubtful.
	spared sets.Set[types.UID]
	// job is nil until its object was read, and for jobs without one.
	job *jobs.Job
	// telling and told are about the adapter's Warn: under way, over.
	telling, told bool
	// word is true once the job said that its work is saved.
	word bool
	// deciding and decided are about Shrink or Suspend: under way, over.
	deciding, decided bool
	// blocked is true while the decision of the round before is still being carried out.
	blocked bool
	// shrinking is true while the job's system takes the doomed workers out of the job.
	shrinking bool
	// release is from when the doomed pods may be evicted, once decided and no longer shrinking.
	release time.Time
	// announced is true once the drains know.
	announced bool
	// sent is the warning that each pod, by its UID, was last sent by this process. The informer may not show it yet.
	sent *sync.Map
}

func newRound(now time.Time) *round {
	return &round{id: newID(now), requested: now.Truncate(time.Second), seen: now, sent: &sync.Map{}}
}

// handshakes is what this process knows of the rounds.
type handshakes struct {
	// queue holds the jobs to look after.
	queue workqueue.TypedRateLimitingInterface[party]
	// asking are the calls to job systems that are under way.
	asking sync.WaitGroup
	// podEvents bounds the Events on pods.
	podEvents flowcontrol.PassiveRateLimiter

	mu     sync.Mutex
	rounds map[party]*round
	// replaced are the Nodes for whose pods there was a place at some time.
	replaced sets.Set[string]
	// attempts are by Node.
	attempts map[string]attempts
}

func (h *handshakes) init(clk clock.WithTicker) {
	h.queue = newQueue[party]("reclaim_jobs", clk)
	h.podEvents = flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(podEventQPS, podEventBurst, clk)
	h.rounds = map[party]*round{}
	h.replaced = sets.New[string]()
	h.attempts = map[string]attempts{}
}

// round returns a copy of the one that is open.
func (h *handshakes) round(ref party) (r round, open bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r, open := h.rounds[ref]; open {
		return *r, true
	}
	return round{}, false
}

// change does nothing where another round has begun by now. It returns the round as it then is.
func (h *handshakes) change(ref party, id string, change func(*round)) (r round, current bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r, open := h.rounds[ref]; open && r.id == id {
		change(r)
		return *r, true
	}
	return round{}, false
}

// begin says whether the flag was not set before.
func (h *handshakes) begin(ref party, id string, flag func(*round) *bool) (began bool) {
	h.change(ref, id, func(r *round) {
		began = !*flag(r)
		*flag(r) = true
	})
	return began
}

func (h *handshakes) anyOpen() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.rounds) > 0
}

func (h *handshakes) forget(ref party) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.rounds, ref)
}

// forgetNode is for Nodes that are gone or given back.
func (h *handshakes) forgetNode(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.replaced.Delete(name)
	delete(h.attempts, name)
}

// jobKey are the index keys of the pod: that of its job, and its own where it is on its own. Pods that belong to their machine
// have none.
func (c *Controller) jobKey(pod *corev1.Pod) []string {
	if belongsToMachine(pod) {
		return nil
	}
	p := c.partyOf(pod)
	if p.pod != "" {
		return []string{p.whole().String(), p.String()}
	}
	return []string{p.String()}
}

// lookBatch is for how long changes of a job's pods are gathered before the job is looked at, lest each of a thousand
// pods costs a look at all of them.
const lookBatch = 50 * time.Millisecond

// followPod looks after the pod's job where it has, or had under an earlier leader, a round.
func (c *Controller) followPod(pod *corev1.Pod) {
	_, asked := pod.Annotations[api.AnnotationCheckpointRequest]
	if !asked && !c.handshakes.anyOpen() || belongsToMachine(pod) {
		return
	}
	ref := c.partyOf(pod)
	if _, open := c.handshakes.round(ref); open || asked {
		c.handshakes.queue.AddAfter(ref, lookBatch)
	}
}

// followNode looks after the jobs on a Node that brought a word, was given back or is gone.
func (c *Controller) followNode(old, node *corev1.Node) {
	spared := isMarked(old) && (node == nil || !isMarked(node))
	spoke := node != nil && old.Annotations[api.AnnotationCheckpointAcknowledged] != node.Annotations[api.AnnotationCheckpointAcknowledged]
	if spared {
		c.handshakes.forgetNode(old.Name)
	}
	if !spared && !spoke {
		return
	}
	for _, pod := range c.podsOn(old.Name) {
		c.followPod(pod)
	}
}

// doomedPod is a pod that loses its Node.
type doomedPod struct {
	*corev1.Pod
	role   jobs.Role
	notice Notice
}

// loss is what all reclaims together take from a job.
type loss struct {
	ref party
	// pods are all of the job, those that have ended too.
	pods []*corev1.Pod
	// doomed have not ended, but may be on their way out.
	doomed []doomedPod
	// doubtful are those that lose their Node only by a notice that nothing has confirmed: while others are doomed for certain
	// they are no part of doomed, but survive. Where there are no others they are doomed, and until says when to look again.
	doubtful []doomedPod
	until    time.Time
	// workers and hosts are those that are neither doomed nor on their way out.
	workers, hosts int
	// training are all workers and hosts that are not on their way out, the doomed too.
	training int
}

// lossOf looks at all pods of the job once.
func (c *Controller) lossOf(ref party) loss {
	l := loss{ref: ref, pods: c.podsOf(ref)}
	r, open := c.handshakes.round(ref)
	nodes := map[string]*fate{}
	for _, pod := range l.pods {
		if pod.Spec.NodeName == "" || hasEnded(pod) {
			continue
		}
		node, known := nodes[pod.Spec.NodeName]
		if !known {
			node = c.fateOf(pod.Spec.NodeName)
			nodes[pod.Spec.NodeName] = node
		}
		if node == nil || node.doomed && !node.doubtful && isReturner(pod, node, r, open) {
			continue
		}
		l.add(pod, c.Jobs.Member(pod).Role, node)
	}
	l.weigh()
	return l
}

func (l *loss) add(pod *corev1.Pod, role jobs.Role, node *fate) {
	switch {
	case node.doubtful:
		l.doubtful = append(l.doubtful, doomedPod{pod, role, node.notice})
		if l.until.IsZero() || node.until.Before(l.until) {
			l.until = node.until
		}
	case node.doomed:
		l.doomed = append(l.doomed, doomedPod{pod, role, node.notice})
	default:
		l.survive(pod, role)
	}
	if pod.DeletionTimestamp == nil && role != jobs.RoleLauncher {
		l.training++
	}
}

func (l *loss) survive(pod *corev1.Pod, role jobs.Role) {
	switch {
	case pod.DeletionTimestamp != nil:
	case role == jobs.RoleWorker:
		l.workers++
	case role == jobs.RoleHost:
		l.hosts++
	}
}

// weigh decides what becomes of the doubtful.
func (l *loss) weigh() {
	if len(l.doomed) == 0 {
		l.doomed, l.doubtful = l.doubtful, nil
		return
	}
	for _, pod := range l.doubtful {
		l.survive(pod.Pod, pod.role)
	}
	l.until = time.Time{}
}

func uids(pods []doomedPod) sets.Set[types.UID] {
	found := sets.New[types.UID]()
	for _, pod := range pods {
		found.Insert(pod.UID)
	}
	return found
}

// nodes are the names of those that the doomed pods are on.
func (l *loss) nodes() sets.Set[string] {
	names := sets.New[string]()
	for _, pod := range l.doomed {
		names.Insert(pod.Spec.NodeName)
	}
	return names
}

// fate is what becomes of a Node. doubtful says that it is doomed only by a notice that nothing has confirmed, and until when
// to look again.
type fate struct {
	doomed   bool
	notice   Notice
	drained  time.Time
	doubtful bool
	until    time.Time
}

// fateOf is nil for a Node that is gone, or whose instance is: its pods neither survive nor can they be moved. A Node counts
// as doomed from when its notice is heard, lest a job is told of one Node of a reclaim and not of the next, whose mark is
// on its way.
func (c *Controller) fateOf(name string) *fate {
	node := c.node(name)
	if node == nil {
		return nil
	}
	notice, doomed := c.noticeOf(node)
	if !doomed {
		return &fate{}
	}
	switch c.verdictOf(notice.InstanceID) {
	case released:
		return nil
	case withdrawn:
		doomed = false
	}
	until, doubtful := c.isDoubtful(notice)
	return &fate{doomed, notice, timeOf(node, api.AnnotationReclaimDrained), doomed && doubtful, until}
}

// isReturner says whether the pod came onto the Node when its job was done with it already, because it tolerates
// everything. There is nothing to talk over: it is evicted again.
func isReturner(pod *corev1.Pod, node *fate, r round, open bool) bool {
	if open && r.decided {
		return !r.doomed.Has(pod.UID) && pod.CreationTimestamp.After(node.notice.FirstSeen)
	}
	return !node.drained.IsZero() && pod.CreationTimestamp.After(node.drained)
}
