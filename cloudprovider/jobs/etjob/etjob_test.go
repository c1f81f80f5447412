package etjob

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
)

func TestTrainingJobMembers(t *testing.T) {
	pod := `
apiVersion: v1
kind: Pod
metadata:
  name: mnist-%s
  labels: {group-name: kai.alibabacloud.com, training-job-name: mnist, training-job-role: %s, replica-index: "0"}
  ownerReferences: [{apiVersion: kai.alibabacloud.com/v1alpha1, kind: TrainingJob, name: mnist, uid: uid-mnist, controller: true}]
`
	jobstest.CheckMembers(newFixture(t), map[string]jobs.Membership{
		"mnist-launcher": jobstest.Member("trainingjob", "mnist", jobs.RoleLauncher),
		"mnist-worker-0": jobstest.Member("trainingjob", "mnist", jobs.RoleWorker),
	}, fmt.Sprintf(pod, "launcher", "launcher"), fmt.Sprintf(pod, "worker-0", "worker"))
}

func TestTrainingJobIsRead(t *testing.T) {
	f := newFixture(t, jobstest.TrainingJob)
	job := f.Get("trainingjob", "mnist")
	assert.Equal(t, []int{2, 8, 4}, []int{job.Min, job.Max, job.Replicas})
	assert.EqualValues(t, "uid-mnist", job.UID)
	assert.Equal(t, "10m0s", job.MaxWait.String())
	assert.Equal(t, jobs.RecoverFull, job.Recovery)
	assert.False(t, job.Suspended || job.Finished)

	f.Set(resource, "mnist", []any{"mnist-worker-0", "mnist-worker-5"}, "status", "targetWorkers")
	assert.Equal(t, 2, f.Get("trainingjob", "mnist").Replicas, "what the operator aims at goes before the spec")

	for phase, want := range map[string]int{"": 4, "Created": 4, "Running": 2, "Scaling": 2} {
		f := newFixture(t, jobstest.TrainingJob)
		f.Set(resource, "mnist", phase, "status", "phase")
		assert.Equal(t, want, f.Get("trainingjob", "mnist").Min, "phase %q: it needs all before it trains", phase)
	}
	for phase, want := range map[string]jobs.Job{
		"Suspended": {Suspended: true}, "Succeeded": {Finished: true}, "Failed": {Finished: true}, "Scaling": {},
	} {
		f.Set(resource, "mnist", phase, "status", "phase")
		job := f.Get("trainingjob", "mnist")
		assert.Equal(t, want, jobs.Job{Suspended: job.Suspended, Finished: job.Finished}, phase)
	}
	f.Set(resource, "mnist", "OnFailure", "spec", "restartPolicy")
	f.Set(resource, "mnist", "Failed", "status", "phase")
	assert.False(t, f.Get("trainingjob", "mnist").Finished, "the operator restarts it")
}

func TestTrainingJobGang(t *testing.T) {
	f := newFixture(t, jobstest.TrainingJob)
	names, gpus := f.GangOf(f.Get("trainingjob", "mnist"), 3)
	assert.Equal(t, []string{"mnist-worker-0 worker", "mnist-worker-1 worker", "mnist-worker-2 worker", "mnist-launcher launcher"}, names)
	assert.EqualValues(t, 3, gpus, "limits count as requests")
}

func TestTrainingJobThatIsMalformedNamesTheField(t *testing.T) {
	for path, change := range map[string]struct{ from, to string }{
		"spec.etReplicaSpecs.worker":             {"    worker:\n", "    workers:\n"},
		"spec.etReplicaSpecs.worker.minReplicas": {"minReplicas: 2", `minReplicas: "2"`},
		"spec.etReplicaSpecs.worker.maxReplicas": {"maxReplicas: 8", "maxReplicas: -1"},
		"status.targetWorkers[0]":                {"targetWorkers: [mnist-worker-0", "targetWorkers: [0"},
	} {
		f := newFixture(t, strings.Replace(jobstest.TrainingJob, change.from, change.to, 1))
		_, err := f.Registry.Get(context.Background(), jobstest.Ref("trainingjob", "mnist"))
		var field *jobs.FieldError
		if assert.True(t, errors.As(err, &field), "%s: %v", path, err) {
			assert.Equal(t, path, field.Path)
		}
	}
}

func TestTrainingJobThatLostAWorkerToTheReleaseIsShortOfIt(t *testing.T) {
	for policy, want := range map[string]int{"Never": 3, "OnFailure": 3, "Always": 4} {
		f := newFixture(t, strings.Replace(jobstest.TrainingJob, "      restartPolicy: OnFailure", "      restartPolicy: "+policy, 1))
		f.Set(resource, "mnist", []any{"mnist-worker-0", "mnist-worker-1", "mnist-worker-2"}, "status", "currentWorkers")
		assert.Equal(t, 4, f.Get("trainingjob", "mnist").Replicas, "it is not held: it may have lost one by itself")
		f.Set(resource, "mnist", map[string]any{api.LabelHeld: string(jobs.HeldShrunk)}, "metadata", "labels")
		assert.Equal(t, want, f.Get("trainingjob", "mnist").Replicas, "policy %s", policy)
		f.Set(resource, "mnist", "Scaling", "status", "phase")
		assert.Equal(t, 4, f.Get("trainingjob", "mnist").Replicas, "nobody looks after them while it is scaled")
	}
}

func TestTrainingJobDoesNotRememberWorkersThatWereReplaced(t *testing.T) {
	lost := []any{"mnist-worker-0", "mnist-worker-1", "mnist-worker-2", "mnist-worker-3", "mnist-worker-4"}
	for name, tc := range map[string]struct {
		targets, current []any
		want             string
	}{
		"one was lost and has a replacement": {lost, lost[1:], "4"},
		"one was lost and has none yet":      {lost[:4], lost[1:4], "4"},
		"it was scaled out by its owner":     {lost, lost, "5"},
		"it was scaled in by its owner":      {lost[:3], lost[:3], "3"},
	} {
		for how, hold := range map[string]func(*jobstest.Fixture, jobs.Job) error{
			"shrunk": func(f *jobstest.Fixture, job jobs.Job) error {
				return f.Registry.Shrink(context.Background(), job, []string{"mnist-worker-2"})
			},
			"suspended": func(f *jobstest.Fixture, job jobs.Job) error {
				return f.Registry.Suspend(context.Background(), job, jobs.HeldForReclaim)
			},
		} {
			f := newFixture(t, jobstest.TrainingJob)
			f.Set(resource, "mnist", tc.targets, "status", "targetWorkers")
			f.Set(resource, "mnist", tc.current, "status", "currentWorkers")
			require.NoError(t, hold(f, f.Get("trainingjob", "mnist")))
			assert.Equal(t, tc.want, f.Object(resource, "mnist").GetAnnotations()[api.AnnotationHeldReplicas], "%s, %s", name, how)
		}
	}
}
