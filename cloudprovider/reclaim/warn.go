package reclaim

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
)

const (
	// warnPatience is for how long pods stay that could not be warned: in a reclaim of thousands their turn comes late.
	warnPatience = 2 * time.Minute
	// warnPatienceFraction of a notice that is shorter than usual.
	warnPatienceFraction = 2
)

// warnPatience is that of a pod with this notice.
func (n Notice) warnPatience() time.Duration {
	return max(min(warnPatience, n.Deadline.Sub(n.FirstSeen)/warnPatienceFraction), 0)
}

// Ids are "<Unix seconds of the request>-<random>": a leader that finds one on a pod knows when it was made. The rest cannot
// be guessed: it is all by which a pod on its node's network is known.
func newID(now time.Time) string {
	return fmt.Sprintf("%d-%s", now.Unix(), strings.ToLower(rand.Text()[:randomLength]))
}

// randomLength times five bits cannot be tried out: their digest is on a Node, for all to read who may read Nodes.
const randomLength = 20

// requestedAt is false for what is no id of ours.
func requestedAt(id string) (time.Time, bool) {
	seconds, _, ok := strings.Cut(id, "-")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	return time.Unix(unix, 0), ok && err == nil
}

// openRound returns the round in which the job loses these pods: the one that is open, in memory or on the pods, or a new
// one. Pods that come after the word, or after the decision, were not asked after: they open the next.
func (c *Controller) openRound(l loss) round {
	h := &c.handshakes
	now := c.Clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	r, open := h.rounds[l.ref]
	if !open {
		r = recoverRound(l, now)
		r.word = c.heard(l, *r)
	}
	if (r.word || r.deciding || r.decided) && l.hasNewcomers(*r) {
		blocked := r.blocked || r.deciding && !r.decided
		r = newRound(now)
		r.blocked = blocked
	}
	r.take(l)
	h.rounds[l.ref] = r
	return *r
}

// recoverRound finds the latest that one of the doomed pods was told of, for its present instance; else it makes a new one.
func recoverRound(l loss, now time.Time) *round {
	r := newRound(now)
	found := false
	for _, pod := range l.doomed {
		id := pod.Annotations[api.AnnotationCheckpointRequest]
		at, ok := requestedAt(id)
		if !ok || pod.Annotations[api.AnnotationReclaimInstance] != pod.notice.InstanceID {
			continue
		}
		if !found || at.After(r.requested) || at.Equal(r.requested) && id > r.id {
			r.id, r.requested, found = id, at, true
		}
		if deadline, err := time.Parse(time.RFC3339, pod.Annotations[api.AnnotationReclaimDeadline]); err == nil {
			r.lower(deadline)
		}
	}
	return r
}

func (l *loss) hasNewcomers(r round) bool {
	for _, pod := range l.doomed {
		if !r.has(pod) && pod.DeletionTimestamp == nil {
			return true
		}
	}
	return false
}

func (r *round) has(pod doomedPod) bool {
	if r.spared.Has(pod.UID) {
		return false
	}
	return r.doomed.Has(pod.UID) ||
		pod.Annotations[api.AnnotationCheckpointRequest] == r.id && pod.Annotations[api.AnnotationReclaimInstance] == pod.notice.InstanceID
}

// take lets the doomed pods join. The deadline follows what is known of the Nodes, but is not put off because the pods of
// the first are gone.
func (r *round) take(l loss) {
	doomed := uids(l.doomed)
	if r.doomed != nil && doomed.IsSuperset(r.doomed) {
		r.deadline = time.Time{}
	}
	for _, pod := range l.doomed {
		r.lower(pod.notice.Deadline)
	}
	r.doomed = doomed
}

func (r *round) lower(deadline time.Time) {
	if r.deadline.IsZero() || deadline.Before(r.deadline) {
		r.deadline = deadline
	}
}

// warn writes the request on the pods of the job that do not have it, on the doomed first: it is by them that the next
// leader knows the round. Pods of no known system are warned of their own fate only, unless their annotations make them one
// job: replicas of a service do not train together.
func (c *Controller) warn(ctx context.Context, l loss, r round) error {
	instances := make(map[types.UID]string, len(l.doomed))
	for _, pod := range l.doomed {
		instances[pod.UID] = pod.notice.InstanceID
	}
	var doomed, survivors []*corev1.Pod
	for _, pod := range l.pods {
		instance, isDoomed := instances[pod.UID]
		switch {
		case pod.Spec.NodeName == "" || hasEnded(pod) || pod.DeletionTimestamp != nil || r.hasWarned(pod, instance):
		case isDoomed:
			doomed = append(doomed, pod)
		case areOneJob(l.ref.Ref, pod) && r.concerns(pod):
			survivors = append(survivors, pod)
		}
	}
	warn := func(ctx context.Context, pod *corev1.Pod) error {
		return c.warnPod(ctx, l.ref.Ref, pod, r, instances[pod.UID])
	}
	if err := c.forEach(ctx, doomed, warn); err != nil {
		return err
	}
	return c.forEach(ctx, survivors, warn)
}

// concerns says whether a pod that survives is to save its work: all that were there when that was asked for, even if the
// word has come before they could be told. What comes after the word has nothing to save.
func (r *round) concerns(pod *corev1.Pod) bool {
	return !r.word && !r.decided || !pod.CreationTimestamp.After(r.requested)
}

// warnPod: the instance is empty for survivors.
func (c *Controller) warnPod(ctx context.Context, job jobs.Ref, pod *corev1.Pod, r round, instance string) error {
	if err := c.annotate(ctx, pod, r.warning(instance).missingOn(pod)); err != nil {
		return fmt.Errorf("warning pod %s: %w", klog.KObj(pod), err)
	}
	r.sent.Store(pod.UID, r.warning(instance))
	if pod.Annotations[api.AnnotationCheckpointRequest] == r.id {
		return nil // only completed
	}
	podsWarned.WithLabelValues(job.System).Inc()
	if instance != "" && areOneJob(job, pod) {
		c.podEvent(pod, ReasonWarned, "Spot instance %s of node %s will be released at %s; asked to save its work (request %s)",
			instance, pod.Spec.NodeName, formatTime(r.deadline), r.id)
	}
	return nil
}

func areOneJob(ref jobs.Ref, pod *corev1.Pod) bool {
	return ref.System != jobs.SystemPod || pod.Annotations[api.AnnotationJob] != ""
}

// warning is what a pod is told in its annotations. The instance is empty for survivors.
type warning struct{ deadline, id, instance string }

func (r *round) warning(instance string) warning {
	return warning{formatTime(r.deadline), r.id, instance}
}

func (w warning) missingOn(pod *corev1.Pod) map[string]any {
	missing := map[string]any{}
	for key, value := range map[string]string{
		api.AnnotationReclaimDeadline:   w.deadline,
		api.AnnotationCheckpointRequest: w.id,
		api.AnnotationReclaimInstance:   w.instance,
	} {
		if value != "" && pod.Annotations[key] != value {
			missing[key] = value
		}
	}
	return missing
}

// hasWarned says whether the pod has the warning, or it was sent and will be seen. One that was seen and is missing was
// taken off by somebody.
func (r *round) hasWarned(pod *corev1.Pod, instance string) bool {
	w := r.warning(instance)
	if len(w.missingOn(pod)) == 0 {
		r.sent.Delete(pod.UID)
		return true
	}
	sent, ok := r.sent.Load(pod.UID)
	return ok && sent == w
}

// annotate merges the annotations; nil takes one off. A pod that is gone needs none. Where another has its name by now, or
// many write to it at once, that is a conflict: the next look will tell.
func (c *Controller) annotate(ctx context.Context, pod *corev1.Pod, annotations map[string]any) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": annotations}})
	if err != nil {
		return err
	}
	_, err = c.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, body, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// closeRound ends the round of a job that has nothing more to lose: its doomed pods are gone, or their Nodes were given
// back. The survivors go on as if nothing had been.
func (c *Controller) closeRound(ctx context.Context, l loss) error {
	c.handshakes.forget(l.ref)
	var warned []*corev1.Pod
	for _, pod := range l.pods {
		if len(warningOn(pod)) > 0 && !hasEnded(pod) && pod.DeletionTimestamp == nil && c.fateOf(pod.Spec.NodeName) != nil {
			warned = append(warned, pod)
		}
	}
	return c.forEach(ctx, warned, func(ctx context.Context, pod *corev1.Pod) error {
		if err := c.annotate(ctx, pod, warningOn(pod)); err != nil {
			return fmt.Errorf("taking the warning off pod %s: %w", klog.KObj(pod), err)
		}
		return nil
	})
}

// warningOn is what takes a warning off.
func warningOn(pod *corev1.Pod) map[string]any {
	off := map[string]any{}
	for _, key := range []string{api.AnnotationReclaimDeadline, api.AnnotationCheckpointRequest, api.AnnotationReclaimInstance} {
		if _, ok := pod.Annotations[key]; ok {
			off[key] = nil
		}
	}
	return off
}

// tell has the job's system warned, once in a round, beside everything else.
func (c *Controller) tell(ctx context.Context, l loss, r round) {
	if !c.handshakes.begin(l.ref, r.id, func(r *round) *bool { return &r.telling }) {
		return
	}
	until := c.Clock.Now().Add(l.patience())
	c.handshakes.asking.Go(func() {
		job := c.tellSystem(ctx, l.ref, jobs.Warning{ID: r.id, Deadline: r.deadline}, until)
		c.handshakes.change(l.ref, r.id, func(r *round) { r.job, r.told = job, true })
		c.handshakes.queue.Add(l.ref)
	})
}

// tellSystem returns the job as read, nil where it could not be.
func (c *Controller) tellSystem(ctx context.Context, ref party, warning jobs.Warning, until time.Time) *jobs.Job {
	var known *jobs.Job
	err := c.ask(ctx, ref, actionWarn, until, func(ctx context.Context) error {
		job, err := c.Jobs.Get(ctx, ref.Ref)
		if err != nil {
			return err
		}
		known = &job
		if job.Finished || job.Suspended {
			return nil
		}
		return c.Jobs.Warn(ctx, job, warning)
	})
	if err != nil && !errors.Is(err, jobs.ErrNoObject) && !errors.Is(err, jobs.ErrUnsupported) && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "The job's system could not be warned; its pods were", "job", ref)
	}
	return known
}
