package jobs

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const (
	rayGroup        = "ray.io"
	labelRayCluster = "ray.io/cluster"
	labelRayType    = "ray.io/node-type"
	labelRayGroup   = "ray.io/group"
	rayHead         = "head"
	kindRayJob      = "RayJob"
)

// rayCluster is KubeRay's RayCluster.
//
// Ray moves its tasks off a node that gets SIGTERM, given more than 30 seconds, and the operator makes the pod anew. What
// Ray Train does with the loss is the program's own. The head's loss is that of all, so that it belongs off spot nodes.
//
// Suspended, the operator deletes all pods. A cluster that was made for a RayJob, and goes with it, is not suspended by
// itself: the job is the RayJob then. One of a RayService is nobody's to suspend.
type rayCluster struct{ setSuspend }

func newRayCluster(c *cluster) Adapter {
	return &rayCluster{setSuspend{
		system: &system{
			cluster: c, name: systemRayCluster, kind: "RayCluster",
			resource: schema.GroupVersionResource{Group: rayGroup, Version: "v1", Resource: "rayclusters"},
		},
		path: []string{"spec", "suspend"},
	}}
}

func (r *rayCluster) Member(pod *corev1.Pod) (Membership, bool) {
	name := pod.Labels[labelRayCluster]
	if name == "" {
		return Membership{}, false
	}
	role := RoleWorker
	if pod.Labels[labelRayType] == rayHead {
		role = RoleLauncher
	}
	return Membership{Ref: r.ref(pod.Namespace, name), Role: role}, true
}

// Parent is the RayJob that a cluster was made for.
func (r *rayCluster) Parent(object *unstructured.Unstructured) (system, name string, ok bool) {
	owner := metav1.GetControllerOf(object)
	if owner == nil || owner.Kind != kindRayJob || groupOf(owner.APIVersion) != rayGroup {
		return "", "", false
	}
	return systemRayJob, owner.Name, true
}

func (r *rayCluster) Read(object *unstructured.Unstructured) (Job, error) {
	spec, err := fieldsOf(object).section("spec")
	if err != nil {
		return Job{}, err
	}
	job, err := readRay(spec)
	if err != nil {
		return Job{}, err
	}
	job.Suspended, err = spec.flag("suspend")
	return job, err
}

func (r *rayCluster) Gang(job Job, workers int, room Room) ([]*corev1.Pod, error) {
	return rayGang(job, workers, room, "spec")
}

func (r *rayCluster) Suspend(ctx context.Context, job Job, reason Reason) error {
	if owner := metav1.GetControllerOf(job.Object); owner != nil {
		return fmt.Errorf("it belongs to %s %s: %w", owner.Kind, owner.Name, ErrUnsupported)
	}
	return r.setSuspend.Suspend(ctx, job, reason)
}

const systemRayCluster, systemRayJob = "raycluster", "rayjob"

// rayJob is KubeRay's RayJob: a RayCluster that is made for one program, and the program.
//
// Suspended, the cluster is deleted, and resumed, another one is made, on which the program starts again, from its
// checkpoint. The job is suspended, and knows its cluster no more, when that is gone: its pods are still being ended then,
// and only name the cluster. The operator fails a RayJob that is suspended without shutdownAfterJobFinishes, and one that runs on a
// cluster of others, so that these are not suspended.
type rayJob struct{ setSuspend }

func newRayJob(c *cluster) Adapter {
	return &rayJob{setSuspend{
		system: &system{
			cluster: c, name: systemRayJob, kind: kindRayJob,
			resource: schema.GroupVersionResource{Group: rayGroup, Version: "v1", Resource: "rayjobs"},
		},
		path: []string{"spec", "suspend"},
	}}
}

const (
	labelRayOrigin     = "ray.io/originated-from-cr-name"
	labelRayOriginKind = "ray.io/originated-from-crd"
)

// Member knows the pod that submits the program. Those of the cluster only name the cluster.
func (r *rayJob) Member(pod *corev1.Pod) (Membership, bool) {
	name := pod.Labels[labelRayOrigin]
	if pod.Labels[labelRayOriginKind] != r.kind || name == "" || pod.Labels[labelRayCluster] != "" {
		return Membership{}, false
	}
	return Membership{Ref: r.ref(pod.Namespace, name), Role: RoleLauncher}, true
}

func (r *rayJob) Read(object *unstructured.Unstructured) (Job, error) {
	spec, err := fieldsOf(object).section("spec")
	if err != nil {
		return Job{}, err
	}
	cluster, err := spec.section("rayClusterSpec")
	if err != nil {
		return Job{}, err
	}
	job, err := readRay(cluster)
	if err != nil {
		return Job{}, err
	}
	phase, err := phase(object, "jobDeploymentStatus")
	if err != nil {
		return Job{}, err
	}
	job.Finished = slices.Contains([]string{"Complete", "Failed", "ValidationFailed"}, phase)
	if job.Parts, err = r.currentCluster(object); err != nil {
		return Job{}, err
	}
	job.Suspended, err = spec.flag("suspend")
	return job, err
}

// currentCluster is the Ref of the RayCluster that the job has, if it has one.
func (r *rayJob) currentCluster(object *unstructured.Unstructured) ([]Ref, error) {
	status, err := fieldsOf(object).maybe("status")
	if err != nil {
		return nil, err
	}
	name, err := status.text("rayClusterName")
	if err != nil || name == "" {
		return nil, err
	}
	return []Ref{{System: systemRayCluster, NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: name}}}, nil
}

// Gang is not to be had before the operator has suspended the job: resumed before, it would keep what is left of its cluster.
func (r *rayJob) Gang(job Job, workers int, room Room) ([]*corev1.Pod, error) {
	object, err := objectOf(job)
	if err != nil {
		return nil, err
	}
	if status, err := object.maybe("status"); err == nil && job.Suspended {
		if phase, _ := status.text("jobDeploymentStatus"); phase != "Suspended" {
			return nil, &BusyError{With: "the deletion of its RayCluster"}
		}
	}
	return rayGang(job, workers, room, "spec", "rayClusterSpec")
}

func (r *rayJob) Suspend(ctx context.Context, job Job, reason Reason) error {
	spec, err := fieldsOf(job.Object).section("spec")
	if err != nil {
		return err
	}
	if deletes, err := spec.flag("shutdownAfterJobFinishes"); err != nil || !deletes {
		return fmt.Errorf("it is not to be shut down after it finishes, and could not be suspended: %w", ErrUnsupported)
	}
	if spec.values["clusterSelector"] != nil {
		return fmt.Errorf("it runs on a cluster of others: %w", ErrUnsupported)
	}
	return r.setSuspend.Suspend(ctx, job, reason)
}

// rayWorkers is one group of workers.
type rayWorkers struct {
	name                 string
	least, most, current int // pods
	template             fields
}

func rayGroups(spec fields) ([]rayWorkers, error) {
	list, err := spec.list("workerGroupSpecs")
	if err != nil {
		return nil, err
	}
	groups := make([]rayWorkers, 0, len(list))
	for _, item := range list {
		if off, err := item.flag("suspend"); err != nil {
			return nil, err
		} else if off {
			continue
		}
		group, err := readRayGroup(item)
		if err != nil {
			return nil, err
		}
		groups = append(groups, group)
	}
	return groups, nil
}

// readRayGroup counts pods, of which a replica has numOfHosts.
func readRayGroup(item fields) (g rayWorkers, err error) {
	if g.name, err = item.text("groupName"); err != nil {
		return g, err
	}
	if g.least, err = item.count("minReplicas", 0); err != nil {
		return g, err
	}
	if g.current, err = item.count("replicas", g.least); err != nil {
		return g, err
	}
	g.current = max(g.current, g.least)
	if g.most, err = item.count("maxReplicas", g.current); err != nil {
		return g, err
	}
	hosts, err := item.count("numOfHosts", 1)
	if err != nil {
		return g, err
	}
	hosts = max(hosts, 1)
	g.least, g.most, g.current = g.least*hosts, max(g.most, g.current)*hosts, g.current*hosts
	g.template, err = item.section("template")
	return g, err
}

func readRay(spec fields) (Job, error) {
	groups, err := rayGroups(spec)
	if err != nil {
		return Job{}, err
	}
	var job Job
	for _, group := range groups {
		job.Min, job.Max, job.Replicas = job.Min+group.least, job.Max+group.most, job.Replicas+group.current
	}
	return job, nil
}

// rayGang fills the groups in their order, each with its minimum before any gets more.
func rayGang(job Job, workers int, room Room, path ...string) ([]*corev1.Pod, error) {
	object, err := objectOf(job)
	if err != nil {
		return nil, err
	}
	spec, err := object.section(path...)
	if err != nil {
		return nil, err
	}
	head, err := spec.section("headGroupSpec", "template")
	if err != nil {
		return nil, err
	}
	workerGroups, err := rayGroups(spec)
	if err != nil {
		return nil, err
	}
	pods := func(template fields, n int, role Role, kind, group string) replicaGroup {
		return replicaGroup{
			template: template, replicas: n, role: role, name: numbered(job.Name + "-" + group + "-" + kind),
			labels: func(int) map[string]string {
				return map[string]string{labelRayCluster: job.Name, labelRayType: kind, labelRayGroup: group}
			},
		}
	}
	shares := make([]int, len(workerGroups))
	for i, group := range workerGroups {
		shares[i] = min(group.least, workers)
		workers -= shares[i]
	}
	var groups []replicaGroup
	for i, group := range workerGroups {
		more := min(group.current-shares[i], workers)
		workers -= more
		groups = append(groups, pods(group.template, shares[i]+more, RoleWorker, roleWorker, group.name))
	}
	return gang(job, room, append(groups, pods(head, 1, RoleLauncher, rayHead, "headgroup"))...)
}
