package standin

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// scaler is a ScaleIn or a ScaleOut.
type scaler struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector struct {
			Name string `json:"name"`
		} `json:"selector"`
		Timeout  *int32 `json:"timeout"`
		ToDelete struct {
			PodNames []string `json:"podNames"`
		} `json:"toDelete"`
		ToAdd struct {
			Count int `json:"count"`
		} `json:"toAdd"`
	} `json:"spec"`
	Status scalerStatus `json:"status"`
}

type scalerStatus struct {
	ETStatus     `json:",inline"`
	ToDeletePods []string `json:"toDeletePods,omitempty"`
	AddPods      []string `json:"addPods,omitempty"`
}

const (
	scaleInKind = "ScaleIn" // of two

	scalingStart   = "ScalingStart"
	scaleSucceeded = "ScaleSucceeded"
	scaleFailed    = "ScaleFailed"
)

func (s *scalerStatus) finished() bool {
	return s.Conditions.has(scaleSucceeded) || s.Conditions.has(scaleFailed)
}

func (s *scalerStatus) finish(as string) {
	s.Phase = as
	s.Conditions.set(as, true)
}

// start notes when the scaler was taken up.
func (s *scalerStatus) start() {
	now := metav1.Now()
	s.Phase = phaseScaling
	s.Conditions = append(s.Conditions, condition{Type: phaseScaling, Status: "True", Reason: scalingStart, LastTransitionTime: &now})
}

// late is false where it is not known when the scaler was taken up.
func (s *scalerStatus) late(timeout time.Duration) bool {
	for _, condition := range s.Conditions {
		if condition.Type == phaseScaling && condition.Reason == scalingStart && condition.LastTransitionTime != nil {
			return time.Since(condition.LastTransitionTime.Time) > timeout
		}
	}
	return false
}

// adopt makes the job that a scaler selects its owner. Only then does the job see it. One that has an owner is left as it is.
func (o *etOperator) adopt(ctx context.Context, object *unstructured.Unstructured) error {
	s, err := decode[scaler](object)
	if err != nil || s.Status.finished() || len(s.OwnerReferences) > 0 {
		return err
	}
	job, err := o.objects.Resource(TrainingJobs).Namespace(s.Namespace).Get(ctx, s.Spec.Selector.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	s.Status.initialize()
	s.Status.Conditions.set(phaseCreated, true)
	if err := o.setStatus(ctx, scalersOf(object.GetKind()), object, &s.Status); err != nil {
		return err
	}
	object.SetOwnerReferences([]metav1.OwnerReference{controllerReference(job)})
	_, err = o.objects.Resource(scalersOf(object.GetKind())).Namespace(s.Namespace).Update(ctx, object, metav1.UpdateOptions{})
	return err
}

func scalersOf(kind string) schema.GroupVersionResource {
	if kind == scaleInKind {
		return ScaleIns
	}
	return ScaleOuts
}

// newestScaler is the job's that is not done; nil where there is none.
func (o *etOperator) newestScaler(ctx context.Context, job *trainingJob) (newest *unstructured.Unstructured, err error) {
	for _, resource := range []schema.GroupVersionResource{ScaleOuts, ScaleIns} {
		list, err := o.objects.Resource(resource).Namespace(job.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			candidate := &list.Items[i]
			s, err := decode[scaler](candidate)
			if err != nil {
				return nil, err
			}
			if s.Status.finished() || !metav1.IsControlledBy(candidate, &job.ObjectMeta) {
				continue
			}
			if newest == nil || newest.GetCreationTimestamp().Time.Before(candidate.GetCreationTimestamp().Time) {
				newest = candidate
			}
		}
	}
	return newest, nil
}

// takeScaler has a running job begin with its newest scaler. It does so too where the scaler's status is refused.
func (o *etOperator) takeScaler(ctx context.Context, job *trainingJob) error {
	newest, err := o.newestScaler(ctx, job)
	if newest == nil || err != nil {
		return err
	}
	s, err := decode[scaler](newest)
	if err != nil {
		return err
	}
	s.Status.start()
	if err := o.setStatus(ctx, scalersOf(newest.GetKind()), newest, &s.Status); err != nil && !apierrors.IsInvalid(err) {
		return err
	}
	job.Status.Phase, job.Status.CurrentScaler = phaseScaling, newest.GetKind()+":"+newest.GetNamespace()+"/"+newest.GetName()
	return nil
}

// scale goes on with the current scaler. The job's workers are not looked after meanwhile.
func (o *etOperator) scale(ctx context.Context, owner *unstructured.Unstructured, job *trainingJob, workers map[string]*corev1.Pod, launcher *corev1.Pod) error {
	if job.Status.Phase != phaseScaling { // the launcher ended
		return nil
	}
	kind, name, _ := strings.Cut(job.Status.CurrentScaler, ":")
	object, err := o.objects.Resource(scalersOf(kind)).Namespace(job.Namespace).Get(ctx, name[strings.IndexByte(name, '/')+1:], metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		job.Status.Phase, job.Status.CurrentScaler = phaseRunning, ""
		return nil
	}
	if err != nil {
		return err
	}
	s, err := decode[scaler](object)
	if err != nil {
		return err
	}
	if !s.Status.finished() {
		s.Status.initialize()
		if kind == scaleInKind {
			err = o.scaleIn(ctx, job, &s, workers, launcher)
		} else {
			err = o.scaleOut(ctx, owner, job, &s, workers, launcher)
		}
	}
	if err != nil {
		return err
	}
	if s.Status.finished() {
		job.Status.Phase, job.Status.CurrentScaler = phaseRunning, ""
	}
	return o.setStatus(ctx, scalersOf(kind), object, &s.Status)
}

// scaleIn rewrites the hostfile and deletes the pods, or all workers where none of those is left. It does not mind how few are
// left, and knows of no count.
func (o *etOperator) scaleIn(ctx context.Context, job *trainingJob, s *scaler, workers map[string]*corev1.Pod, launcher *corev1.Pod) error {
	if len(s.Status.ToDeletePods) == 0 {
		for _, name := range s.Spec.ToDelete.PodNames {
			if workers[name] != nil {
				s.Status.ToDeletePods = append(s.Status.ToDeletePods, name)
			}
		}
	}
	goes := func(name string) bool { return slices.Contains(s.Status.ToDeletePods, name) }
	job.Status.CurrentWorkers = slices.DeleteFunc(job.Status.CurrentWorkers, goes)
	if err := o.rewriteHostfile(ctx, launcher, job.Status.CurrentWorkers); err != nil {
		return err
	}
	left := false
	for name, pod := range workers {
		if len(s.Status.ToDeletePods) > 0 && !goes(name) {
			continue
		}
		if err := o.delete(ctx, noGrace, pod); err != nil {
			return err
		}
		left = left || goes(name)
	}
	if !left {
		job.Status.TargetWorkers = slices.DeleteFunc(job.Status.TargetWorkers, goes)
		s.Status.finish(scaleSucceeded)
	}
	return nil
}

// scaleOut adds workers under new indexes, and takes them back if they do not all run in time.
func (o *etOperator) scaleOut(ctx context.Context, owner *unstructured.Unstructured, job *trainingJob, s *scaler, workers map[string]*corev1.Pod, launcher *corev1.Pod) error {
	if s.Spec.ToAdd.Count <= 0 {
		s.Status.finish(scaleFailed)
		return nil
	}
	if len(s.Status.AddPods) == 0 {
		for i := range s.Spec.ToAdd.Count {
			s.Status.AddPods = append(s.Status.AddPods, workerName(job.Name, job.Status.nextIndex()+i))
		}
	}
	active := 0
	for _, name := range s.Status.AddPods {
		if workers[name] == nil {
			pod := newETPod(owner, job, name)
			pod.Labels[labelScaleOut] = s.Name
			if err := o.create(ctx, pod); err != nil {
				return err
			}
		} else if running(workers[name]) {
			active++
		}
	}
	timeout := defaultScaleTimeout
	if s.Spec.Timeout != nil {
		timeout = time.Duration(*s.Spec.Timeout) * time.Second
	}
	switch {
	case active >= s.Spec.ToAdd.Count:
		job.Status.TargetWorkers = append(job.Status.TargetWorkers, s.Status.AddPods...)
		job.Status.CurrentWorkers = append(job.Status.CurrentWorkers, s.Status.AddPods...)
		s.Status.finish(scaleSucceeded)
		return o.rewriteHostfile(ctx, launcher, job.Status.CurrentWorkers)
	case s.Status.late(timeout):
		s.Status.finish(scaleFailed)
		for _, name := range s.Status.AddPods {
			late := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: job.Namespace}}
			if err := o.delete(ctx, noGrace, late); err != nil {
				return err
			}
		}
	}
	return nil
}
