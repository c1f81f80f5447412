// Package leaderworkerset is the job system of LeaderWorkerSet: groups of a leader and workers that train or serve one model each.
package leaderworkerset

import (
	"encoding/json"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// Name is the name of the system.
const Name = "leaderworkerset"

const (
	labelName        = "leaderworkerset.sigs.k8s.io/name"
	labelGroupIndex  = "leaderworkerset.sigs.k8s.io/group-index"
	labelWorkerIndex = "leaderworkerset.sigs.k8s.io/worker-index"
	leaderIndex      = "0"

	annotationExclusive = "leaderworkerset.sigs.k8s.io/exclusive-topology"
	startupLeaderReady  = "LeaderReady"

	kindStatefulSet = "StatefulSet"
	pathTemplate    = "spec.leaderWorkerTemplate"
)

var resource = schema.GroupVersionResource{Group: "leaderworkerset.x-k8s.io", Version: "v1", Resource: "leaderworkersets"}

// System is the LeaderWorkerSet.
//
// Each group is a leader and its workers, which need each other, and no other group. With the restartPolicy RecreateGroupOnPodRestart, which
// is the default, the loss of any pod has the operator delete the leader, and with it all pods of the group, and make the group anew. With
// None, only the lost pod is made anew. So a group is a unit: all of it is asked for a checkpoint when one of its pods loses its Node, and
// then the pods on reclaiming Nodes leave. A LeaderWorkerSet has no field to suspend it.
// Source: handleRestartPolicy in pkg/controllers/pod_controller.go and LeaderWorkerSetSpec in
// api/leaderworkerset/v1/leaderworkerset_types.go of LeaderWorkerSet 0.7.0.
type System struct{}

var (
	_ jobs.System  = (*System)(nil)
	_ jobs.Divided = (*System)(nil)
	_ jobs.Starter = (*System)(nil)
)

// New returns the system.
func New() *System { return &System{} }

// leaderWorkerSet is what is read of a LeaderWorkerSet.
type leaderWorkerSet struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Replicas      *jobs.Count `json:"replicas"`
		StartupPolicy string      `json:"startupPolicy"`
		Template      *template   `json:"leaderWorkerTemplate"`
	} `json:"spec"`
}

type template struct {
	Size           *jobs.Count     `json:"size"`
	LeaderTemplate json.RawMessage `json:"leaderTemplate"`
	WorkerTemplate json.RawMessage `json:"workerTemplate"`
}

func decode(object *unstructured.Unstructured) (*leaderWorkerSet, error) {
	set := &leaderWorkerSet{}
	if err := jobs.Decode(object, set); err != nil {
		return nil, err
	}
	if set.Spec.Template == nil {
		return nil, jobs.Missing(pathTemplate)
	}
	return set, nil
}

func (s *leaderWorkerSet) groups() int { return s.Spec.Replicas.Or(1) }

// size returns how many pods a group has, its leader among them.
func (s *leaderWorkerSet) size() int { return max(s.Spec.Template.Size.Or(1), 1) }

// Name is the name of the system.
func (*System) Name() string { return Name }

// Resource is that of LeaderWorkerSets.
func (*System) Resource() schema.GroupVersionResource { return resource }

// Member goes by the StatefulSets that make the pods: that of the leaders has the name of the LeaderWorkerSet, and those of the workers
// have the names of their leaders. Source: constructLeaderStatefulSetApplyConfiguration in pkg/controllers/leaderworkerset_controller.go
// and constructWorkerStatefulSetApplyConfiguration in pod_controller.go of LeaderWorkerSet 0.7.0.
func (s *System) Member(pod *corev1.Pod) (job string, role jobs.Role, ok bool) {
	job = pod.Labels[labelName]
	switch {
	case job == "":
	case jobs.IsControlledBy(pod, appsv1.GroupName, kindStatefulSet, job):
		return job, jobs.RoleHost, true
	case jobs.IsControlledBy(pod, appsv1.GroupName, kindStatefulSet, s.UnitOf(pod)):
		return job, jobs.RoleWorker, true
	}
	return "", "", false
}

// UnitOf returns the group of the pod, by the name of its leader.
func (*System) UnitOf(pod *corev1.Pod) string {
	return pod.Labels[labelName] + "-" + pod.Labels[labelGroupIndex]
}

// Read returns a job that goes on with any number of groups.
func (*System) Read(object *unstructured.Unstructured) (jobs.Job, error) {
	set, err := decode(object)
	if err != nil {
		return jobs.Job{}, err
	}
	pods := set.groups() * set.size()
	return jobs.Job{Max: pods, Replicas: pods}, nil
}

// StartsWith returns a gang for each group. Where the operator makes the workers only once the leader is ready, or has a Node, the leader is
// in no gang. Source: Reconcile in pkg/controllers/pod_controller.go of LeaderWorkerSet 0.7.0.
func (*System) StartsWith(job jobs.Job) (jobs.StartGangs, error) {
	set, err := decode(job.Object)
	if err != nil {
		return jobs.StartGangs{}, err
	}
	gangs := jobs.StartGangs{Label: labelGroupIndex, Size: set.size()}
	if set.Spec.StartupPolicy == startupLeaderReady || set.Metadata.Annotations[annotationExclusive] != "" {
		gangs.Size--
		gangs.Except = map[string]string{labelWorkerIndex: leaderIndex}
	}
	return gangs, nil
}

// PodSets returns all groups, whatever the number of pods.
func (*System) PodSets(of jobs.Job, _ int) ([]jobs.PodSet, error) {
	set, err := decode(of.Object)
	if err != nil {
		return nil, err
	}
	groups, workers := set.groups(), set.size()-1
	labels := func(group, worker int) map[string]string {
		return map[string]string{labelName: of.Name, labelGroupIndex: strconv.Itoa(group), labelWorkerIndex: strconv.Itoa(worker)}
	}
	leaders := jobs.PodSet{
		Path: pathTemplate + ".leaderTemplate", Template: set.Spec.Template.LeaderTemplate, Count: groups, Role: jobs.RoleHost, NamePrefix: of.Name,
		Labels: func(i int) map[string]string { return labels(i, 0) },
	}
	if len(leaders.Template) == 0 { // both have the same
		leaders.Path, leaders.Template = pathTemplate+".workerTemplate", set.Spec.Template.WorkerTemplate
	}
	return []jobs.PodSet{leaders, {
		Path: pathTemplate + ".workerTemplate", Template: set.Spec.Template.WorkerTemplate, Count: groups * workers, Role: jobs.RoleWorker,
		Name:   func(i int) string { return fmt.Sprintf("%s-%d-%d", of.Name, i/workers, i%workers+1) },
		Labels: func(i int) map[string]string { return labels(i/workers, i%workers+1) },
	}}, nil
}
