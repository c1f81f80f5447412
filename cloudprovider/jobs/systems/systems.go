// Package systems lists the job systems. To add one, write its package and add it here.
package systems

import (
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/aitrainingjob"
	"gpu-spot-autoscaler/cloudprovider/jobs/arenampijob"
	"gpu-spot-autoscaler/cloudprovider/jobs/batchjob"
	"gpu-spot-autoscaler/cloudprovider/jobs/dlrover"
	"gpu-spot-autoscaler/cloudprovider/jobs/etjob"
	"gpu-spot-autoscaler/cloudprovider/jobs/jaxjob"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobset"
	"gpu-spot-autoscaler/cloudprovider/jobs/kuberay"
	"gpu-spot-autoscaler/cloudprovider/jobs/leaderworkerset"
	"gpu-spot-autoscaler/cloudprovider/jobs/mpijob"
	"gpu-spot-autoscaler/cloudprovider/jobs/pytorchjob"
	"gpu-spot-autoscaler/cloudprovider/jobs/tfjob"
	"gpu-spot-autoscaler/cloudprovider/jobs/volcano"
)

// All returns the job systems in the order in which they are asked whether a pod is theirs: a system that makes objects of
// another one stands before that.
func All(cluster jobs.Cluster) []jobs.System {
	return []jobs.System{
		etjob.New(cluster),
		mpijob.New(cluster), mpijob.NewV1(cluster), arenampijob.New(),
		pytorchjob.New(cluster), tfjob.New(cluster), jaxjob.New(cluster),
		dlrover.New(),
		aitrainingjob.New(),
		kuberay.NewRayJob(cluster), kuberay.NewRayCluster(cluster),
		volcano.New(cluster),
		leaderworkerset.New(),
		jobset.New(cluster),
		batchjob.New(cluster),
	}
}
