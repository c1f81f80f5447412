package handshake

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs/podindex"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/work"
)

// isAcknowledged returns whether the job has acknowledged that its work is saved: on one of its pods, or through the node-agent
// on the Node of one. The acknowledgement of a pod that has ended counts.
func (f *losses) isAcknowledged(l loss, s state) bool {
	pods := map[string][]*corev1.Pod{}
	for _, pod := range l.pods {
		if pod.Annotations[api.AnnotationCheckpointAcknowledged] == s.id {
			return true
		}
		if pod.Spec.NodeName != "" {
			pods[pod.Spec.NodeName] = append(pods[pod.Spec.NodeName], pod)
		}
	}
	for name, onNode := range pods {
		if node := f.cluster.Node(name); node != nil && isAcknowledgedOn(node, s, onNode) {
			return true
		}
	}
	return false
}

// isAcknowledgedOn looks on the Node for the acknowledgement of one of the pods, which are those of the job on this Node.
func isAcknowledgedOn(node *corev1.Node, s state, pods []*corev1.Pod) bool {
	for entry := range strings.SplitSeq(node.Annotations[api.AnnotationCheckpointAcknowledged], ",") {
		a, ok := parseAcknowledgement(entry)
		if ok && slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return a.answers(s) && a.isFrom(pod) }) {
			return true
		}
	}
	return false
}

// acknowledgement is an entry of what the node-agent wrote: either the id of a request, or the pod, as "<namespace>/<name>", of a
// process that knows no id, and when it acknowledged.
type acknowledgement struct {
	id, pod string
	at      time.Time
	// caller is an IP address, or api.CallerHost.
	caller string
}

// parseAcknowledgement returns false for an entry of another form, such as that of an agent that did not write the caller:
// anybody on the node may have made that.
func parseAcknowledgement(entry string) (a acknowledgement, ok bool) {
	parts := strings.Split(strings.TrimSpace(entry), "@")
	switch len(parts) {
	case 2:
		return acknowledgement{id: parts[0], caller: parts[1]}, true
	case 3:
		seconds, err := strconv.ParseInt(parts[1], 10, 64)
		return acknowledgement{pod: parts[0], at: time.Unix(seconds, 0), caller: parts[2]}, err == nil
	}
	return acknowledgement{}, false
}

// answers returns whether it is about this request.
func (a acknowledgement) answers(s state) bool {
	return a.id == s.id || a.pod != "" && a.at.Unix() >= s.requested.Unix()
}

// isFrom returns whether the pod may have made it: it came from its address, and if it names a pod, that is its name. Pods on the
// node's network share an address, and a name is no secret. So of these only the id counts, which is secret.
func (a acknowledgement) isFrom(pod *corev1.Pod) bool {
	if a.pod != "" && (a.caller == api.CallerHost || a.pod != pod.Namespace+"/"+pod.Name) {
		return false
	}
	return slices.Contains(podindex.CallersOf(pod), a.caller)
}

// awaitsUntil returns until when the acknowledgement is worth waiting for, never beyond the time limit. It is zero if no running pod
// has declared that one will come.
func (l *loss) awaitsUntil(s state) (until time.Time) {
	limit := l.timeLimit()
	for _, pod := range l.pods {
		if longest, declared, _ := awaitOn(pod); declared {
			until = notice.Later(until, notice.Earlier(limit, s.requested.Add(longest)))
		}
	}
	return until
}

// asLongAsPossible is how long pods wait for an acknowledgement that state no time.
const asLongAsPossible time.Duration = math.MaxInt64

// awaitOn returns for how long an acknowledgement of the pod is worth waiting for, and whether the pod runs and has declared that one
// will come. The error is about a value that is neither true nor a duration, and counts as true.
func awaitOn(pod *corev1.Pod) (longest time.Duration, declared bool, err error) {
	value := pod.Annotations[api.AnnotationAwaitCheckpoint]
	if value == "" || value == "false" || pod.Status.Phase != corev1.PodRunning {
		return 0, false, nil
	}
	if value == "true" {
		return asLongAsPossible, true, nil
	}
	if longest, err = time.ParseDuration(value); err != nil {
		return asLongAsPossible, true, fmt.Errorf("annotation %s: %w", api.AnnotationAwaitCheckpoint, err)
	}
	return longest, true, nil
}

// reportMalformedAwaits writes to the log which of the pods have a value that awaitOn cannot read.
func reportMalformedAwaits(ctx context.Context, pods []*corev1.Pod) {
	for _, pod := range pods {
		if _, _, err := awaitOn(pod); err != nil {
			klog.FromContext(ctx).V(1).Info("Waiting as long as possible for the acknowledgement of a pod", "pod", klog.KObj(pod), "err", err)
		}
	}
}

// Rehearsals are the handshakes of drills: they ask the same, and those that end with the acknowledgement decide nothing. They are safe
// for concurrent use.
type Rehearsals struct {
	config Config
	queue  work.Queue[cluster.Party]
	table  *table
	losses *losses
}

// awaitSaved is the whole handshake with a job that is only to save its work: nobody leaves. It tells once that the acknowledgement has not come
// in time.
func (r *Rehearsals) awaitSaved(l loss, s state) {
	now, until := r.config.Clock.Now(), l.awaitsUntil(s)
	switch {
	case s.outcome != "" || until.IsZero() || !now.Before(s.deadline):
	case now.Before(until):
		r.queue.AddAfter(l.party, until.Sub(now))
	case r.table.conclude(l.party, s, checkpointMissed):
		r.config.Events.Eventf(l.object(s), events.ReasonUnsaved, notice.PrefixOf(l.drill)+"No acknowledgement that the work is saved (request %s) came in time", s.id)
	}
}

// HaveSaved returns whether no job on the Node is awaited any more: each was asked, and has acknowledged or let its time go by, or is not waited
// for. It also returns whether none has let its time go by.
func (r *Rehearsals) HaveSaved(node string) (done, all bool) {
	all = true
	for _, pod := range cluster.Drainable(r.config.Cluster.PodsOn(node)) {
		if pod.DeletionTimestamp != nil {
			continue // it leaves anyway
		}
		party := r.config.Cluster.PartyOf(pod)
		s, open := r.table.get(party)
		if !open || !s.drill || !s.leaving.Has(pod.UID) || !s.acknowledged && r.isAwaited(party, s) {
			return false, false
		}
		all = all && (s.acknowledged || s.outcome != checkpointMissed)
	}
	return true, all
}

// isAwaited returns whether the job is yet to be asked, or its acknowledgement may still come in time. That it does not is for awaitSaved to tell
// first.
func (r *Rehearsals) isAwaited(party cluster.Party, s state) bool {
	if s.phase == Asking || s.phase == Warning {
		return true
	}
	l := r.losses.of(party)
	return s.outcome == "" && !l.awaitsUntil(s).IsZero()
}

// LoseInEarnest returns whether a job on the Node loses pods to a notice that is no drill.
func (r *Rehearsals) LoseInEarnest(node string) bool {
	for _, pod := range cluster.Drainable(r.config.Cluster.PodsOn(node)) {
		if l := r.losses.of(r.config.Cluster.PartyOf(pod).Job()); len(l.leaving) > 0 && !l.drill {
			return true
		}
	}
	return false
}
