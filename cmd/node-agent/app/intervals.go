package app

import (
	"context"
	"strings"
	"time"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// intervalsEvery is how often the Node is read for the intervals that its pods are advised. They change over hours.
const intervalsEvery = 5 * time.Minute

// keepIntervals reads the intervals that pods are advised until ctx ends. While the Node cannot be read they stay as they are.
func (a *agent) keepIntervals(ctx context.Context) {
	for a.retry(ctx, func() error {
		node, err := a.node.get(ctx, metadataOnly)
		if err != nil {
			return err
		}
		intervals := intervalsOn(node)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.intervals = intervals
		return nil
	}) {
		if !a.sleep(ctx, intervalsEvery) {
			return
		}
	}
}

// intervalsOn returns the intervals that the autoscaler has written on the Node, by the caller.
func intervalsOn(n *node) map[string]time.Duration {
	intervals := map[string]time.Duration{}
	for entry := range strings.SplitSeq(n.Annotations[api.AnnotationCheckpointIntervals], ",") {
		caller, text, _ := strings.Cut(entry, "=")
		if interval, err := time.ParseDuration(text); err == nil && interval > 0 {
			intervals[caller] = interval
		}
	}
	return intervals
}

// intervalOf returns how long the caller is advised to train from one checkpoint to the next, zero if that is not known.
func (a *agent) intervalOf(caller string) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.intervals[caller]
}
