package reclaim

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// What sources write on Nodes. The controller hears them through the informer, so that they outlive whoever wrote them.
const (
	// PushAnnotation is the deadline of a pushed notice, RFC 3339; see NewPushHandler.
	PushAnnotation = "gpu-spot.autoscaling/notice-push"
	// AgentAnnotation is the deadline that the instance's metadata tell, RFC 3339. The node-agent takes it off when they
	// no longer do.
	AgentAnnotation = "gpu-spot.autoscaling/notice-agent"
	// ExpiredCondition is True while ACK's node-problem-detector sees that the instance is to be released.
	ExpiredCondition corev1.NodeConditionType = "InstanceExpired"

	// pushedAnnotation is when the notice of PushAnnotation came in, RFC 3339.
	pushedAnnotation = "gpu-spot.autoscaling/notice-push-received"
	// refutedAnnotation is when the Node was last given back, RFC 3339. What was said before counts no more: a condition
	// that nobody takes off, an event that is delivered again.
	refutedAnnotation = "gpu-spot.autoscaling/reclaim-refuted"
)

// evidence is what is taken off a Node that is given back.
var evidence = []string{PushAnnotation, pushedAnnotation, AgentAnnotation}

// wordsOn are those that stand on the Node.
func (c *Controller) wordsOn(node *corev1.Node) (words []word) {
	id := c.instanceID(node)
	if id == "" {
		return nil
	}
	for _, w := range []word{
		{id, SourcePush, timeOf(node, PushAnnotation), timeOf(node, pushedAnnotation)},
		{id, SourceAgent, timeOf(node, AgentAnnotation), time.Time{}},
	} {
		if hasWord(node, w.source) && !c.isOver(w) {
			words = append(words, w)
		}
	}
	refuted := timeOf(node, refutedAnnotation)
	if at, expired := expiredSince(node); expired && (refuted.IsZero() || at.After(refuted)) {
		if c.Clock.Since(at) > c.NoticePeriod {
			at = time.Time{} // it has outlived an estimate from there
		}
		words = append(words, word{instanceID: id, source: SourceCondition, at: at})
	}
	return words
}

// isOver says whether the instance has outlived the deadline by so much that the word came to nothing, or would have.
func (c *Controller) isOver(w word) bool {
	return !w.deadline.IsZero() && c.Clock.Since(w.deadline) >= releaseGrace
}

// hasWord says whether the source's annotation has a value, readable or not: that there is a notice counts for more than
// its deadline.
func hasWord(node *corev1.Node, source Source) bool {
	if source == SourcePush {
		return node.Annotations[PushAnnotation] != ""
	}
	return node.Annotations[AgentAnnotation] != ""
}

func expiredSince(node *corev1.Node) (at time.Time, expired bool) {
	for _, condition := range node.Status.Conditions {
		if condition.Type == ExpiredCondition && condition.Status == corev1.ConditionTrue {
			return condition.LastTransitionTime.Time, true
		}
	}
	return time.Time{}, false
}

// timeOf is zero for an annotation that is missing or cannot be read.
func timeOf(node *corev1.Node, annotation string) time.Time {
	text := node.Annotations[annotation]
	if text == "" {
		return time.Time{} // and no error is made: this is asked of every Node at every heartbeat
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return at
}
