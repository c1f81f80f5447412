// Package kubeflow has what the jobs of Kubeflow's operators have in common: the training operator's, and the MPI operator's.
package kubeflow

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

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

// HasEnded says whether the job has ended for good.
func (s Status) HasEnded() bool { return jobs.IsTrue(s.Conditions, "Succeeded", "Failed") }

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

// HasRestartPolicy says whether replicas of one of the types have a restart policy. The default is what the operator takes
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
