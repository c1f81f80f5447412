package reclaim

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// acknowledgement is an entry of what the node-agent wrote: either the id of a request, or the pod, "<namespace>/<name>",
// of a process that knows of no id, and when it came.
type acknowledgement struct {
	id, pod string
	at      time.Time
	// caller is an IP address, or api.CallerHost.
	caller string
}

// parseAcknowledgement is false for what is none: one of an agent that did not write the caller too, since anybody on the
// node may have said that.
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

// nodeSays looks for the acknowledgement of one of the pods, which are those of the job on this Node.
func nodeSays(node *corev1.Node, r round, pods []*corev1.Pod) bool {
	for entry := range strings.SplitSeq(node.Annotations[api.AnnotationCheckpointAcknowledged], ",") {
		a, ok := parseAcknowledgement(entry)
		if ok && slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return a.answers(r) && a.isOf(pod) }) {
			return true
		}
	}
	return false
}

// answers says whether it is about this request.
func (a acknowledgement) answers(r round) bool {
	return a.id == r.id || a.pod != "" && a.at.Unix() >= r.requested.Unix()
}

// isOf says whether the pod may have said it: it came from its address and, where it names a pod, that is its name. Pods on
// the node's network share an address and a name is no secret, so that of these only the id counts, which is.
func (a acknowledgement) isOf(pod *corev1.Pod) bool {
	if a.pod != "" && (a.caller == api.CallerHost || a.pod != pod.Namespace+"/"+pod.Name) {
		return false
	}
	return slices.Contains(callersOf(pod), a.caller)
}

// callersOf are the addresses that the node-agent sees when the pod calls it.
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
