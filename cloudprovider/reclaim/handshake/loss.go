package handshake

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	kubepod "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/work"
)

// leavingPod is a pod that loses its Node.
type leavingPod struct {
	*corev1.Pod
	role   jobs.Role
	notice notice.Notice
}

// loss is what all reclaims together take from a job.
type loss struct {
	party cluster.Party
	// pods are all of the job, those that have ended too.
	pods []*corev1.Pod
	// leaving are the pods on reclaiming Nodes. They have not ended, but may be terminating.
	leaving []leavingPod
	// doubtful are those whose Node has a notice that nothing has confirmed. While others are leaving for certain, they count as
	// survivors. If there are no others they are moved to leaving, and doubtfulUntil is when to look again; else that is zero.
	doubtful      []leavingPod
	doubtfulUntil time.Time
	// rehearsing are those whose Node is only drilled, while others are leaving in earnest: they count as survivors. If there are no others
	// they are moved to leaving, and drill is true.
	rehearsing []leavingPod
	drill      bool
	// moving are those that are to move from their on-demand Node, while others are leaving in earnest: they count as survivors. If there are no
	// others they are moved to leaving, and move is true.
	moving []leavingPod
	move   bool
	// workers and hosts are how many survive.
	workers, hosts int
	// training is how many workers and hosts are not terminating, whether they survive or not.
	training int
}

// add enters a pod with what becomes of its Node.
func (l *loss) add(pod *corev1.Pod, role jobs.Role, node *outlook) {
	switch {
	case node.doubtful:
		l.doubtful = append(l.doubtful, leavingPod{pod, role, node.notice})
		if l.doubtfulUntil.IsZero() || node.until.Before(l.doubtfulUntil) {
			l.doubtfulUntil = node.until
		}
	case node.reclaiming && node.notice.IsMove():
		l.moving = append(l.moving, leavingPod{pod, role, node.notice})
	case node.reclaiming && node.notice.IsDrill():
		l.rehearsing = append(l.rehearsing, leavingPod{pod, role, node.notice})
	case node.reclaiming:
		l.leaving = append(l.leaving, leavingPod{pod, role, node.notice})
	default:
		l.addSurvivor(pod, role)
	}
	if pod.DeletionTimestamp == nil && role != jobs.RoleLauncher {
		l.training++
	}
}

func (l *loss) addSurvivor(pod *corev1.Pod, role jobs.Role) {
	switch {
	case pod.DeletionTimestamp != nil:
	case role == jobs.RoleWorker:
		l.workers++
	case role == jobs.RoleHost:
		l.hosts++
	}
}

// classify decides whether the doubtful pods, the moving and the rehearsing ones count as leaving or as survivors. It is called once all are added.
func (l *loss) classify() {
	switch {
	case len(l.leaving) > 0:
		l.spare(l.doubtful)
		l.doubtfulUntil = time.Time{}
	case len(l.doubtful) > 0:
		l.leaving, l.doubtful = l.doubtful, nil
	case len(l.moving) > 0:
		l.leaving, l.moving, l.move = l.moving, nil, true
	default:
		l.leaving, l.rehearsing, l.drill = l.rehearsing, nil, len(l.rehearsing) > 0
	}
	l.spare(l.moving)
	l.spare(l.rehearsing)
}

// spare has the pods count as survivors.
func (l *loss) spare(pods []leavingPod) {
	for _, pod := range pods {
		l.addSurvivor(pod.Pod, pod.role)
	}
}

// onlySaves returns whether the job is only to save its work: a drill of one of its Nodes ends with that.
func (l *loss) onlySaves() bool {
	return l.drill && slices.ContainsFunc(l.leaving, func(pod leavingPod) bool { return !pod.notice.Evicts() })
}

func uids(pods []leavingPod) sets.Set[types.UID] {
	found := sets.New[types.UID]()
	for _, pod := range pods {
		found.Insert(pod.UID)
	}
	return found
}

// hasNewcomers returns whether there are pods that this handshake did not ask.
func (l *loss) hasNewcomers(s state) bool {
	for _, pod := range l.leaving {
		if !s.hasAsked(pod) && pod.DeletionTimestamp == nil {
			return true
		}
	}
	return false
}

// stays returns whether some of the leaving pods are still there now.
func (l *loss) stays(now loss) bool {
	leaving := uids(l.leaving)
	return slices.ContainsFunc(now.pods, func(pod *corev1.Pod) bool { return leaving.Has(pod.UID) && !kubepod.IsPodTerminal(pod) })
}

// nodes returns the names of the Nodes of the leaving pods.
func (l *loss) nodes() sets.Set[string] {
	names := sets.New[string]()
	for _, pod := range l.leaving {
		names.Insert(pod.Spec.NodeName)
	}
	return names
}

// object returns what to write an Event on: the job, or else one of the pods that it loses.
func (l *loss) object(s state) runtime.Object {
	if s.job != nil && s.job.Object != nil {
		return s.job.Object
	}
	return l.leaving[0].Pod
}

// restartsInPlace returns whether one of the pods is restarted on its Node when it ends.
func (l *loss) restartsInPlace() bool {
	for _, pod := range l.leaving {
		if pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
			return true
		}
	}
	return false
}

// isTooSmallFor returns whether the job cannot go on with what survives.
func (l *loss) isTooSmallFor(job jobs.Job) bool {
	for _, pod := range l.leaving {
		if pod.role == jobs.RoleLauncher || pod.role == jobs.RoleHost && job.NeedsHosts {
			return true
		}
	}
	return l.survivors(job) < job.Min
}

// survivors counts hosts only if they train. If there are more workers and hosts than the workers that the job asks for, they do
// not.
func (l *loss) survivors(job jobs.Job) int {
	if l.training > job.Replicas {
		return l.workers
	}
	return l.workers + l.hosts
}

// leavingWorkers returns the names of those that are not terminating yet.
func (l *loss) leavingWorkers() (names []string) {
	for _, pod := range l.leaving {
		if pod.role == jobs.RoleWorker && pod.DeletionTimestamp == nil {
			names = append(names, pod.Name)
		}
	}
	return names
}

// isBeingEnded returns whether all pods that leave are terminating.
func (l *loss) isBeingEnded() bool {
	return !slices.ContainsFunc(l.leaving, func(pod leavingPod) bool { return pod.DeletionTimestamp == nil })
}

// firstSeen returns when the first of the notices was seen.
func (l *loss) firstSeen() (first time.Time) {
	for _, pod := range l.leaving {
		if seen := pod.notice.FirstSeen; first.IsZero() || seen.Before(first) {
			first = seen
		}
	}
	return first
}

const (
	// saveMargin is what is left for the decision and the drain when the wait for the acknowledgement ends, and
	// saveMarginFraction the part of a short notice.
	saveMargin         = 20 * time.Second
	saveMarginFraction = 10
	defaultGrace       = 30 * time.Second
)

// timeLimit returns when the first of the pods must leave, so that it has its grace period before the deadline, and its job's system
// is asked before evictions turn into deletions. Terminating pods count only if there are no others.
func (l *loss) timeLimit() (until time.Time) {
	for _, terminating := range []bool{false, true} {
		for _, pod := range l.leaving {
			if end := pod.timeLimit(); terminating == (pod.DeletionTimestamp != nil) && (until.IsZero() || end.Before(until)) {
				until = end
			}
		}
		if !until.IsZero() {
			break
		}
	}
	return until
}

// timeLimit grants at most half of the notice as the pod's grace period: more would leave nothing to wait for the acknowledgement.
func (p leavingPod) timeLimit() time.Time {
	length := p.notice.Length()
	grace := time.Duration(ptr.Deref(p.Spec.TerminationGracePeriodSeconds, int64(defaultGrace/time.Second))) * time.Second
	end := notice.Earlier(p.notice.Deadline.Add(-min(grace, length/2)), p.notice.DeleteFrom())
	return end.Add(-min(saveMargin, length/saveMarginFraction))
}

// outlook is what becomes of a Node.
type outlook struct {
	reclaiming bool
	notice     notice.Notice
	drained    time.Time
	// doubtful is true if only a notice that nothing has confirmed says that it is reclaiming; until is when to look again.
	doubtful bool
	until    time.Time
}

// losses finds out what reclaims take from jobs. It changes nothing.
type losses struct {
	cluster *cluster.Cluster
	notices *notice.Store
	table   *table
}

// of looks at all pods of the party once.
func (f *losses) of(party cluster.Party) loss {
	l := loss{party: party, pods: f.cluster.PodsOf(party)}
	s, open := f.table.get(party)
	nodes := map[string]*outlook{}
	for _, pod := range l.pods {
		if pod.Spec.NodeName == "" || kubepod.IsPodTerminal(pod) {
			continue
		}
		node, known := nodes[pod.Spec.NodeName]
		if !known {
			node = f.outlookFor(pod.Spec.NodeName)
			nodes[pod.Spec.NodeName] = node
		}
		if node == nil || node.reclaiming && !node.doubtful && cameBack(pod, node, s, open) {
			continue
		}
		l.add(pod, f.cluster.RoleOf(pod), node)
	}
	l.classify()
	return l
}

// rankOf returns the place of the party in the queue: all jobs are asked for a checkpoint before the first of them takes the next step,
// because saving takes time.
//
// The queue calls it under its lock, and for a party with a handshake again and again: that is ranked by what the last look has found.
func (f *losses) rankOf(party cluster.Party) work.Rank {
	if s, open := f.table.get(party); open {
		return work.Rank{Later: true, Deadline: s.deadline, Name: s.firstNode}
	}
	rank, looked := work.Rank{}, sets.New[string]()
	for _, pod := range f.cluster.PodsOf(party) {
		node := f.cluster.Node(pod.Spec.NodeName)
		if node == nil || looked.Has(node.Name) {
			continue
		}
		looked.Insert(node.Name)
		n, reclaiming := f.notices.Of(node)
		if !reclaiming {
			continue
		}
		if rank.Deadline.IsZero() || n.Deadline.Before(rank.Deadline) {
			rank.Deadline = n.Deadline
		}
		if rank.Name == "" || node.Name < rank.Name {
			rank.Name = node.Name
		}
	}
	return rank
}

// gone returns those of the pods of the party, by name, that do not exist any more or have ended.
func (f *losses) gone(party cluster.Party, names []string) []string {
	gone := sets.New(names...)
	for _, pod := range f.cluster.PodsOf(party) {
		if !kubepod.IsPodTerminal(pod) {
			gone.Delete(pod.Name)
		}
	}
	return sets.List(gone)
}

// outlookFor returns nil for a Node that is gone, or whose instance is: its pods neither survive nor can they be moved. A Node
// counts as reclaiming from when its notice is known. Otherwise a job would be told of one Node of a reclaim and not of the next,
// whose marks are on their way.
func (f *losses) outlookFor(name string) *outlook {
	node := f.cluster.Node(name)
	if node == nil {
		return nil
	}
	n, reclaiming := f.notices.Of(node)
	if !reclaiming {
		return &outlook{}
	}
	switch f.notices.Verdicts.On(n.InstanceID) {
	case notice.Released:
		return nil
	case notice.Withdrawn:
		reclaiming = false
	}
	until, doubtful := f.notices.DoubtfulUntil(n)
	return &outlook{
		reclaiming: reclaiming, notice: n, drained: cluster.DrainedAt(node), doubtful: reclaiming && doubtful, until: until,
	}
}

// cameBack returns whether the pod came to the Node after its job was done with it, because it tolerates everything. It needs no
// handshake, and is evicted again.
func cameBack(pod *corev1.Pod, node *outlook, s state, open bool) bool {
	if open && s.phase.isDecided() {
		return !s.leaving.Has(pod.UID) && pod.CreationTimestamp.After(node.notice.FirstSeen)
	}
	return !node.drained.IsZero() && pod.CreationTimestamp.After(node.drained)
}
