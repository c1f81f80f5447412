package jobs

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// readSettings reads what the annotations of a job ask for in the same way in all systems. The minimum of the workers may be
// lowered as far as the system can do with it, and the maximum is not raised. An annotation that cannot be read is ignored: the job can be
// suspended and shrunk without it. The error joins a FieldError for each of these.
func readSettings(job *Job, annotations map[string]string) error {
	var errs []error
	read := func(err error) { errs = append(errs, err) }
	var err error
	job.MaxWait, err = MaxWait(annotations)
	read(err)
	job.Recovery, err = recovery(annotations)
	read(err)
	least, err := replicasOr(annotations, api.AnnotationMinReplicas, job.Min)
	read(err)
	most, err := replicasOr(annotations, api.AnnotationMaxReplicas, job.Max)
	read(err)
	if least, most = max(least, job.Floor), min(most, job.Max); least <= most {
		job.Min, job.Max = least, most
	} else {
		read(contradiction(annotations, least, most))
	}
	if text, ok := annotations[api.AnnotationWorkSaved]; ok {
		if saved, err := time.ParseDuration(text); err != nil || saved < 0 {
			read(annotationError(api.AnnotationWorkSaved, "%q is no duration such as 10h", text))
		}
	}
	return errors.Join(errs...)
}

// contradiction returns the error of an annotation by which the minimum is above the maximum, nil where the job's object says so itself.
func contradiction(annotations map[string]string, least, most int) error {
	for _, key := range []string{api.AnnotationMinReplicas, api.AnnotationMaxReplicas} {
		if _, ok := annotations[key]; ok {
			return annotationError(key, "the minimum of %d workers is above the maximum of %d", least, most)
		}
	}
	return nil
}

func recovery(annotations map[string]string) (Recovery, error) {
	switch recovery := Recovery(annotations[api.AnnotationRecovery]); recovery {
	case "", RecoverFull:
		return RecoverFull, nil
	case RecoverDynamic:
		return recovery, nil
	default:
		return RecoverFull, annotationError(api.AnnotationRecovery, "is %q, neither %q nor %q", recovery, RecoverFull, RecoverDynamic)
	}
}

// MaxWait returns how long a job with these annotations may wait for capacity, zero for ever. This project's annotation goes
// before that of Elastic-Job-Supervisor. The error is a FieldError.
func MaxWait(annotations map[string]string) (time.Duration, error) {
	if text, ok := annotations[api.AnnotationMaxWait]; ok {
		wait, err := time.ParseDuration(text)
		if err != nil || wait <= 0 {
			return 0, annotationError(api.AnnotationMaxWait, "%q is no duration such as 30m", text)
		}
		return wait, nil
	}
	if text, ok := annotations[api.AnnotationSupervisorMaxWait]; ok {
		seconds, err := strconv.ParseInt(text, 10, 32)
		if err != nil || seconds <= 0 {
			return 0, annotationError(api.AnnotationSupervisorMaxWait, "%q is no number of seconds", text)
		}
		return time.Duration(seconds) * time.Second, nil
	}
	return 0, nil
}

func replicasOr(annotations map[string]string, key string, otherwise int) (int, error) {
	text, ok := annotations[key]
	if !ok {
		return otherwise, nil
	}
	replicas, err := strconv.ParseInt(text, 10, 32)
	if err != nil || replicas < 0 {
		return otherwise, annotationError(key, "%q is no number of workers", text)
	}
	return int(replicas), nil
}

func annotationError(key, format string, args ...any) error {
	return &FieldError{Path: fmt.Sprintf("metadata.annotations[%s]", key), Problem: fmt.Sprintf(format, args...)}
}

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
