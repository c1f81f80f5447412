package jobs

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// SystemPod is the system of pods that belong to no known one. Such jobs have no object.
const SystemPod = "pod"

// genericMember goes by api.AnnotationJob, else by the controller, else the pod is a job of its own.
func genericMember(pod *corev1.Pod) Membership {
	name := pod.Name
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		name = strings.ToLower(owner.Kind) + "." + owner.Name
	}
	if job := pod.Annotations[api.AnnotationJob]; job != "" {
		name = job
	}
	return Membership{Ref: Ref{System: SystemPod, NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: name}}, Role: RoleWorker}
}

// readWishes reads from the annotations of a job, or of a pod, what they ask for in the same way in all systems. Bounds on the
// workers narrow what the system says, where it says so.
func readWishes(job *Job, annotations map[string]string) error {
	var err error
	if job.MaxWait, err = maxWait(annotations); err != nil {
		return err
	}
	switch recovery := Recovery(annotations[api.AnnotationRecovery]); recovery {
	case "":
		job.Recovery = RecoverFull
	case RecoverFull, RecoverDynamic:
		job.Recovery = recovery
	default:
		return &FieldError{annotationPath(api.AnnotationRecovery), fmt.Sprintf("is %q, neither %q nor %q", recovery, RecoverFull, RecoverDynamic)}
	}
	if job.Min, err = replicasOr(annotations, api.AnnotationMinReplicas, job.Min); err != nil {
		return err
	}
	if job.Max, err = replicasOr(annotations, api.AnnotationMaxReplicas, job.Max); err != nil {
		return err
	}
	if job.Min > job.Max {
		return &FieldError{annotationPath(api.AnnotationMinReplicas), fmt.Sprintf("the minimum of %d workers is above the maximum of %d", job.Min, job.Max)}
	}
	return nil
}

// maxWait is how long the job may wait for capacity; ours goes before the supervisor's.
func maxWait(annotations map[string]string) (time.Duration, error) {
	if text, ok := annotations[api.AnnotationMaxWait]; ok {
		wait, err := time.ParseDuration(text)
		if err != nil || wait <= 0 {
			return 0, &FieldError{annotationPath(api.AnnotationMaxWait), fmt.Sprintf("%q is no duration such as 30m", text)}
		}
		return wait, nil
	}
	if text, ok := annotations[api.AnnotationSupervisorMaxWait]; ok {
		seconds, err := strconv.ParseInt(text, 10, 32)
		if err != nil || seconds <= 0 {
			return 0, &FieldError{annotationPath(api.AnnotationSupervisorMaxWait), fmt.Sprintf("%q is no number of seconds", text)}
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
		return 0, &FieldError{annotationPath(key), fmt.Sprintf("%q is no number of workers", text)}
	}
	return int(replicas), nil
}

func annotationPath(key string) string { return fmt.Sprintf("metadata.annotations[%s]", key) }
