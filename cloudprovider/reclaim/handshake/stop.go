package handshake

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubepod "k8s.io/kubernetes/pkg/api/v1/pod"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

// stopWait is how long a job that was submitted with api.AnnotationSupervisorSpot has to save its work, if nobody on its port
// could be told to stop. A job that was told is given all the time there is.
const stopWait = 90 * time.Second

// stopLook is how often it is looked at whether a job that was told to stop has ended, or has acknowledged.
const stopLook = 500 * time.Millisecond

// isToBeStopped returns whether the job is told to stop before it is suspended, or has stopped because a former leader told it: it was submitted
// so that it can be told on its port, cannot go on, and has not acknowledged yet.
func (l *loss) isToBeStopped(s state) bool {
	if s.acknowledged || s.job == nil || s.job.Suspended || s.job.Finished {
		return false
	}
	return s.job.Stopped || l.listensForStop() && l.isTooSmallFor(*s.job)
}

// stop has a job that is about to be suspended save its work. It returns when the job has ended, or has acknowledged the request, or
// there is no more time, or nobody was told and the job has nothing more to lose. The result is whether the job was told, and so ends,
// whatever else becomes of its Nodes.
func (c *Controller) stop(ctx context.Context, l loss, s state) (stops bool) {
	began := c.config.Clock.Now()
	launcher := c.losses.launcherOf(l)
	noteEnd := func() {
		if c.table.conclude(l.party, s, checkpointAcknowledged) {
			c.config.Events.Eventf(l.object(s), events.ReasonSaved, notice.PrefixOf(s.drill)+"The job has ended after it was told to save its work, %s before the release", s.left(c.config.Clock.Now()))
		}
	}
	if s.job.Stopped {
		noteEnd()
		return false // whether it is still to be suspended is known when it is read again
	}
	var pods int
	var stopped bool
	err := c.systems.call(ctx, l.party, actionStop, began.Add(l.patience()), func(ctx context.Context) (err error) {
		if pods, err = c.config.Jobs.Stop(ctx, *s.job); err == nil && pods == 0 {
			job, getErr := c.config.Jobs.Get(ctx, s.job.Ref)
			stopped = getErr == nil && job.Stopped // because a former leader told it
		}
		return err
	})
	if isFailure(ctx, err) {
		klog.FromContext(ctx).Error(err, "Could not tell the job to stop before it is suspended", "job", l.party)
	}
	if stopped {
		noteEnd()
		return false
	}
	until := l.timeLimit()
	if pods == 0 {
		until = notice.Earlier(until, began.Add(stopWait))
		launcher = "" // if it ends, that has another reason
	}
	for c.config.Clock.Now().Before(until) {
		if c.losses.hasAcknowledged(l.party, s) {
			return pods > 0
		}
		if launcher != "" && c.losses.hasEnded(l.party, launcher) {
			noteEnd()
			return true
		}
		if pods == 0 && !c.table.has(l.party) {
			return false
		}
		select {
		case <-ctx.Done():
			return pods > 0
		case <-c.config.Clock.After(stopLook):
		}
	}
	if c.table.conclude(l.party, s, checkpointMissed) {
		c.config.Events.Eventf(l.object(s), events.ReasonUnsaved, notice.PrefixOf(s.drill)+"The job was told to save its work (%d pods heard it), and did not end in time; %s", pods, s.goesOn())
	}
	return pods > 0
}

// listensForStop returns whether one of the pods was submitted so that it can be told.
func (l *loss) listensForStop() bool {
	for _, pod := range l.pods {
		if pod.Annotations[api.AnnotationSupervisorSpot] == "true" && pod.Status.Phase == corev1.PodRunning {
			return true
		}
	}
	return false
}

// launcherOf returns the launcher that runs, empty for none.
func (f *losses) launcherOf(l loss) types.UID {
	for _, pod := range l.pods {
		if f.cluster.RoleOf(pod) == jobs.RoleLauncher && !kubepod.IsPodTerminal(pod) {
			return pod.UID
		}
	}
	return ""
}

// hasAcknowledged goes also by the request that was made since, when more Nodes followed.
func (f *losses) hasAcknowledged(party cluster.Party, s state) bool {
	l := f.of(party)
	current, open := f.table.get(party)
	return f.isAcknowledged(l, s) || open && f.isAcknowledged(l, current)
}

// hasEnded returns whether the pod is gone or has ended.
func (f *losses) hasEnded(party cluster.Party, uid types.UID) bool {
	for _, pod := range f.cluster.PodsOf(party) {
		if pod.UID == uid && !kubepod.IsPodTerminal(pod) {
			return false
		}
	}
	return true
}
