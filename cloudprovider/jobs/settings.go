package jobs

import (
	"fmt"
	"strconv"
	"time"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// readSettings reads what the annotations of a job ask for in the same way in all systems. Bounds on the workers narrow what
// the system says.
func readSettings(job *Job, annotations map[string]string) error {
	var err error
	if job.MaxWait, err = MaxWait(annotations); err != nil {
		return err
	}
	switch recovery := Recovery(annotations[api.AnnotationRecovery]); recovery {
	case "":
		job.Recovery = RecoverFull
	case RecoverFull, RecoverDynamic:
		job.Recovery = recovery
	default:
		return annotationError(api.AnnotationRecovery, "is %q, neither %q nor %q", recovery, RecoverFull, RecoverDynamic)
	}
	if job.Min, err = replicasOr(annotations, api.AnnotationMinReplicas, job.Min); err != nil {
		return err
	}
	if job.Max, err = replicasOr(annotations, api.AnnotationMaxReplicas, job.Max); err != nil {
		return err
	}
	if job.Min > job.Max {
		return annotationError(api.AnnotationMinReplicas, "the minimum of %d workers is above the maximum of %d", job.Min, job.Max)
	}
	return nil
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
		return 0, annotationError(key, "%q is no number of workers", text)
	}
	return int(replicas), nil
}

func annotationError(key, format string, args ...any) error {
	return &FieldError{Path: fmt.Sprintf("metadata.annotations[%s]", key), Problem: fmt.Sprintf(format, args...)}
}
