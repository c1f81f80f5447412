package reclaim

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
)

var notes = []string{api.AnnotationReclaimDeadline, api.AnnotationReclaimNoticed, api.AnnotationReclaimStated, api.AnnotationReclaimSource, api.AnnotationReclaimConfirmed, api.AnnotationReclaimCordoned, api.AnnotationReclaimDrained, api.AnnotationReclaimForced}

// isMarked says whether anything on the Node says that it is doomed. A mark may be incomplete: someone untainted it.
func isMarked(node *corev1.Node) bool {
	_, annotated := node.Annotations[api.AnnotationReclaimDeadline]
	return annotated || slices.ContainsFunc(node.Spec.Taints, isOurs)
}

func isOurs(taint corev1.Taint) bool { return taint.Key == api.TaintReclaim }

func isCordon(taint corev1.Taint) bool { return taint.MatchTaint(&cordonTaint) }

// cordonTaint is what the controller-manager puts on a Node that is unschedulable. It comes with the marks, so that a
// thousand of them are not a thousand more changes by somebody else.
var cordonTaint = corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}

func isDrained(node *corev1.Node) bool {
	_, drained := node.Annotations[api.AnnotationReclaimDrained]
	return drained
}

// readMark is the notice as written on the Node. It is false where the deadline cannot be read.
func readMark(node *corev1.Node, instanceID string) (Notice, bool) {
	deadline, err := time.Parse(time.RFC3339, node.Annotations[api.AnnotationReclaimDeadline])
	if err != nil {
		i := slices.IndexFunc(node.Spec.Taints, isOurs)
		if i < 0 {
			return Notice{}, false
		}
		seconds, err := strconv.ParseInt(node.Spec.Taints[i].Value, 10, 64)
		if err != nil {
			return Notice{}, false
		}
		deadline = time.Unix(seconds, 0)
	}
	notice := Notice{InstanceID: instanceID, Deadline: deadline.UTC(), Stated: node.Annotations[api.AnnotationReclaimStated] == "true", Source: SourceUnknown}
	if source := node.Annotations[api.AnnotationReclaimSource]; source != "" {
		notice.Source = Source(source)
	}
	notice.Confirmed = notice.Source != SourcePush || node.Annotations[api.AnnotationReclaimConfirmed] == "true"
	if notice.FirstSeen, err = time.Parse(time.RFC3339, node.Annotations[api.AnnotationReclaimNoticed]); err != nil {
		notice.FirstSeen = notice.Deadline.Add(-DefaultNoticePeriod)
	}
	return notice, true
}

// markPatch is the merge patch that completes the Node's marks; nil where they are complete.
func markPatch(node *corev1.Node, n Notice) nodePatch {
	taint := corev1.Taint{Key: api.TaintReclaim, Value: strconv.FormatInt(n.Deadline.Unix(), 10), Effect: corev1.TaintEffectNoSchedule}
	wanted := map[string]string{
		api.AnnotationReclaimDeadline: n.Deadline.UTC().Format(time.RFC3339),
		api.AnnotationReclaimNoticed:  n.FirstSeen.UTC().Format(time.RFC3339Nano),
		api.AnnotationReclaimSource:   string(n.Source),
	}
	if n.Stated {
		wanted[api.AnnotationReclaimStated] = "true"
	}
	if n.Confirmed && n.Source == SourcePush {
		wanted[api.AnnotationReclaimConfirmed] = "true"
	}
	if !node.Spec.Unschedulable {
		wanted[api.AnnotationReclaimCordoned] = "true"
	}
	patch := nodePatch{}
	for key, value := range wanted {
		if node.Annotations[key] != value {
			patch.annotate(key, value)
		}
	}
	if node.Labels[api.LabelReclaiming] != "true" {
		patch.set("true", "metadata", "labels", api.LabelReclaiming)
	}
	if !node.Spec.Unschedulable {
		patch.set(true, "spec", "unschedulable")
	}
	if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) && t.Value == taint.Value }) {
		taints := append(otherTaints(node), taint)
		if !node.Spec.Unschedulable && !slices.ContainsFunc(taints, isCordon) {
			taints = append(taints, cordonTaint)
		}
		patch.set(taints, "spec", "taints")
	}
	return patch
}

// unmarkPatch takes off what markPatch and the sources put on, and nothing else; empty where nothing is left of it.
func unmarkPatch(node *corev1.Node, at time.Time) nodePatch {
	patch := nodePatch{}
	for _, key := range slices.Concat(notes, evidence) {
		if _, ok := node.Annotations[key]; ok {
			patch.annotate(key, nil)
		}
	}
	if _, ok := node.Labels[api.LabelReclaiming]; ok {
		patch.set(nil, "metadata", "labels", api.LabelReclaiming)
	}
	others := otherTaints(node)
	if node.Spec.Unschedulable && node.Annotations[api.AnnotationReclaimCordoned] == "true" {
		patch.set(nil, "spec", "unschedulable")
		others = slices.DeleteFunc(others, isCordon)
	}
	if len(others) < len(node.Spec.Taints) {
		patch.set(others, "spec", "taints")
	}
	if len(patch) > 0 {
		patch.annotate(api.AnnotationReclaimCancelled, at.UTC().Format(time.RFC3339))
	}
	return patch
}

// drainedPatch notes when the Node was first without pods; empty where that is noted already.
func drainedPatch(node *corev1.Node, at time.Time) nodePatch {
	patch := nodePatch{}
	if isMarked(node) && !isDrained(node) {
		patch.annotate(api.AnnotationReclaimDrained, at.UTC().Format(time.RFC3339Nano))
	}
	return patch
}

func otherTaints(node *corev1.Node) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(node.Spec.Taints), isOurs)
}

// nodePatch is a JSON merge patch of a Node. Empty means that there is nothing to change.
type nodePatch map[string]any

func (p nodePatch) annotate(key string, value any) { p.set(value, "metadata", "annotations", key) }

// set puts the value at the path; nil removes what is there.
func (p nodePatch) set(value any, path ...string) {
	at := p
	for _, key := range path[:len(path)-1] {
		next, ok := at[key].(nodePatch)
		if !ok {
			next = nodePatch{}
			at[key] = next
		}
		at = next
	}
	at[path[len(path)-1]] = value
}

// against makes the patch fail with a conflict where the Node is no longer the one that it was made from: merge patches
// replace the list of taints as a whole, so a taint added by somebody else in between would be lost.
func (p nodePatch) against(node *corev1.Node) ([]byte, error) {
	p.set(node.ResourceVersion, "metadata", "resourceVersion")
	return json.Marshal(p)
}
