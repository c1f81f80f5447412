package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	apicorev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// Submitted is what a plan takes for submitted: the objects of files, and the pods that the cluster would have for them. The zero value, and nil,
// are a cluster as it is. It belongs to one goroutine until it is handed to the autoscaler's parts, which only read it.
type Submitted struct {
	// Jobs are those documents that make pods, or could.
	Jobs []*Job
	// Notes are what the reader of the plan has to know about the files.
	Notes []string
	// objects are those of the files, and what job systems would make of them, by resource and name.
	objects map[objectKey]*unstructured.Unstructured
	// without are the node groups of which nothing is to be bought.
	without []string
}

type objectKey struct {
	resource schema.GroupVersionResource
	types.NamespacedName
}

// Job is one object that makes pods.
type Job struct {
	*Document
	Pods []*corev1.Pod
	// Nothing is why there would be no pods, empty if there would.
	Nothing string
}

// uidPrefix begins the UIDs of pods that do not exist.
const uidPrefix = "planned/"

// IsPlanned returns whether the pod exists in a plan only.
func IsPlanned(pod *corev1.Pod) bool { return strings.HasPrefix(string(pod.UID), uidPrefix) }

// makesNoPods are kinds that people write into the files of their jobs. Pod groups count for the gangs of pods.
var makesNoPods = []string{
	"ConfigMap", "Secret", "Service", "ServiceAccount", "Namespace", "PersistentVolumeClaim", "PersistentVolume", "PodDisruptionBudget", "PriorityClass",
	"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "NetworkPolicy", "ResourceQuota", "LimitRange", "Ingress", "PodGroup", "HorizontalPodAutoscaler",
}

// Read makes the pods of the documents, with the job systems of the registry. The error joins those of the documents.
func Read(documents []*Document, registry *jobs.Registry, clk clock.PassiveClock) (*Submitted, error) {
	s := &Submitted{objects: map[objectKey]*unstructured.Unstructured{}}
	submissions := jobs.NewSubmissions(registry)
	var errs []error
	for _, document := range documents {
		s.add(document.Object)
		if slices.Contains(makesNoPods, document.Object.GetKind()) {
			continue
		}
		job := &Job{Document: document}
		if err := s.makePods(job, submissions); err != nil {
			errs = append(errs, document.errorf("%w", err))
		}
		s.Jobs = append(s.Jobs, job)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(s.Jobs) == 0 {
		return nil, fmt.Errorf("%s: no object makes pods", documents[0].File)
	}
	s.prepare(metav1.NewTime(clk.Now()))
	return s, nil
}

func (s *Submitted) add(object *unstructured.Unstructured) {
	resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
	s.objects[objectKey{resource, types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}}] = object
}

// makePods makes the pods of one object.
func (s *Submitted) makePods(job *Job, submissions jobs.Submissions) error {
	kind := job.Object.GroupVersionKind()
	switch kind.GroupKind() {
	case corev1.SchemeGroupVersion.WithKind("Pod").GroupKind():
		return job.addPod()
	case appsv1.SchemeGroupVersion.WithKind("Deployment").GroupKind():
		deployment := &appsv1.Deployment{}
		if err := decode(job.Object, deployment); err != nil {
			return err
		}
		return job.addReplicas(deployment.Spec.Replicas, &deployment.Spec.Template, deployment.Name+"-planned")
	case appsv1.SchemeGroupVersion.WithKind("ReplicaSet").GroupKind():
		set := &appsv1.ReplicaSet{}
		if err := decode(job.Object, set); err != nil {
			return err
		}
		return job.addReplicas(set.Spec.Replicas, &set.Spec.Template, set.Name)
	}
	system, others := submissions.SystemOf(kind)
	switch {
	case len(others) > 0 && system == "":
		return fmt.Errorf("apiVersion: %s of %s is not read, only %s", kind.Version, kind.GroupKind(), strings.Join(others, ", "))
	case kind.Group == "trainer.kubeflow.org":
		return fmt.Errorf("kind: the pods of a %s come from its runtime. Plan the JobSet that the Kubeflow Trainer makes of it", kind.Kind)
	case system == "":
		return fmt.Errorf("kind: it is not known which pods a %s makes. Known are Pod, Deployment, ReplicaSet, and the jobs of docs/jobs.md", kind.GroupKind())
	}
	found, err := submissions.Of(job.Object)
	switch {
	case errors.Is(err, jobs.ErrNoObject):
		return fmt.Errorf("kind: the cluster does not serve %s: %w", kind, err)
	case err != nil:
		return err
	case found.Job.Suspended:
		job.Nothing = "The job is suspended, and has no pods before it is resumed."
		return nil
	}
	if jobs.IsQueued(job.Object) {
		s.Notes = append(s.Notes, fmt.Sprintf("%s %s/%s waits for Kueue first. This is what would be bought if Kueue admitted it now.", kind.Kind, job.Object.GetNamespace(), job.Object.GetName()))
	}
	if found.Group != nil {
		s.add(found.Group)
	}
	job.Pods = found.Pods
	return nil
}

// decode reads an object of Kubernetes. The error names a field that does not exist or has the wrong type.
func decode(object *unstructured.Unstructured, into any) error {
	if err := jobs.Decode(object, into); err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, into, true)
}

func (j *Job) addPod() error {
	pod := &corev1.Pod{}
	if err := decode(j.Object, pod); err != nil {
		return err
	}
	if len(pod.Spec.Containers) == 0 {
		return jobs.Missing("spec.containers")
	}
	if pod.Spec.NodeName != "" {
		j.Nothing = "The pod names its node, and needs none."
		return nil
	}
	j.Pods = append(j.Pods, pod)
	return nil
}

// addReplicas adds the pods of a ReplicaSet of that name.
func (j *Job) addReplicas(replicas *int32, template *corev1.PodTemplateSpec, set string) error {
	if len(template.Spec.Containers) == 0 {
		return jobs.Missing("spec.template.spec.containers")
	}
	owner := metav1.NewControllerRef(&metav1.ObjectMeta{Name: set, UID: types.UID(uidPrefix + j.String())}, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
	for i := range int(ptr.Deref(replicas, 1)) {
		pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
		pod.Namespace, pod.Name, pod.OwnerReferences = j.Object.GetNamespace(), fmt.Sprintf("%s-%d", set, i), []metav1.OwnerReference{*owner}
		j.Pods = append(j.Pods, pod)
	}
	if len(j.Pods) == 0 {
		j.Nothing = "It asks for no pods."
	}
	return nil
}

// prepare makes all pods pending ones that the scheduler could not place.
func (s *Submitted) prepare(now metav1.Time) {
	for i, job := range s.Jobs {
		if len(job.Pods) == 0 && job.Nothing == "" {
			job.Nothing = "It asks for no pods."
		}
		for n, pod := range job.Pods {
			apicorev1.SetObjectDefaults_Pod(pod) // above all, requests where there are limits only
			pod.UID = types.UID(fmt.Sprintf("%s%d/%d", uidPrefix, i, n))
			pod.CreationTimestamp, pod.Spec.NodeName = now, ""
			pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: now,
			}}}
			if len(pod.Spec.SchedulingGates) > 0 {
				pod.Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated
			}
			s.pod(pod)
		}
	}
}

// pod makes the pod one that Dynamic knows.
func (s *Submitted) pod(pod *corev1.Pod) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return // pods always convert
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	s.add(object)
}

// Pods returns the pods of all jobs.
func (s *Submitted) Pods() (pods []*corev1.Pod) {
	for _, job := range s.Jobs {
		pods = append(pods, job.Pods...)
	}
	return pods
}

// Without returns the same, of a plan that buys nothing of the node groups.
func (s *Submitted) Without(nodeGroups ...string) *Submitted {
	other := *s
	other.without = append(slices.Clone(s.without), nodeGroups...)
	return &other
}

// Allows returns a function that allows what the given one does, but for the node groups of which nothing is to be bought.
func (s *Submitted) Allows(next func(groupID string, pods []*corev1.Pod) bool) func(groupID string, pods []*corev1.Pod) bool {
	if s == nil || len(s.without) == 0 {
		return next
	}
	return func(groupID string, pods []*corev1.Pod) bool {
		return !slices.Contains(s.without, groupID) && next(groupID, pods)
	}
}

// Dynamic returns a client that reads the objects of the files before those of the cluster.
func (s *Submitted) Dynamic(cluster dynamic.Interface) dynamic.Interface {
	if s == nil {
		return cluster
	}
	return overlay{cluster, s}
}

// overlay is a client that knows objects that the cluster does not have.
type overlay struct {
	dynamic.Interface
	submitted *Submitted
}

func (o overlay) Resource(resource schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return overlaidResource{o.Interface.Resource(resource), o.submitted, resource}
}

type overlaidResource struct {
	dynamic.NamespaceableResourceInterface
	submitted *Submitted
	resource  schema.GroupVersionResource
}

func (r overlaidResource) Namespace(namespace string) dynamic.ResourceInterface {
	return overlaidNamespace{r.NamespaceableResourceInterface.Namespace(namespace), r, namespace}
}

type overlaidNamespace struct {
	dynamic.ResourceInterface
	of        overlaidResource
	namespace string
}

func (n overlaidNamespace) Get(ctx context.Context, name string, options metav1.GetOptions, subresources ...string) (*unstructured.Unstructured, error) {
	key := objectKey{n.of.resource, types.NamespacedName{Namespace: n.namespace, Name: name}}
	if object := n.of.submitted.objects[key]; object != nil && len(subresources) == 0 {
		return object.DeepCopy(), nil
	}
	return n.ResourceInterface.Get(ctx, name, options, subresources...)
}

// CheckNew returns an error for each job that the cluster has already: its pods count as they are.
func (s *Submitted) CheckNew(ctx context.Context, cluster dynamic.Interface) error {
	var errs []error
	for _, job := range s.Jobs {
		resource, _ := meta.UnsafeGuessKindToResource(job.Object.GroupVersionKind())
		_, err := cluster.Resource(resource).Namespace(job.Object.GetNamespace()).Get(ctx, job.Object.GetName(), metav1.GetOptions{})
		switch {
		case err == nil:
			errs = append(errs, job.errorf("metadata.name: the cluster has it already, and its pods count as they are. Give it another name, or ask why a pod waits: gpu-spot-autoscaler explain pod NAMESPACE/NAME"))
		case !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
			errs = append(errs, job.errorf("find out whether it exists: %w", err))
		}
	}
	return errors.Join(errs...)
}
