package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

func TestStandInAdvances(t *testing.T) {
	inPhase := func(phase corev1.PodPhase) *corev1.Pod { return &corev1.Pod{Status: corev1.PodStatus{Phase: phase}} }
	running, pending, failed, succeeded := inPhase(corev1.PodRunning), inPhase(corev1.PodPending), inPhase(corev1.PodFailed), inPhase(corev1.PodSucceeded)
	both := []string{"job-worker-0", "job-worker-1"}
	for name, test := range map[string]struct {
		status   trainingJobStatus
		never    bool
		workers  map[string]*corev1.Pod
		launcher *corev1.Pod
		phase    string
		create   []string
	}{
		"the workers come first": {phase: phaseCreated, create: both},
		"the launcher waits for all of them": {
			status: trainingJobStatus{Phase: phaseCreated, TargetWorkers: both}, phase: phaseCreated,
			workers: map[string]*corev1.Pod{"job-worker-0": running, "job-worker-1": pending},
		},
		"and then comes": {
			status: trainingJobStatus{Phase: phaseCreated, TargetWorkers: both}, phase: phaseCreated,
			workers: map[string]*corev1.Pod{"job-worker-0": running, "job-worker-1": running}, create: []string{"job-launcher"},
		},
		"the job runs when the launcher does": {
			status:  trainingJobStatus{Phase: phaseCreated, TargetWorkers: both},
			workers: map[string]*corev1.Pod{"job-worker-0": running, "job-worker-1": running}, launcher: running, phase: phaseRunning,
		},
		"lost workers come again under new indexes": {
			status:  trainingJobStatus{Phase: phaseRunning, TargetWorkers: []string{"job-worker-0", "job-worker-5"}},
			workers: map[string]*corev1.Pod{"job-worker-5": failed}, launcher: running, phase: phaseRunning,
			create: []string{"job-worker-6", "job-worker-7"},
		},
		"but not where the restart policy is Never": {
			status: trainingJobStatus{Phase: phaseRunning, TargetWorkers: both}, never: true,
			workers: map[string]*corev1.Pod{"job-worker-0": running}, launcher: running, phase: phaseRunning,
		},
		"the launcher's success is the job's": {
			status:   trainingJobStatus{Phase: phaseRunning, TargetWorkers: both},
			launcher: succeeded, phase: phaseSucceeded,
		},
		"a launcher lost is a job lost": {
			status:  trainingJobStatus{Phase: phaseRunning, TargetWorkers: both},
			workers: map[string]*corev1.Pod{"job-worker-0": running, "job-worker-1": running}, phase: phaseFailed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			status := test.status
			assert.Equal(t, test.create, status.advance("job", 2, !test.never, test.workers, test.launcher))
			assert.Equal(t, test.phase, status.Phase)
		})
	}
}
