package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// Growth is whether a job gets more workers than it asks for: a value of api.LabelGrow.
type Growth string

const (
	// GrowNever is the default.
	GrowNever Growth = api.GrowNever
	// GrowFree adds workers for which there is room on nodes that exist.
	GrowFree Growth = api.GrowFree
	// GrowBuy buys spot instances for more workers, too.
	GrowBuy Growth = api.GrowBuy
)

// Grower is implemented by systems whose jobs can be given more workers than they ask for, while they run.
type Grower interface {
	// CheckGrowth returns why the job cannot be given more workers, nil if it can. The error wraps ErrUnsupported. It goes by the object
	// alone.
	CheckGrowth(job Job) error
	// GrowBeyond has the job ask for so many workers, no more than its maximum, and writes the patch of GrownPatch with that. The call is
	// idempotent. The error is a BusyError where it has to be repeated later.
	GrowBeyond(ctx context.Context, job Job, workers int) (changed bool, err error)
}

// ErrNotGrown is why a job does not get more workers than it asks for, though it is to. It wraps ErrUnsupported.
var ErrNotGrown = fmt.Errorf("it is not grown: %w", ErrUnsupported)

// Growth returns whether the job is to get more workers than it asks for. The error is a FieldError where the label is malformed.
func (j Job) Growth() (Growth, error) {
	switch growth := Growth(j.Object.GetLabels()[api.LabelGrow]); growth {
	case "", GrowNever:
		return GrowNever, nil
	case GrowFree, GrowBuy:
		return growth, nil
	default:
		return GrowNever, &FieldError{
			Path:    fmt.Sprintf("metadata.labels[%s]", api.LabelGrow),
			Problem: fmt.Sprintf("is %q, neither %q nor %q nor %q", growth, GrowFree, GrowBuy, GrowNever),
		}
	}
}

// GrownTo returns to how many workers the job was grown last, zero if it never was.
func (j Job) GrownTo() int {
	workers, err := strconv.ParseInt(j.Object.GetAnnotations()[api.AnnotationGrownTo], 10, 32)
	if err != nil {
		return 0
	}
	return max(0, int(workers))
}

// GrownPatch returns the patch that notes to how many workers the job was grown.
func GrownPatch(workers int) Patch {
	return Patch{}.SetAnnotation(api.AnnotationGrownTo, strconv.Itoa(workers))
}

// Growing returns the jobs that carry api.LabelGrow and are not held, as the informers have them. Where a job cannot get more
// workers, its Problem says why.
func (r *Registry) Growing() []Job {
	r.growingMu.Lock()
	defer r.growingMu.Unlock()
	var jobs []Job
	growing := map[types.UID]Job{}
	for system, objects := range r.installed.growing() {
		for _, object := range objects {
			if _, _, ok := parentOf(system, object); ok || object.GetLabels()[api.LabelHeld] != "" {
				continue
			}
			job := r.growing[object.GetUID()]
			if job.Object != object {
				job = readGrowing(system, object)
				r.recordIgnored(job)
			}
			growing[job.UID] = job
			jobs = append(jobs, job)
		}
	}
	r.growing = growing
	return jobs
}

func readGrowing(system System, object *unstructured.Unstructured) Job {
	job, err := read(system, object)
	if err != nil {
		return Job{Ref: NewRef(system.Name(), object.GetNamespace(), object.GetName()), UID: object.GetUID(), Object: object, Problem: err}
	}
	job.Problem = checkGrowth(system, job)
	return job
}

// checkGrowth returns why the job does not get more workers than it asks for, nil if it may, or is not to.
func checkGrowth(system System, job Job) error {
	growth, err := job.Growth()
	grower, ok := system.(Grower)
	switch {
	case err != nil || growth == GrowNever:
		return err
	case !ok:
		return fmt.Errorf("%s cannot add workers to a job that runs: %w", system.Name(), ErrNotGrown)
	case IsQueued(job.Object):
		return fmt.Errorf("Kueue would suspend the job to admit it anew: %w", ErrNotGrown)
	}
	if err := grower.CheckGrowth(job); err != nil {
		return errors.Join(ErrNotGrown, err)
	}
	return nil
}

// GrowBeyond has a job that runs ask for so many workers, more than its owner wrote. Nothing is done to a job that is held, has ended, or is
// not to grow any more. The error is a BusyError where the job is being scaled.
func (r *Registry) GrowBeyond(ctx context.Context, job Job, workers int) error {
	return r.act(ctx, job, action{
		name: "grow-beyond", event: ReasonGrown, readsAgain: true,
		message: fmt.Sprintf("Grows to %d workers: there is capacity for more than it asks for", workers),
		do: func(ctx context.Context, system System, job Job) (bool, error) {
			if err := checkGrowth(system, job); err != nil {
				return false, err
			}
			growth, _ := job.Growth()
			workers := min(workers, job.Max)
			if growth == GrowNever || job.HeldAs() != "" || job.Suspended || job.Finished || job.Replicas >= workers {
				return false, nil
			}
			if _, ok := system.(HostsRefresher); ok {
				r.hosts.add(job.Ref)
			}
			return system.(Grower).GrowBeyond(ctx, job, workers)
		},
	})
}
