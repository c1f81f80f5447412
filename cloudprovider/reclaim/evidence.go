package reclaim

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// evidence is what is taken off a Node that is given back.
var evidence = []string{api.AnnotationNoticePush, api.AnnotationNoticePushReceived, api.AnnotationNoticeAgent}

// wordsOn are those that stand on the Node.
func (c *Controller) wordsOn(node *corev1.Node) (words []word) {
	id := c.instanceID(node)
	if id == "" {
		return nil
	}
	for _, w := range []word{ // what is held unless it is confirmed comes last
		{id, SourceAgent, timeOf(node, api.AnnotationNoticeAgent), time.Time{}},
		{id, SourcePush, timeOf(node, api.AnnotationNoticePush), timeOf(node, api.AnnotationNoticePushReceived)},
	} {
		if hasWord(node, w.source) && !c.isOver(w) {
			words = append(words, w)
		}
	}
	refuted := timeOf(node, api.AnnotationReclaimCancelled)
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
		return node.Annotations[api.AnnotationNoticePush] != ""
	}
	return node.Annotations[api.AnnotationNoticeAgent] != ""
}

func expiredSince(node *corev1.Node) (at time.Time, expired bool) {
	for _, condition := range node.Status.Conditions {
		if condition.Type == api.ConditionInstanceExpired && condition.Status == corev1.ConditionTrue {
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
