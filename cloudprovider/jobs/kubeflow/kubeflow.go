// Package kubeflow has what the jobs of Kubeflow's operators have in common: the training operator's, and the MPI operator's.
package kubeflow

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// Group is the API group of the jobs.
const Group = "kubeflow.org"

// Labels of the pods. Role is the MPI operator's name for Type.
const (
	LabelOperator = "training.kubeflow.org/operator-name"
	LabelJob      = "training.kubeflow.org/job-name"
	LabelType     = "training.kubeflow.org/replica-type"
	LabelIndex    = "training.kubeflow.org/replica-index"
	LabelRole     = "training.kubeflow.org/job-role"
)

// Restart policies of replicas.
const (
	RestartNever     = "Never"
	RestartOnFailure = "OnFailure"
	RestartExitCode  = "ExitCode"
)

// RunPolicy is what is read of spec.runPolicy.
type RunPolicy struct {
	Suspend bool `json:"suspend"`
}

// SuspendPath is the path of RunPolicy.Suspend.
func SuspendPath() []string { return []string{"spec", "runPolicy", "suspend"} }

// Status is what is read of the status.
type Status struct {
	Conditions []jobs.Condition `json:"conditions"`
}

// HasEnded returns whether the job has ended for good.
func (s Status) HasEnded() bool { return jobs.IsTrue(s.Conditions, "Succeeded", "Failed") }

// ReplicaOf returns the type, in lower case, and the index of the replica that a pod of the job is. It goes by the pod's name, which is
// the same under the training operator and under Arena's operators, while the labels are not.
// Source: GenGeneralName in pkg/core/utils.go of the training operator 1.9.2.
func ReplicaOf(pod *corev1.Pod, job string) (kind, index string) {
	kind, index, _ = strings.Cut(strings.TrimPrefix(pod.Name, job+"-"), "-")
	return kind, index
}

// ReplicaSpecs are the replicas of a job by their type. The operators accept types in upper and lower case.
type ReplicaSpecs map[string]*ReplicaSpec

// ReplicaSpec is what is read of the replicas of one type.
type ReplicaSpec struct {
	Replicas      *jobs.Count     `json:"replicas"`
	RestartPolicy string          `json:"restartPolicy"`
	Template      json.RawMessage `json:"template"`

	// Type is the type as the job spells it. Get sets it.
	Type string `json:"-"`
}

// Get returns the replicas of a type, or nil.
func (s ReplicaSpecs) Get(kind string) *ReplicaSpec {
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if spec := s[key]; spec != nil && strings.EqualFold(key, kind) {
			spec.Type = key
			return spec
		}
	}
	return nil
}

// Count returns how many replicas of a type there are.
func (s ReplicaSpecs) Count(kind string) int {
	if spec := s.Get(kind); spec != nil {
		return spec.Replicas.Or(1)
	}
	return 0
}

// HasRestartPolicy returns whether replicas of one of the types have a restart policy. The default is what the operator takes
// where there is none.
func (s ReplicaSpecs) HasRestartPolicy(policy, otherwise string, kinds ...string) bool {
	return slices.ContainsFunc(kinds, func(kind string) bool {
		spec := s.Get(kind)
		if spec == nil {
			return false
		}
		has := spec.RestartPolicy
		if has == "" {
			has = otherwise
		}
		return has == policy
	})
}

// Total returns how many replicas of all types there are.
func (s ReplicaSpecs) Total() (total int) {
	for _, spec := range s {
		if spec != nil {
			total += spec.Replicas.Or(1)
		}
	}
	return total
}

// ReplicasPatch adds to the patch that there are so many replicas of a type, which the job has. The path is that of the replicas' specs in
// the object.
func (s ReplicaSpecs) ReplicasPatch(patch jobs.Patch, path, kind string, count int) jobs.Patch {
	return patch.Set(int64(count), append(strings.Split(path, "."), s.Get(kind).Type, "replicas")...)
}

// Replicas are so many replicas of a type.
type Replicas struct {
	Type  string
	Count int
	Role  jobs.Role
}

// PodSets returns the pods of the types of which there are to be any. The path is that of the replicas' specs in the object.
func (s ReplicaSpecs) PodSets(job jobs.Job, path, operator string, types ...Replicas) (sets []jobs.PodSet, err error) {
	for _, replicas := range types {
		if replicas.Count <= 0 {
			continue
		}
		set, err := s.PodSet(job, path, operator, replicas.Type, replicas.Count, replicas.Role)
		if err != nil {
			return nil, err
		}
		sets = append(sets, set)
	}
	return sets, nil
}

// PodSet returns the pods of one type, as the operator makes them. The path is that of the replicas' specs in the object.
func (s ReplicaSpecs) PodSet(job jobs.Job, path, operator, kind string, count int, role jobs.Role) (jobs.PodSet, error) {
	spec := s.Get(kind)
	if spec == nil {
		return jobs.PodSet{}, jobs.Missing(path + "." + kind)
	}
	lower := strings.ToLower(kind)
	return jobs.PodSet{
		Path: path + "." + spec.Type + ".template", Template: spec.Template, Count: count, Role: role, NamePrefix: job.Name + "-" + lower,
		Labels: func(i int) map[string]string {
			return map[string]string{LabelOperator: operator, LabelJob: job.Name, LabelType: lower, LabelIndex: strconv.Itoa(i)}
		},
	}, nil
}
