package releaseall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	kubepod "k8s.io/kubernetes/pkg/api/v1/pod"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
)

const (
	// lookEvery is how often a job is looked at that its system has yet to end, or to change.
	lookEvery = 2 * time.Second
	// endingTime is how long the pods of a suspended job are waited for. Those on a node that is down do not end.
	endingTime = time.Minute
	// stopTime is how long a job may save its work that was asked to stop. A job that runs after that has not heard.
	stopTime = 2 * time.Minute
)

// What becomes of a held job.
const (
	outcomeResumed   = "resumed"
	outcomeGrows     = "grows"
	outcomeEnded     = "has ended"
	outcomeSuspended = "stays suspended"
)

// heldJob is a job that has the held label.
type heldJob struct {
	ref      jobs.Ref
	resource schema.GroupVersionResource
	object   *unstructured.Unstructured
}

// unholdJobs resumes the jobs that are held, and grows those that were shrunk. A job that cannot be is named, and keeps its held label
// and annotations, so that the command may be run again.
func (r *releaser) unholdJobs(ctx context.Context, _ sets.Set[string]) error {
	r.say("Resuming held jobs")
	held, err := r.heldJobs(ctx)
	workqueue.ParallelizeUntil(ctx, parallelism, len(held), func(i int) {
		job := held[i]
		entry := Job{Job: job.ref.String(), Held: job.object.GetLabels()[api.LabelHeld], Reason: job.object.GetAnnotations()[api.AnnotationHeldReason]}
		outcome, err := r.unholdJob(ctx, job)
		if entry.Outcome = outcome; err != nil {
			entry.Error = err.Error()
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.report.Jobs = append(r.report.Jobs, entry)
	})
	return err
}

// heldJobs lists the jobs with the held label. Systems that are not installed have none. An error is about some of the systems.
func (r *releaser) heldJobs(ctx context.Context) (held []heldJob, err error) {
	for _, system := range r.systems {
		_, isSuspender := system.(jobs.Suspender)
		if _, isResizer := system.(jobs.Resizer); !isSuspender && !isResizer {
			continue // its jobs are never held
		}
		list, listErr := r.objects.Resource(system.Resource()).List(ctx, metav1.ListOptions{LabelSelector: api.LabelHeld})
		if apierrors.IsNotFound(listErr) || meta.IsNoMatchError(listErr) {
			continue
		}
		if listErr != nil {
			err = errors.Join(err, fmt.Errorf("held jobs of %s are not resumed: list them: %w", system.Resource().GroupResource(), listErr))
			continue
		}
		for i := range list.Items {
			object := &list.Items[i]
			if child, ok := system.(jobs.Child); ok {
				if _, _, isCopy := child.Parent(object); isCopy {
					continue // its label was copied from its parent's
				}
			}
			held = append(held, heldJob{jobs.NewRef(system.Name(), object.GetNamespace(), object.GetName()), system.Resource(), object})
		}
	}
	return held, err
}

// unholdJob tries until the job's system lets it, or ctx ends.
func (r *releaser) unholdJob(ctx context.Context, held heldJob) (outcome string, err error) {
	begun := r.clock.Now()
	for {
		outcome, err = r.tryUnholdJob(ctx, held, begun)
		if busy := (*jobs.BusyError)(nil); !errors.As(err, &busy) || r.dryRun {
			if errors.Is(err, jobs.ErrNoObject) {
				return outcomeEnded, nil // it was deleted meanwhile
			}
			return outcome, err
		}
		select {
		case <-r.clock.After(lookEvery):
		case <-ctx.Done():
			return "", err
		}
	}
}

// tryUnholdJob takes the next step with the job, as it is now. The error is a BusyError if there is another one to take, or if its
// system has yet to do something. All steps may be repeated.
func (r *releaser) tryUnholdJob(ctx context.Context, held heldJob, begun time.Time) (outcome string, err error) {
	job, err := r.jobs.Get(ctx, held.ref)
	if err != nil {
		return "", err
	}
	if job.UID != held.object.GetUID() || job.HeldAs() == "" {
		return outcomeResumed, nil // by somebody else meanwhile
	}
	switch {
	case job.Finished:
		return outcomeEnded, r.unlessDryRun(func() error { return r.jobs.Unhold(ctx, job) })
	case job.HeldAs() == jobs.HeldShrunk:
		return outcomeGrows, r.unlessDryRun(func() error { return r.grow(ctx, held, job, begun) })
	case job.Suspended && job.HeldReason() == jobs.HeldForMaxWait:
		return outcomeSuspended, r.unlessDryRun(func() error { return r.unhold(ctx, held, job) })
	default:
		return outcomeResumed, r.unlessDryRun(func() error { return r.resume(ctx, job, begun) })
	}
}

func (r *releaser) unlessDryRun(do func() error) error {
	if r.dryRun {
		return nil
	}
	return do()
}

// resume resumes the job as it was, once its former pods are gone: systems restart a job only after they have ended it. A job that was
// asked to stop and has ended for that is suspended first, because its system takes the end for a failure.
func (r *releaser) resume(ctx context.Context, job jobs.Job, begun time.Time) error {
	switch {
	case job.Stopped:
		if err := r.jobs.Suspend(ctx, job, jobs.HeldForReclaim); err != nil {
			return err
		}
		return &jobs.BusyError{With: "the suspension of a job that was asked to stop"}
	case !job.Suspended && job.StopRequested && r.mayStillStop(job):
		return &jobs.BusyError{With: "the request to save its work and to stop"}
	case job.Suspended && r.clock.Since(begun) < endingTime:
		n, err := r.countPods(ctx, job, func(*corev1.Pod, jobs.Role) bool { return true })
		if err != nil {
			return err
		}
		if n > 0 {
			return &jobs.BusyError{With: fmt.Sprintf("%d pods that have yet to end", n)}
		}
	}
	if err := r.jobs.Resume(ctx, job, job.FullReplicas()); err != nil {
		return err
	}
	if now, err := r.jobs.Get(ctx, job.Ref); err != nil || now.HeldAs() == "" {
		return err
	}
	return &jobs.BusyError{With: "its growth"} // it runs with fewer workers
}

func (r *releaser) mayStillStop(job jobs.Job) bool {
	requested, err := time.Parse(time.RFC3339, job.Object.GetAnnotations()[api.AnnotationStopRequested])
	return err == nil && r.clock.Since(requested) < stopTime
}

// countPods counts those pods of the job for which the function is true, and that have not ended.
func (r *releaser) countPods(ctx context.Context, job jobs.Job, is func(*corev1.Pod, jobs.Role) bool) (n int, err error) {
	list, err := r.kube.CoreV1().Pods(job.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("list the pods of %s: %w", job.Ref, err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		member := r.jobs.Member(pod)
		if !kubepod.IsPodTerminal(pod) && slices.Contains(job.Refs(), member.Ref) && is(pod, member.Role) {
			n++
		}
	}
	return n, nil
}

// grow has the job's system add the workers that are missing. Requests to take workers out of the job are withdrawn first if the workers
// are gone: nobody would withdraw them later. The system may be late to see which workers are gone.
func (r *releaser) grow(ctx context.Context, held heldJob, job jobs.Job, begun time.Time) error {
	if err := r.jobs.CancelStaleShrinks(ctx, job.Ref); err != nil {
		return err
	}
	if full := job.FullReplicas(); job.Replicas >= full && r.clock.Since(begun) < endingTime {
		n, err := r.countPods(ctx, job, func(pod *corev1.Pod, role jobs.Role) bool {
			return role != jobs.RoleLauncher && pod.DeletionTimestamp == nil
		})
		if err != nil {
			return err
		}
		if n < full {
			return &jobs.BusyError{With: fmt.Sprintf("its workers, of which %d of %d exist", n, full)}
		}
	}
	if err := r.jobs.Grow(ctx, job, job.FullReplicas()); err != nil {
		return err
	}
	return r.unhold(ctx, held, job)
}

// unhold removes the held label and annotations, and leaves the job as it is.
func (r *releaser) unhold(ctx context.Context, held heldJob, job jobs.Job) error {
	patch := jobs.UnholdPatch().SetAnnotation(api.AnnotationStopRequested, nil).SetAnnotation(api.AnnotationHeldRestarts, nil)
	if err := r.cluster.PatchJob(ctx, held.resource, job, patch); err != nil {
		return fmt.Errorf("remove the held label of %s: %w", job.Ref, err)
	}
	return nil
}
