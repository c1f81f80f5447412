// Package testutil builds the pods, nodes and contexts that the tests of the processors need.
package testutil

import (
	"fmt"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/processors/callbacks"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot/testsnapshot"
	kubeutil "k8s.io/autoscaler/cluster-autoscaler/utils/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// Epoch is when pods and nodes were created.
var Epoch = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)

// PodOption changes a pod that is built.
type PodOption func(*apiv1.Pod)

// NewPod returns a pending pod of one GPU.
func NewPod(name string, options ...PodOption) *apiv1.Pod {
	pod := &apiv1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "ml", UID: types.UID(name), CreationTimestamp: metav1.NewTime(Epoch),
			Labels: map[string]string{}, Annotations: map[string]string{},
		},
		Spec:   apiv1.PodSpec{Containers: []apiv1.Container{{Resources: apiv1.ResourceRequirements{Requests: apiv1.ResourceList{}}}}},
		Status: apiv1.PodStatus{Phase: apiv1.PodPending},
	}
	Requesting(api.ResourceGPU, "1")(pod)
	for _, option := range options {
		option(pod)
	}
	return pod
}

// NewPods returns so many pods, named by the prefix and an index.
func NewPods(count int, prefix string, options ...PodOption) []*apiv1.Pod {
	var pods []*apiv1.Pod
	for i := range count {
		pods = append(pods, NewPod(fmt.Sprintf("%s-%d", prefix, i), options...))
	}
	return pods
}

// Requesting adds a resource request.
func Requesting(name, quantity string) PodOption {
	return func(pod *apiv1.Pod) {
		pod.Spec.Containers[0].Resources.Requests[apiv1.ResourceName(name)] = resource.MustParse(quantity)
	}
}

// InitRequesting adds an init container with a resource request.
func InitRequesting(name, quantity string) PodOption {
	return func(pod *apiv1.Pod) {
		requests := apiv1.ResourceList{apiv1.ResourceName(name): resource.MustParse(quantity)}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, apiv1.Container{Resources: apiv1.ResourceRequirements{Requests: requests}})
	}
}

// WithoutGPU removes the request for a GPU.
func WithoutGPU(pod *apiv1.Pod) {
	delete(pod.Spec.Containers[0].Resources.Requests, api.ResourceGPU)
}

// Selecting sets the node selector.
func Selecting(key, value string) PodOption {
	return func(pod *apiv1.Pod) { pod.Spec.NodeSelector = map[string]string{key: value} }
}

// Labelled adds a label.
func Labelled(key, value string) PodOption {
	return func(pod *apiv1.Pod) { pod.Labels[key] = value }
}

// Annotated adds an annotation.
func Annotated(key, value string) PodOption {
	return func(pod *apiv1.Pod) { pod.Annotations[key] = value }
}

// InGang adds the labels of a gang in ACK's form.
func InGang(name string, size int) PodOption {
	return func(pod *apiv1.Pod) {
		pod.Labels["pod-group.scheduling.sigs.k8s.io/name"] = name
		pod.Labels["pod-group.scheduling.sigs.k8s.io/min-available"] = fmt.Sprint(size)
	}
}

// OnNode sets the node of the pod.
func OnNode(name string) PodOption {
	return func(pod *apiv1.Pod) { pod.Spec.NodeName = name }
}

// Unschedulable adds the condition of a pod that the scheduler could not place.
func Unschedulable(pod *apiv1.Pod) {
	pod.Status.Conditions = []apiv1.PodCondition{{
		Type: apiv1.PodScheduled, Status: apiv1.ConditionFalse, Reason: apiv1.PodReasonUnschedulable,
	}}
}

// Names returns the names of the pods.
func Names(pods []*apiv1.Pod) []string {
	list := []string{}
	for _, pod := range pods {
		list = append(list, pod.Name)
	}
	return list
}

// NodeNames returns the names of the nodes.
func NodeNames(nodes []*apiv1.Node) []string {
	list := []string{}
	for _, node := range nodes {
		list = append(list, node.Name)
	}
	return list
}

// NewNode returns a ready node. Resources come in pairs of name and quantity.
func NewNode(name string, resources ...string) *apiv1.Node {
	node := &apiv1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, CreationTimestamp: metav1.NewTime(Epoch)},
		Status: apiv1.NodeStatus{
			Allocatable: apiv1.ResourceList{},
			Conditions:  []apiv1.NodeCondition{{Type: apiv1.NodeReady, Status: apiv1.ConditionTrue}},
		},
	}
	for i := 0; i < len(resources); i += 2 {
		node.Status.Allocatable[apiv1.ResourceName(resources[i])] = resource.MustParse(resources[i+1])
	}
	node.Status.Capacity = node.Status.Allocatable.DeepCopy()
	return node
}

// PodList is a lister of pods.
type PodList []*apiv1.Pod

// List returns all pods.
func (l PodList) List() ([]*apiv1.Pod, error) { return l, nil }

// NodeList is a lister of nodes.
type NodeList []*apiv1.Node

// List returns all nodes.
func (l NodeList) List() ([]*apiv1.Node, error) { return l, nil }

// Get returns the node of the name.
func (l NodeList) Get(name string) (*apiv1.Node, error) {
	for _, node := range l {
		if node.Name == name {
			return node, nil
		}
	}
	return nil, fmt.Errorf("no node %s", name)
}

// NewContext returns what core hands to processors, of a cluster with these pods and nodes.
func NewContext(pods []*apiv1.Pod, nodes []*apiv1.Node) (*cacontext.AutoscalingContext, *callbacks.TestProcessorCallbacks, *record.FakeRecorder) {
	called, recorder := callbacks.NewTestProcessorCallbacks(), record.NewFakeRecorder(100)
	snapshot, _, err := testsnapshot.NewTestSnapshotAndHandle()
	if err != nil {
		panic(err)
	}
	return &cacontext.AutoscalingContext{
		ClusterSnapshot: snapshot,
		AutoscalingKubeClients: cacontext.AutoscalingKubeClients{
			ListerRegistry: kubeutil.NewListerRegistry(NodeList(nodes), NodeList(nodes), PodList(pods), nil, nil, nil, nil, nil, nil),
			Recorder:       recorder,
		},
		ProcessorCallbacks: called,
	}, called, recorder
}

// RecordedEvents are the Events that were recorded.
type RecordedEvents []string

// Eventf records an Event.
func (e *RecordedEvents) Eventf(eventType, reason, format string, args ...any) {
	*e = append(*e, fmt.Sprintf("%s %s %s", eventType, reason, fmt.Sprintf(format, args...)))
}

// ReplicatedBy makes the pod one of the batch Job.
func ReplicatedBy(job string) PodOption {
	return func(pod *apiv1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job, UID: types.UID(job), Controller: ptr.To(true)}}
	}
}

// Replicated makes the pod one of a batch Job.
func Replicated(pod *apiv1.Pod) { ReplicatedBy("job")(pod) }

// OwnedBy makes the pod one of an object of the kind, named "owner".
func OwnedBy(kind string) PodOption {
	return func(pod *apiv1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "owner", Controller: ptr.To(true)}}
	}
}

// InPhase sets the phase of the pod.
func InPhase(phase apiv1.PodPhase) PodOption {
	return func(pod *apiv1.Pod) { pod.Status.Phase = phase }
}

// OfPriority sets the priority of the pod.
func OfPriority(priority int32) PodOption {
	return func(pod *apiv1.Pod) { pod.Spec.Priority = &priority }
}

// Deletions are the nodes that core is deleting.
type Deletions struct{ Empty, Drained []string }

// DeletionsInProgress returns both lists.
func (d Deletions) DeletionsInProgress() (empty, drained []string) { return d.Empty, d.Drained }

// DeletionsCount returns 0.
func (d Deletions) DeletionsCount(string) int { return 0 }

// RecentEvictions returns none.
func (d Deletions) RecentEvictions() []*apiv1.Pod { return nil }
