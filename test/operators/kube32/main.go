// Command kube32 is one of the job operators whose libraries are Kubernetes 1.32's: kueue, mpi-operator or training-operator. It is
// started by package gpu-spot-autoscaler/test/operators, not by hand.
package main

import "gpu-spot-autoscaler/test/operators/command"

func main() {
	command.Main(map[string]command.Operator{
		"kueue": kueue, "mpi-operator": mpiOperator, "training-operator": trainingOperator,
	})
}
