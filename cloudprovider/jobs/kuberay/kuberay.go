// Package kuberay is the job systems of KubeRay: the RayCluster, and the RayJob, which is a program with a RayCluster of its
// own.
package kuberay

import (
	"encoding/json"
	"fmt"

	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// Names of the systems.
const (
	NameRayCluster = "raycluster"
	NameRayJob     = "rayjob"
)

const (
	group        = "ray.io"
	labelCluster = "ray.io/cluster"
	labelType    = "ray.io/node-type"
	labelGroup   = "ray.io/group"
	typeHead     = "head"
	typeWorker   = "worker"
	// labelGang is on a RayCluster or RayJob whose pods KubeRay is to have scheduled as a gang, with whatever value.
	labelGang = "ray.io/gang-scheduling-enabled"
)

// startsWith returns one gang of the workers' minimum where the owner asks for it. Ray itself begins with the workers that it has.
// KubeRay's own gang includes the head, which is a launcher here, and which KubeRay makes first. Where it makes a PodGroup, that counts.
// Source: isGangSchedulingEnabled in controllers/ray/batchscheduler/scheduler-plugins/scheduler_plugins.go, and calculatePodGroupParams in
// volcano/volcano_scheduler.go beside it, of ray-operator 1.5.0.
func startsWith(job jobs.Job) jobs.StartGangs {
	if _, isGang := job.Object.GetLabels()[labelGang]; !isGang {
		return jobs.StartGangs{}
	}
	return jobs.StartGangs{Size: job.Min}
}

// clusterSpec is what is read of a RayCluster's spec, and of the same in a RayJob.
type clusterSpec struct {
	Suspend       bool `json:"suspend"`
	HeadGroupSpec struct {
		Template json.RawMessage `json:"template"`
	} `json:"headGroupSpec"`
	WorkerGroupSpecs []workerGroup `json:"workerGroupSpecs"`
}

// workerGroup is one group of workers. Its numbers are those of replicas, of which each has NumOfHosts pods.
type workerGroup struct {
	Name        string          `json:"groupName"`
	Suspend     bool            `json:"suspend"`
	Replicas    *jobs.Count     `json:"replicas"`
	MinReplicas *jobs.Count     `json:"minReplicas"`
	MaxReplicas *jobs.Count     `json:"maxReplicas"`
	NumOfHosts  *jobs.Count     `json:"numOfHosts"`
	Template    json.RawMessage `json:"template"`
}

// pods returns how many pods the group has at least, at most, and asks for. KubeRay makes no more than the maximum, whatever the
// minimum and the replicas are.
//
// Source: GetWorkerGroupDesiredReplicas in ray-operator/controllers/ray/utils/util.go of KubeRay v1.5.0.
func (g *workerGroup) pods() (least, most, current int) {
	hosts := max(g.NumOfHosts.Or(1), 1)
	least = g.MinReplicas.Or(0)
	current = max(g.Replicas.Or(least), least)
	most = g.MaxReplicas.Or(current)
	least, current = min(least, most), min(current, most)
	return least * hosts, most * hosts, current * hosts
}

// read returns the bounds of a cluster without the groups that are suspended. The path is that of the spec.
func (s *clusterSpec) read(path string) (jobs.Job, error) {
	var job jobs.Job
	for i := range s.WorkerGroupSpecs {
		group := &s.WorkerGroupSpecs[i]
		if group.Suspend {
			continue
		}
		if len(group.Template) == 0 {
			return job, jobs.Missing(templatePath(path, i))
		}
		least, most, current := group.pods()
		job.Min, job.Max, job.Replicas = job.Min+least, job.Max+most, job.Replicas+current
	}
	return job, nil
}

func templatePath(path string, group int) string {
	return fmt.Sprintf("%s.workerGroupSpecs[%d].template", path, group)
}

// podSets fills the groups in their order, each with its minimum before any gets more. The path is that of the spec.
func (s *clusterSpec) podSets(job jobs.Job, workers int, path string) []jobs.PodSet {
	shares := make([]int, len(s.WorkerGroupSpecs))
	take := func(i, wanted int) {
		share := min(wanted, workers)
		shares[i] += share
		workers -= share
	}
	for i := range s.WorkerGroupSpecs {
		if group := &s.WorkerGroupSpecs[i]; !group.Suspend {
			least, _, _ := group.pods()
			take(i, least)
		}
	}
	for i := range s.WorkerGroupSpecs {
		if group := &s.WorkerGroupSpecs[i]; !group.Suspend {
			_, _, current := group.pods()
			take(i, current-shares[i])
		}
	}
	var sets []jobs.PodSet
	for i, group := range s.WorkerGroupSpecs {
		if !group.Suspend {
			sets = append(sets, podSet(job, templatePath(path, i), group.Template, shares[i], jobs.RoleWorker, typeWorker, group.Name))
		}
	}
	return append(sets, podSet(job, path+".headGroupSpec.template", s.HeadGroupSpec.Template, 1, jobs.RoleLauncher, typeHead, "headgroup"))
}

func podSet(job jobs.Job, path string, template json.RawMessage, count int, role jobs.Role, kind, group string) jobs.PodSet {
	return jobs.PodSet{
		Path: path, Template: template, Count: count, Role: role, NamePrefix: job.Name + "-" + group + "-" + kind,
		Labels: func(int) map[string]string {
			return map[string]string{labelCluster: job.Name, labelType: kind, labelGroup: group}
		},
	}
}
