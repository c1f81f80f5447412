package etjob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// scaleOutTimeout in seconds is how long the operator waits for new workers. It does nothing else for the job in that time, so
// that a longer timeout would keep a ScaleIn for the next reclaim waiting until it is too late.
const scaleOutTimeout int64 = 300

// Shrink makes one ScaleIn of these pods. The operator rewrites the list of hosts, waits until the launcher has no process
// on them, and deletes them.
func (s *System) Shrink(ctx context.Context, job jobs.Job, pods []string) (changed bool, err error) {
	object, err := decode(job.Object)
	if err != nil {
		return false, err
	}
	targets := object.Status.TargetWorkers
	leaving := intersection(targets, pods)
	if len(leaving) == 0 || job.Suspended || job.Finished {
		return false, nil
	}
	name := scalerName(job, "in", append([]string{strconv.Itoa(len(targets))}, leaving...)...)
	next, err := s.nextScaler(ctx, job, name, leaving...)
	if err != nil || next == "" {
		return false, err
	}
	// The operator counts the workers of a ScaleOut only when it has ended, so that while one is at work the job is busy.
	if left := len(targets) - len(leaving); left < job.Min {
		return false, fmt.Errorf("%d of %d workers would be left, fewer than the minimum of %d: %w", left, len(targets), job.Min, jobs.ErrUnsupported)
	}
	if job, err = withReplicasToHold(job); err != nil {
		return false, err
	}
	// The label goes first, so that after a crash the next leader finds the job.
	if err := s.cluster.PatchJob(ctx, resource, job, s.cluster.HoldPatch(job, jobs.HeldShrunk, jobs.HeldForReclaim)); err != nil {
		return false, err
	}
	names := make([]any, len(leaving))
	for i, pod := range leaving {
		names[i] = pod
	}
	return s.createScaler(ctx, scaleIns, "ScaleIn", next, job, map[string]any{"toDelete": map[string]any{"podNames": names}})
}

// Shrinking returns those of the pods that the operator has yet to take out of the job. A ScaleIn of a job that does not run
// was meant for its former run.
func (s *System) Shrinking(ctx context.Context, job jobs.Job, pods []string) ([]string, error) {
	object, err := decode(job.Object)
	if err != nil || object.Status.Phase != phaseRunning && object.Status.Phase != phaseScaling {
		return nil, err
	}
	scalers, err := s.scalersOf(ctx, job.NamespacedName)
	if err != nil {
		return nil, err
	}
	var leaving []string
	for _, scaler := range scalers {
		if !scaler.hasEnded() {
			leaving = append(leaving, scaler.namedOf(pods)...)
		}
	}
	slices.Sort(leaving)
	return slices.Compact(leaving), nil
}

// CancelShrink deletes each ScaleIn of the pods that has yet to begin. One that has begun keeps to its pods, and one that may have
// is left to CancelStaleShrinks.
func (s *System) CancelShrink(ctx context.Context, job types.NamespacedName, pods []string) error {
	workers, err := s.workersOf(ctx, job)
	if err != nil {
		return err
	}
	return s.deleteScalers(ctx, job, func(scaler *scaler) bool {
		return !scaler.hasBegun() && len(scaler.namedOf(pods)) > 0 && !scaler.isUnderWay(workers, s.cluster.Clock.Now())
	})
}

// CancelStaleShrinks deletes each ScaleIn that this project made, that has yet to begin and that names no worker which existed
// when it was made and still does. If none of the names exists, the operator would delete all workers of the job; if a worker has
// the name of a former one, it would delete that.
func (s *System) CancelStaleShrinks(ctx context.Context, job types.NamespacedName) error {
	isWaiting := func(scaler *scaler) bool {
		return scaler.resource == scaleIns && scaler.isOurs() && !scaler.hasBegun() && !scaler.hasEnded()
	}
	scalers, err := s.scalersOf(ctx, job)
	if err != nil || !slices.ContainsFunc(scalers, isWaiting) {
		return err
	}
	workers, err := s.workersOf(ctx, job)
	if err != nil {
		return err
	}
	var busy error
	var errs []error
	for _, scaler := range scalers {
		switch {
		case !isWaiting(scaler):
		case scaler.isAboutOneOf(workers), scaler.isUnderWay(workers, s.cluster.Clock.Now()):
			busy = &jobs.BusyError{With: scaler.String()}
		default:
			errs = append(errs, s.deleteScaler(ctx, scaler))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return busy
}

// Grow makes one ScaleOut of the workers that are missing, and removes the held label once the job has all that it had.
func (s *System) Grow(ctx context.Context, job jobs.Job, workers int) (changed bool, err error) {
	if job.Suspended || job.Finished {
		return false, nil
	}
	workers = min(workers, job.Max)
	if missing := workers - job.Replicas; missing > 0 {
		next, err := s.nextScaler(ctx, job, scalerName(job, "out", strconv.Itoa(job.Replicas), strconv.Itoa(workers)))
		if err != nil || next == "" {
			return false, err
		}
		return s.createScaleOut(ctx, next, job, missing)
	}
	if job.HeldAs() != jobs.HeldShrunk || job.Replicas < job.FullReplicas() {
		return false, nil
	}
	return s.unhold(ctx, job)
}

// unhold removes the held label of a job that has all its workers again.
func (s *System) unhold(ctx context.Context, job jobs.Job) (changed bool, err error) {
	// A job that was restarted meanwhile has all its workers, and a ScaleOut would add to them.
	if err := s.deleteScalers(ctx, job.NamespacedName, func(scaler *scaler) bool { return scaler.resource == scaleOuts && !scaler.hasBegun() }); err != nil {
		return false, err
	}
	// A ScaleIn that has yet to begin will take workers out of the job, and the label is what remembers them.
	if next, err := s.nextScaler(ctx, job, "unhold"); err != nil || next == "" {
		return false, err
	}
	object, err := decode(job.Object)
	if err != nil {
		return false, err
	}
	patch := unholdPatch()
	if full := job.FullReplicas(); object.Spec.ReplicaSpecs.Worker.Replicas.Or(0) < full {
		patch.Set(int64(full), workerReplicas()...) // it was resumed with fewer
	}
	err = s.cluster.Unhold(ctx, resource, job, patch)
	return err == nil, err
}

// CheckGrowth refuses jobs without a minimum, which need all workers that they ask for.
func (*System) CheckGrowth(job jobs.Job) error {
	object, err := decode(job.Object)
	if err == nil && object.Spec.ReplicaSpecs.Worker.MinReplicas == nil {
		err = fmt.Errorf("it has no minReplicas: %w", jobs.ErrUnsupported)
	}
	return err
}

// GrowBeyond makes one ScaleOut of the workers that are missing, and writes their number on the job, which the operator reads when it makes
// all pods of the job anew. Called again, it does what is left of that.
func (s *System) GrowBeyond(ctx context.Context, job jobs.Job, workers int) (changed bool, err error) {
	object, err := decode(job.Object)
	if err != nil {
		return false, err
	}
	if object.Status.Phase != phaseRunning && object.Status.Phase != phaseScaling {
		return false, &jobs.BusyError{With: "et-operator, which has yet to start it"}
	}
	next, err := s.nextScaler(ctx, job, scalerName(job, "out", strconv.Itoa(job.Replicas), strconv.Itoa(workers)))
	if err != nil {
		return false, err
	}
	if next != "" {
		if changed, err = s.createScaleOut(ctx, next, job, workers-job.Replicas); err != nil {
			return changed, err
		}
	}
	if job.GrownTo() == workers {
		return changed, nil
	}
	patch := jobs.GrownPatch(workers).Set(int64(workers), workerReplicas()...)
	return true, s.cluster.PatchJob(ctx, resource, job, patch)
}

func (s *System) createScaleOut(ctx context.Context, name string, job jobs.Job, count int) (created bool, err error) {
	return s.createScaler(ctx, scaleOuts, "ScaleOut", name, job, map[string]any{
		"timeout": scaleOutTimeout, "toAdd": map[string]any{"count": int64(count)},
	})
}
