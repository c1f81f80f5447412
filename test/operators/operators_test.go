package operators

import (
	"testing"

	"gpu-spot-autoscaler/test/cluster"
)

// Each runs beside the others of one cluster, but for the MPI operator, whose definition has the name of another's.
func TestEveryOperatorStartsUnderItsOwnDefinitionsAndWebhooks(t *testing.T) {
	t.Run("together", func(t *testing.T) {
		c := cluster.StartForTest(t)
		for _, system := range []System{JobSet, Trainer, LeaderWorkerSet, KubeRay, Kueue, TrainingOperator} {
			ForTest(t, c, system)
		}
	})
	t.Run("mpi-operator", func(t *testing.T) { ForTest(t, cluster.StartForTest(t), MPIOperator) })
}
