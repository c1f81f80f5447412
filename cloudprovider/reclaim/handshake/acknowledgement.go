package handshake

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
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
	return slices.Contains(callersOf(pod), a.caller)
}

// callersOf returns the addresses that the node-agent sees when the pod calls it.
func callersOf(pod *corev1.Pod) (callers []string) {
	if pod.Spec.HostNetwork {
		return []string{api.CallerHost}
	}
	for _, ip := range pod.Status.PodIPs {
		if address, err := netip.ParseAddr(ip.IP); err == nil {
			callers = append(callers, address.Unmap().String())
		}
	}
	return callers
}

// awaitsUntil returns until when the acknowledgement is worth waiting for, never beyond the budget. It is zero if no running pod
// has declared that one will come.
func (l *loss) awaitsUntil(s state) (until time.Time) {
	budget := l.budget()
	for _, pod := range l.pods {
		declared := pod.Annotations[api.AnnotationAwaitCheckpoint]
		if declared == "" || declared == "false" || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		limit := budget
		if longest, err := time.ParseDuration(declared); err == nil {
			limit = notice.Earlier(budget, s.requested.Add(longest))
		} else if declared != "true" {
			klog.V(1).InfoS("Neither true nor a duration; waiting as long as possible", "annotation", api.AnnotationAwaitCheckpoint, "pod", klog.KObj(pod), "value", declared)
		}
		until = notice.Later(until, limit)
	}
	return until
}
