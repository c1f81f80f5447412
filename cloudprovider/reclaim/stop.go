package reclaim

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// stopWait is how long a job that was submitted with api.AnnotationSupervisorSpot has to save its work, where nobody hears on
// its port that it is to stop. One that has heard it is given what there is of time.
const stopWait = 90 * time.Second

// stopFirst has a job that is about to be suspended save its work, where it was submitted so as to be told on its port, and
// returns when it has ended, or has acknowledged the request, or there is no more time. A job that has acknowledged already, or
// that goes on, is not told. It says whether the job heard it, and so ends, whatever else becomes of its Nodes.
func (c *Controller) stopFirst(ctx context.Context, l loss, r round) (told bool) {
	if r.word || r.job == nil || r.job.Suspended || r.job.Finished || !l.listensForStop() || !l.isTooSmallFor(*r.job) {
		return false
	}
	began := c.Clock.Now()
	launcher := c.launcherOf(l)
	var heard int
	err := c.ask(ctx, l.ref, actionStop, began.Add(l.patience()), func(ctx context.Context) (err error) {
		heard, err = c.Jobs.Stop(ctx, *r.job)
		return err
	})
	if err != nil && !errors.Is(err, jobs.ErrNoObject) && !errors.Is(err, jobs.ErrUnsupported) && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "The job could not be told to stop before it is suspended", "job", l.ref)
	}
	until := l.budget()
	if heard == 0 {
		until = earlier(until, began.Add(stopWait))
		launcher = "" // its end is none of our doing
	}
	for c.Clock.Now().Before(until) {
		if c.hasAcknowledged(l.ref, r) {
			return heard > 0
		}
		if c.hasEndedSince(l.ref, launcher) {
			checkpoints.WithLabelValues(l.ref.System, checkpointSaved).Inc()
			c.event(l.object(r), ReasonSaved, "The job has ended after it was told to save its work, %s before the release",
				r.deadline.Sub(c.Clock.Now()).Round(time.Second))
			return true
		}
		select {
		case <-ctx.Done():
			return heard > 0
		case <-c.Clock.After(replaceCheck):
		}
	}
	checkpoints.WithLabelValues(l.ref.System, checkpointMissed).Inc()
	c.event(l.object(r), ReasonUnsaved, "The job was told to save its work (%d pods heard it), and did not end in time; going on without", heard)
	return heard > 0
}

// listensForStop says whether one of the pods was submitted so as to be told.
func (l *loss) listensForStop() bool {
	for _, pod := range l.pods {
		if pod.Annotations[api.AnnotationSupervisorSpot] == "true" && pod.Status.Phase == corev1.PodRunning {
			return true
		}
	}
	return false
}

// launcherOf is the one that runs, empty for none.
func (c *Controller) launcherOf(l loss) types.UID {
	for _, pod := range l.pods {
		if c.Jobs.Member(pod).Role == jobs.RoleLauncher && !hasEnded(pod) {
			return pod.UID
		}
	}
	return ""
}

// hasAcknowledged looks at the round that Nodes which followed may have opened by now, too.
func (c *Controller) hasAcknowledged(ref party, r round) bool {
	l := c.lossOf(ref)
	current, open := c.handshakes.round(ref)
	return c.heard(l, r) || open && c.heard(l, current)
}

// hasEndedSince says whether the launcher is gone, or has ended, and so the job that was told to.
func (c *Controller) hasEndedSince(ref party, launcher types.UID) bool {
	if launcher == "" {
		return false
	}
	for _, pod := range c.podsOf(ref) {
		if pod.UID == launcher && !hasEnded(pod) {
			return false
		}
	}
	return true
}
