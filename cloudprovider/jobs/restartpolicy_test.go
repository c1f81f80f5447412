package jobs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// What the training operator makes of the policies is told in test/trainingoperator, by the operator itself.
func TestAJobThatNoPodMayLeaveNeedsAllOfThem(t *testing.T) {
	const horovod = `Launcher: {template: {spec: {containers: [{command: [horovodrun, --min-np, "2"]}]}}}`
	tests := map[string]struct {
		adapter Adapter
		spec    string
		least   int
	}{
		"elastic": {newPyTorchJob(&cluster{}),
			`{elasticPolicy: {minReplicas: 2, maxReplicas: 6}, pytorchReplicaSpecs: {Worker: {replicas: 4, restartPolicy: ExitCode}}}`, 2},
		"elastic, by default": {newPyTorchJob(&cluster{}),
			`{elasticPolicy: {minReplicas: 2, maxReplicas: 6}, pytorchReplicaSpecs: {worker: {replicas: 4}}}`, 2},
		"elastic, with workers that are never restarted": {newPyTorchJob(&cluster{}),
			`{elasticPolicy: {minReplicas: 2, maxReplicas: 6}, pytorchReplicaSpecs: {worker: {replicas: 4, restartPolicy: Never}}}`, 4},
		"elastic, with a master that is never restarted": {newPyTorchJob(&cluster{}),
			`{elasticPolicy: {minReplicas: 2, maxReplicas: 6}, pytorchReplicaSpecs: {Master: {restartPolicy: Never}, Worker: {replicas: 3}}}`, 4},
		"MPI v1": {newMPIJobV1(&cluster{}),
			`{mpiReplicaSpecs: {` + horovod + `, Worker: {replicas: 4, restartPolicy: ExitCode}}}`, 2},
		"MPI v1, by default": {newMPIJobV1(&cluster{}),
			`{mpiReplicaSpecs: {` + horovod + `, Worker: {replicas: 4}}}`, 4},
		"MPI v2": {newMPIJob(&cluster{}),
			`{mpiReplicaSpecs: {` + horovod + `, Worker: {replicas: 4}}}`, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			text, err := yaml.YAMLToJSON([]byte("{apiVersion: kubeflow.org/v1, kind: Any, metadata: {name: job}, spec: " + test.spec + "}"))
			require.NoError(t, err)
			object := &unstructured.Unstructured{}
			require.NoError(t, object.UnmarshalJSON(text))
			job, err := test.adapter.Read(object)
			require.NoError(t, err)
			assert.Equal(t, test.least, job.Min)
			assert.Equal(t, 4, job.Replicas)
		})
	}
}
