package standin

import (
	"context"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// cluster is what the operators do alike.
type cluster struct {
	kubernetes.Interface
	objects dynamic.Interface
}

// decode reads what T knows of the object.
func decode[T any](object *unstructured.Unstructured) (into T, err error) {
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &into)
	return into, err
}

// pods returns those with the labels, by name.
func (c cluster) pods(ctx context.Context, namespace string, set map[string]string) (map[string]*corev1.Pod, error) {
	list, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(set).String()})
	if err != nil {
		return nil, err
	}
	pods := make(map[string]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[list.Items[i].Name] = &list.Items[i]
	}
	return pods, nil
}

// newPod makes a pod of the owner's from a template. With an empty name the server makes one up that begins with
// template.GenerateName. The labels win over the template's.
func newPod(owner *unstructured.Unstructured, template corev1.PodTemplateSpec, name string, labels map[string]string) *corev1.Pod {
	template = *template.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Name, pod.Namespace = name, owner.GetNamespace()
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	maps.Copy(pod.Labels, labels)
	pod.OwnerReferences = []metav1.OwnerReference{controllerReference(owner)}
	return pod
}

// controllerReference is what an object carries that the owner controls.
func controllerReference(owner *unstructured.Unstructured) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(),
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}
}

// create is content with a pod that is there.
func (c cluster) create(ctx context.Context, pods ...*corev1.Pod) error {
	for _, pod := range pods {
		_, err := c.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// noGrace is how some operators delete.
var noGrace = metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}

// delete leaves alone what is on its way out, unless there is to be no grace.
func (c cluster) delete(ctx context.Context, options metav1.DeleteOptions, pods ...*corev1.Pod) error {
	for _, pod := range pods {
		if pod == nil || pod.DeletionTimestamp != nil && options.GracePeriodSeconds == nil {
			continue
		}
		if err := c.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// setStatus writes the status, a pointer to a struct, unless it is there already.
func (c cluster) setStatus(ctx context.Context, resource schema.GroupVersionResource, object *unstructured.Unstructured, status any) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return err
	}
	before, _, err := unstructured.NestedMap(object.Object, "status")
	if err != nil || len(before) == 0 && len(fields) == 0 || reflect.DeepEqual(before, fields) {
		return err
	}
	object.Object["status"] = fields
	updated, err := c.objects.Resource(resource).Namespace(object.GetNamespace()).UpdateStatus(ctx, object, metav1.UpdateOptions{})
	if err == nil {
		object.SetResourceVersion(updated.GetResourceVersion())
	}
	return err
}

// condition is as much of a condition as operators write into a job's status.
type condition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
	// Reason and LastTransitionTime are only written by operators that read them.
	Reason             string       `json:"reason,omitempty"`
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
}

// conditions holds at most one of each type.
type conditions []condition

func (c conditions) has(kind string) bool {
	for _, existing := range c {
		if existing.Type == kind {
			return existing.Status == "True"
		}
	}
	return false
}

func (c *conditions) set(kind string, holds bool) {
	status := "False"
	if holds {
		status = "True"
	}
	for i := range *c {
		if (*c)[i].Type == kind {
			(*c)[i].Status = status
			return
		}
	}
	*c = append(*c, condition{Type: kind, Status: status})
}

func running(pod *corev1.Pod) bool { return pod != nil && pod.Status.Phase == corev1.PodRunning }

func failed(pod *corev1.Pod) bool { return pod != nil && pod.Status.Phase == corev1.PodFailed }

func succeeded(pod *corev1.Pod) bool { return pod != nil && pod.Status.Phase == corev1.PodSucceeded }

func ended(pod *corev1.Pod) bool { return failed(pod) || succeeded(pod) }

// count is how many pods the condition holds for.
func count(pods map[string]*corev1.Pod, holds func(*corev1.Pod) bool) (n int) {
	for _, pod := range pods {
		if holds(pod) {
			n++
		}
	}
	return n
}

// values are the pods in no order.
func values(pods map[string]*corev1.Pod) []*corev1.Pod { return slices.Collect(maps.Values(pods)) }
