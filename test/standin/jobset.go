package standin

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// JobSets are those of Kubernetes SIG Apps.
var JobSets = schema.GroupVersionResource{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"}

const (
	// LabelJobSet names the JobSet of a batch Job and of its pods.
	LabelJobSet         = "jobset.sigs.k8s.io/jobset-name"
	labelReplicatedJob  = "jobset.sigs.k8s.io/replicatedjob-name"
	labelJobSetJobIndex = "jobset.sigs.k8s.io/job-index"
	labelJobSetGlobal   = "jobset.sigs.k8s.io/job-global-index"
	labelRestartAttempt = "jobset.sigs.k8s.io/restart-attempt"
	jobSetCompleted     = "Completed"
	jobSetFailed        = "Failed"
	jobSetSuspended     = "Suspended"
)

type jobSet struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Suspend        bool `json:"suspend"`
		ReplicatedJobs []struct {
			Name     string                  `json:"name"`
			Replicas *int                    `json:"replicas"`
			Template batchv1.JobTemplateSpec `json:"template"`
		} `json:"replicatedJobs"`
		FailurePolicy struct {
			MaxRestarts int32 `json:"maxRestarts"`
		} `json:"failurePolicy"`
	} `json:"spec"`
	Status jobSetStatus `json:"status"`
}

type jobSetStatus struct {
	Conditions    conditions `json:"conditions,omitempty"`
	Restarts      int32      `json:"restarts"`
	TerminalState string     `json:"terminalState,omitempty"`
	// ReplicatedJobsStatus has how many Jobs of each replicated job have succeeded.
	ReplicatedJobsStatus []replicatedStatus `json:"replicatedJobsStatus,omitempty"`
}

type replicatedStatus struct {
	Name      string `json:"name"`
	Succeeded int32  `json:"succeeded"`
}

// NewJobSetController plays JobSet (github.com/kubernetes-sigs/jobset). The batch Jobs that it makes are run by the real
// Job controller.
//
// One Job for each replica of each replicated job. A Job that fails has all of them made anew, up to
// failurePolicy.maxRestarts; one more and the JobSet has failed. Suspending the JobSet suspends its Jobs.
//
// There are no services, no order of starting, no exclusive placement, and no other policies.
func NewJobSetController(config *rest.Config) (*Operator, error) {
	return newOperator("jobset", config, jobSetKinds)
}

func jobSetKinds(c cluster) []kind { return []kind{{JobSets, (&jobSetController{c}).reconcile}} }

type jobSetController struct{ cluster }

func (o *jobSetController) reconcile(ctx context.Context, object *unstructured.Unstructured) error {
	set, err := decode[jobSet](object)
	if err != nil || set.Status.TerminalState != "" {
		return err
	}
	list, err := o.BatchV1().Jobs(set.Namespace).List(ctx, metav1.ListOptions{LabelSelector: LabelJobSet + "=" + set.Name})
	if err != nil {
		return err
	}
	wanted := set.jobs(object)
	if restart := set.Status.advance(len(wanted), set.Spec.FailurePolicy.MaxRestarts, set.Spec.Suspend, list.Items); restart {
		// Those of the attempt that failed go; the next round makes the others.
		if err := o.setStatus(ctx, JobSets, object, &set.Status); err != nil {
			return err
		}
		return o.deleteJobs(ctx, list.Items)
	}
	if set.Status.TerminalState == "" {
		if err := o.syncJobs(ctx, wanted, list.Items); err != nil {
			return err
		}
	}
	return o.setStatus(ctx, JobSets, object, &set.Status)
}

// jobs are those that the set is to have, as long as nothing fails.
func (s *jobSet) jobs(object *unstructured.Unstructured) (jobs []*batchv1.Job) {
	for _, replicated := range s.Spec.ReplicatedJobs {
		for i := range ptr.Deref(replicated.Replicas, 1) {
			labels := map[string]string{
				LabelJobSet: s.Name, labelReplicatedJob: replicated.Name, labelJobSetJobIndex: strconv.Itoa(i),
				labelJobSetGlobal:   strconv.Itoa(len(jobs)),
				labelRestartAttempt: strconv.Itoa(int(s.Status.Restarts)),
			}
			job := &batchv1.Job{ObjectMeta: *replicated.Template.ObjectMeta.DeepCopy(), Spec: *replicated.Template.Spec.DeepCopy()}
			job.Name, job.Namespace = fmt.Sprintf("%s-%s-%d", s.Name, replicated.Name, i), s.Namespace
			job.OwnerReferences = []metav1.OwnerReference{controllerReference(object)}
			job.Spec.Suspend = &s.Spec.Suspend
			for _, meta := range []*metav1.ObjectMeta{&job.ObjectMeta, &job.Spec.Template.ObjectMeta} {
				if meta.Labels == nil {
					meta.Labels = map[string]string{}
				}
				maps.Copy(meta.Labels, labels)
			}
			jobs = append(jobs, job)
		}
	}
	return jobs
}

// advance brings the status up to what the Jobs say; restart says that they are to be made anew.
func (s *jobSetStatus) advance(wanted int, maxRestarts int32, suspended bool, jobs []batchv1.Job) (restart bool) {
	complete := 0
	s.ReplicatedJobsStatus = nil
	for i := range jobs {
		if jobs[i].Labels[labelRestartAttempt] != strconv.Itoa(int(s.Restarts)) {
			continue
		}
		if jobIs(&jobs[i], batchv1.JobFailed) {
			restart = true
		}
		if jobIs(&jobs[i], batchv1.JobComplete) {
			complete++
			s.countSuccess(jobs[i].Labels[labelReplicatedJob])
		}
	}
	switch {
	case restart && s.Restarts >= maxRestarts:
		s.TerminalState = jobSetFailed
		s.Conditions.set(jobSetFailed, true)
		return false
	case restart:
		s.Restarts++
	case complete == wanted:
		s.TerminalState = jobSetCompleted
		s.Conditions.set(jobSetCompleted, true)
	case suspended || s.Conditions.has(jobSetSuspended):
		s.Conditions.set(jobSetSuspended, suspended)
	}
	return restart
}

func (s *jobSetStatus) countSuccess(name string) {
	for i := range s.ReplicatedJobsStatus {
		if s.ReplicatedJobsStatus[i].Name == name {
			s.ReplicatedJobsStatus[i].Succeeded++
			return
		}
	}
	s.ReplicatedJobsStatus = append(s.ReplicatedJobsStatus, replicatedStatus{name, 1})
}

// syncJobs makes the Jobs that are missing, and suspends or resumes the others. Those of an earlier attempt first have
// to be gone.
func (o *jobSetController) syncJobs(ctx context.Context, wanted []*batchv1.Job, existing []batchv1.Job) error {
	byName := map[string]*batchv1.Job{}
	for i := range existing {
		byName[existing[i].Name] = &existing[i]
	}
	for _, job := range wanted {
		var err error
		is := byName[job.Name]
		switch {
		case is == nil:
			_, err = o.BatchV1().Jobs(job.Namespace).Create(ctx, job, metav1.CreateOptions{})
		case is.Labels[labelRestartAttempt] != job.Labels[labelRestartAttempt]:
			err = o.deleteJobs(ctx, []batchv1.Job{*is})
		case ptr.Deref(is.Spec.Suspend, false) != *job.Spec.Suspend:
			is.Spec.Suspend = job.Spec.Suspend
			_, err = o.BatchV1().Jobs(job.Namespace).Update(ctx, is, metav1.UpdateOptions{})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (o *jobSetController) deleteJobs(ctx context.Context, jobs []batchv1.Job) error {
	for i := range jobs {
		err := o.BatchV1().Jobs(jobs[i].Namespace).Delete(ctx, jobs[i].Name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)})
		if err != nil && !Transient(err) {
			return err
		}
	}
	return nil
}
