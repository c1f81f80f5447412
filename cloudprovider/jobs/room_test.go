package jobs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestNoPodIsMadeOfAJobForWhichThereIsNoRoom(t *testing.T) {
	const template = `template: {spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}`
	w := newWorld(t)
	for system, spec := range map[string]string{
		"job":         `{parallelism: 300000, completionMode: Indexed, ` + template + `}`,
		"pytorchjob":  `{pytorchReplicaSpecs: {Worker: {replicas: 300000, ` + template + `}}}`,
		"mpijob":      `{mpiReplicaSpecs: {Worker: {replicas: 300000, ` + template + `}, Launcher: {` + template + `}}}`,
		"trainingjob": `{etReplicaSpecs: {worker: {replicas: 300000, ` + template + `}, launcher: {` + template + `}}}`,
		"jobset":      `{replicatedJobs: [{name: w, replicas: 1000000000, template: {spec: {parallelism: 1000000000, ` + template + `}}}]}`,
		"raycluster":  `{headGroupSpec: {` + template + `}, workerGroupSpecs: [{groupName: w, replicas: 300000, minReplicas: 0, maxReplicas: 300000, ` + template + `}]}`,
		"rayjob":      `{rayClusterSpec: {headGroupSpec: {` + template + `}, workerGroupSpecs: [{groupName: w, replicas: 300000, ` + template + `}]}}`,
		"vcjob":       `{tasks: [{name: launcher, replicas: 2000000000, ` + template + `}, {name: w, replicas: 300000, ` + template + `}]}`,
	} {
		adapter := w.registry.byName[system]
		object := parse(t, `{apiVersion: `+adapter.Resource().GroupVersion().String()+`, kind: `+adapter.Kind()+`, metadata: {namespace: ml, name: big}, spec: `+spec+`}`)
		job, err := readJob(adapter, object)
		require.NoError(t, err, system)
		rooms := 0
		pods, err := w.registry.Gang(job, job.Replicas, func(*corev1.Pod) int { rooms++; return 24 })
		var large *TooManyPodsError
		assert.ErrorAs(t, err, &large, system)
		assert.Empty(t, pods, system)
		assert.Less(t, rooms, 10, "%s: one pod of each template was made at most", system)
		_, err = w.registry.Gang(job, job.Replicas, anyRoom)
		assert.ErrorAs(t, err, &large, "%s: however large the pools are", system)
	}
}

func TestNumbersThatNoSystemCanHaveAreMalformed(t *testing.T) {
	w := newWorld(t)
	adapter := w.registry.byName["job"]
	_, err := readJob(adapter, parse(t, `{apiVersion: batch/v1, kind: Job, metadata: {namespace: ml, name: big}, spec: {parallelism: 3000000000}}`))
	assert.ErrorContains(t, err, "spec.parallelism: 3000000000 is above 2147483647")
}
