package jobs

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apicorev1 "k8s.io/kubernetes/pkg/apis/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// PodSet is the pods of one template of a job.
type PodSet struct {
	// Path is that of the template in the job's object, for errors.
	Path string
	// Template is the pod template, as the object has it.
	Template json.RawMessage
	Count    int
	Role     Role
	// NamePrefix is followed by "-<number>", where Name is nil.
	NamePrefix string
	Name       func(i int) string
	// Labels are those that the system adds to the template's for each pod. It is nil where there are none.
	Labels func(i int) map[string]string
	// SchedulerName is for pods whose template names no scheduler.
	SchedulerName string
}

// MostPods returns for how many pods like this one there could be capacity: an upper bound that may be too high, and never is
// too low.
type MostPods func(pod *corev1.Pod) int

// maxPods is how many pods of one job are simulated at most: twice the nodes that a cluster of Kubernetes can have
// (https://kubernetes.io/docs/setup/best-practices/cluster-large/).
const maxPods = 10_000

// newPods returns the pods of the sets, workers first, or a TooManyPodsError before any is made if there are more than there could be capacity for.
// Each pod has its role as an annotation, as it has no owner.
func newPods(job Job, sets []PodSet, most MostPods) ([]*corev1.Pod, error) {
	order := map[Role]int{RoleWorker: 0, RoleHost: 1, RoleLauncher: 2}
	slices.SortStableFunc(sets, func(a, b PodSet) int { return order[a.Role] - order[b.Role] })
	templates := make([]*corev1.PodTemplateSpec, len(sets))
	total := 0
	for i, set := range sets {
		var err error
		if templates[i], err = set.decode(); err != nil {
			return nil, err
		}
		if err := set.checkCount(job, templates[i], most); err != nil {
			return nil, err
		}
		if total += set.Count; total > maxPods {
			return nil, &TooManyPodsError{Path: "all templates", Pods: total, Most: maxPods}
		}
	}
	var pods []*corev1.Pod
	for i, set := range sets {
		for replica := range set.Count {
			pods = append(pods, set.pod(job.Namespace, templates[i].DeepCopy(), replica))
		}
	}
	return pods, nil
}

// checkCount makes one of the pods, and compares how many there are with the most for which there could be capacity.
func (s *PodSet) checkCount(job Job, template *corev1.PodTemplateSpec, most MostPods) error {
	if s.Count == 0 {
		return nil
	}
	if limit := most(s.pod(job.Namespace, template.DeepCopy(), 0)); s.Count > limit {
		return &TooManyPodsError{Path: s.Path, Pods: s.Count, Most: limit, Workers: s.Role == RoleWorker}
	}
	return nil
}

func (s *PodSet) decode() (*corev1.PodTemplateSpec, error) {
	if len(s.Template) == 0 {
		return nil, Missing(s.Path)
	}
	template := &corev1.PodTemplateSpec{}
	if err := decode(s.Template, s.Path, template); err != nil {
		return nil, err
	}
	if len(template.Spec.Containers) == 0 {
		return nil, Missing(join(s.Path, "spec.containers"))
	}
	return template, nil
}

func (s *PodSet) pod(namespace string, template *corev1.PodTemplateSpec, i int) *corev1.Pod {
	name := s.NamePrefix + "-" + strconv.Itoa(i)
	if s.Name != nil {
		name = s.Name(i)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{}, Annotations: map[string]string{api.AnnotationRole: string(s.Role)},
		},
		Spec: template.Spec,
	}
	maps.Copy(pod.Annotations, template.Annotations)
	maps.Copy(pod.Labels, template.Labels)
	if s.Labels != nil {
		maps.Copy(pod.Labels, s.Labels(i))
	}
	pod.Spec.NodeName = ""
	apicorev1.SetObjectDefaults_Pod(pod) // above all, requests where there are limits only
	if s.SchedulerName != "" && pod.Spec.SchedulerName == corev1.DefaultSchedulerName {
		pod.Spec.SchedulerName = s.SchedulerName
	}
	return pod
}

// CommandLine returns what the first container of a pod template runs, with blanks between the words. It is empty where
// there is no template or no container.
func CommandLine(template json.RawMessage, path string) (string, error) {
	if len(template) == 0 {
		return "", nil
	}
	var pod struct {
		Spec struct {
			Containers []struct {
				Command []string `json:"command"`
				Args    []string `json:"args"`
			} `json:"containers"`
		} `json:"spec"`
	}
	if err := decode(template, path, &pod); err != nil || len(pod.Spec.Containers) == 0 {
		return "", err
	}
	first := pod.Spec.Containers[0]
	return strings.Join(append(first.Command, first.Args...), " "), nil
}

// Submission is what the cluster would have of a job right after somebody has submitted its object.
type Submission struct {
	Job Job
	// Pods have the owner by which the system knows its pods, and no UID.
	Pods []*corev1.Pod
	// Group is the object that a Grouper would make for the job, nil for none.
	Group *unstructured.Unstructured
}

// Submissions tells what would come of objects that the cluster does not have. It is safe for concurrent use.
type Submissions struct{ registry *Registry }

// NewSubmissions returns the Submissions of the systems of a Registry.
func NewSubmissions(registry *Registry) Submissions { return Submissions{registry} }

// SystemOf returns the system of the objects of a kind. Others are the versions of it that are read, if it is not this one.
func (s Submissions) SystemOf(kind schema.GroupVersionKind) (system string, others []string) {
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	for _, known := range s.registry.config.Systems {
		switch {
		case known.Resource() == resource:
			return known.Name(), nil
		case known.Resource().GroupResource() == resource.GroupResource():
			others = append(others, known.Resource().Version)
		}
	}
	return "", others
}

// Of returns what would come of the object, all of its pods at once. The error is a FieldError if a field is missing or malformed, and wraps
// ErrNoObject if the cluster does not serve the system's resource.
func (s Submissions) Of(object *unstructured.Unstructured) (Submission, error) {
	name, _ := s.SystemOf(object.GroupVersionKind())
	system, err := s.registry.system(NewRef(name, object.GetNamespace(), object.GetName()))
	if err != nil {
		return Submission{}, err
	}
	job, err := read(system, object)
	if err != nil || job.Suspended {
		return Submission{Job: job}, err
	}
	pods, err := s.registry.Gang(job, job.Replicas, func(*corev1.Pod) int { return math.MaxInt })
	if err != nil {
		return Submission{}, err
	}
	result := Submission{Job: job, Pods: pods}
	if grouper, ok := system.(Grouper); ok {
		if result.Group, err = grouper.Group(job, pods); err != nil {
			return Submission{}, err
		}
	}
	for _, pod := range pods {
		if err := s.own(result, pod); err != nil {
			return Submission{}, err
		}
	}
	return result, nil
}

// own gives the pod the owner by which its system knows it: the job, the object that groups it, or one of those of Kubernetes that systems make
// for jobs, by the names that they give them.
func (s Submissions) own(of Submission, pod *corev1.Pod) error {
	owner := func(kind schema.GroupVersionKind, name string) metav1.OwnerReference {
		uid := types.UID(of.Job.Ref.String() + "/" + kind.Kind + "/" + name)
		return *metav1.NewControllerRef(&metav1.ObjectMeta{Name: name, UID: uid}, kind)
	}
	candidates := []metav1.OwnerReference{owner(of.Job.Object.GroupVersionKind(), of.Job.Name)}
	refs := []Ref{of.Job.Ref}
	if of.Group != nil {
		system, _ := s.SystemOf(of.Group.GroupVersionKind())
		refs = append(refs, NewRef(system, of.Job.Namespace, of.Group.GetName()))
		candidates = append(candidates, owner(of.Group.GroupVersionKind(), of.Group.GetName()))
	}
	made := pod.Name[:max(strings.LastIndexByte(pod.Name, '-'), 0)]
	for _, name := range []string{made, pod.Name, of.Job.Name} {
		candidates = append(candidates, owner(batchv1.SchemeGroupVersion.WithKind("Job"), name), owner(appsv1.SchemeGroupVersion.WithKind("StatefulSet"), name))
	}
	for _, candidate := range candidates {
		pod.OwnerReferences = []metav1.OwnerReference{candidate}
		if found, _ := s.registry.member(pod); slices.Contains(refs, found.Ref) {
			delete(pod.Annotations, api.AnnotationRole) // which is for pods without an owner
			return nil
		}
	}
	return fmt.Errorf("%s: no owner makes pod %s one of its pods", of.Job.Ref, pod.Name)
}
