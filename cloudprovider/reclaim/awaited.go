package reclaim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
)

const (
	// awaitedBatch is for how long changes of a Node's pods are gathered before the Node is told.
	awaitedBatch   = 100 * time.Millisecond
	awaitedWorkers = 8
	digestLength   = 32
)

// awaitOn has the Nodes of the job's pods say from whom an acknowledgement is awaited. Where nobody waits for one, nothing
// is written: in a reclaim of a thousand nodes that is a thousand requests less.
func (c *Controller) awaitOn(l loss, r round) {
	if l.awaits(r).IsZero() {
		return
	}
	for _, pod := range l.pods {
		if pod.Spec.NodeName != "" && !hasEnded(pod) {
			c.awaited.AddAfter(pod.Spec.NodeName, awaitedBatch)
		}
	}
}

// followAwaited keeps in line what a Node says already: the pod may be gone, have got its address, or been told that its
// Node stays.
func (c *Controller) followAwaited(node *corev1.Node) {
	if _, says := node.Annotations[api.AnnotationAwaitedAcknowledgements]; says {
		c.awaited.AddAfter(node.Name, awaitedBatch)
	}
}

// syncAwaited writes on the Node which of its pods were asked, for the node-agent.
func (c *Controller) syncAwaited(ctx context.Context, name string) error {
	node := c.node(name)
	if node == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	wanted := awaitedFrom(c.podsOn(name))
	_, err := patchNode(ctx, c.MarkClient, node, func(node *corev1.Node) nodePatch {
		patch := nodePatch{}
		switch said, says := node.Annotations[api.AnnotationAwaitedAcknowledgements]; {
		case wanted == "" && says:
			patch.annotate(api.AnnotationAwaitedAcknowledgements, nil)
		case wanted != said:
			patch.annotate(api.AnnotationAwaitedAcknowledgements, wanted)
		}
		return patch
	})
	return err
}

// awaitedFrom is the value of api.AnnotationAwaitedAcknowledgements on the Node of these pods.
func awaitedFrom(pods []*corev1.Pod) string {
	var entries []string
	for _, pod := range pods {
		id := pod.Annotations[api.AnnotationCheckpointRequest]
		if id == "" || hasEnded(pod) {
			continue
		}
		for _, caller := range callersOf(pod) {
			entries = append(entries, caller+"="+digestOf(id))
			if caller != api.CallerHost {
				entries = append(entries, caller+"="+digestOf(pod.Namespace+"/"+pod.Name))
			}
		}
	}
	slices.Sort(entries)
	return strings.Join(slices.Compact(entries), ",")
}

func digestOf(said string) string {
	sum := sha256.Sum256([]byte(said))
	return hex.EncodeToString(sum[:])[:digestLength]
}
