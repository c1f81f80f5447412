// Command kube34 is one of the job operators whose libraries are Kubernetes 1.34's: jobset, leaderworkerset, trainer or kuberay. It is
// started by package gpu-spot-autoscaler/test/operators, not by hand.
package main

import "gpu-spot-autoscaler/test/operators/command"

func main() {
	command.Main(map[string]command.Operator{
		"jobset": jobSet, "kuberay": kubeRay, "leaderworkerset": leaderWorkerSet, "trainer": trainer,
	})
}
