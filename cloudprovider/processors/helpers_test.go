package processors

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

	"gpu-spot-autoscaler/cloudprovider/api"
)

var epoch = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)

type podOption func(*apiv1.Pod)

// newPod is a pending pod of one GPU.
func newPod(name string, options ...podOption) *apiv1.Pod {
	pod := &apiv1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "ml", UID: types.UID(name), CreationTimestamp: metav1.NewTime(epoch),
			Labels: map[string]string{}, Annotations: map[string]string{},
		},
		Spec:   apiv1.PodSpec{Containers: []apiv1.Container{{Resources: apiv1.ResourceRequirements{Requests: apiv1.ResourceList{}}}}},
		Status: apiv1.PodStatus{Phase: apiv1.PodPending},
	}
	requesting(api.ResourceGPU, "1")(pod)
	for _, option := range options {
		option(pod)
	}
	return pod
}

func newPods(count int, prefix string, options ...podOption) []*apiv1.Pod {
	var pods []*apiv1.Pod
	for i := range count {
		pods = append(pods, newPod(fmt.Sprintf("%s-%d", prefix, i), options...))
	}
	return pods
}

func requesting(name, quantity string) podOption {
	return func(pod *apiv1.Pod) {
		pod.Spec.Containers[0].Resources.Requests[apiv1.ResourceName(name)] = resource.MustParse(quantity)
	}
}

func initRequesting(name, quantity string) podOption {
	return func(pod *apiv1.Pod) {
		requests := apiv1.ResourceList{apiv1.ResourceName(name): resource.MustParse(quantity)}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, apiv1.Container{Resources: apiv1.ResourceRequirements{Requests: requests}})
	}
}

func withoutGPU(pod *apiv1.Pod) {
	delete(pod.Spec.Containers[0].Resources.Requests, api.ResourceGPU)
}

func selecting(key, value string) podOption {
	return func(pod *apiv1.Pod) { pod.Spec.NodeSelector = map[string]string{key: value} }
}

func labelled(key, value string) podOption {
	return func(pod *apiv1.Pod) { pod.Labels[key] = value }
}

func annotated(key, value string) podOption {
	return func(pod *apiv1.Pod) { pod.Annotations[key] = value }
}

func inGang(name string, size int) podOption {
	return func(pod *apiv1.Pod) {
		pod.Labels["pod-group.scheduling.sigs.k8s.io/name"] = name
		pod.Labels["pod-group.scheduling.sigs.k8s.io/min-available"] = fmt.Sprint(size)
	}
}

func onNode(name string) podOption {
	return func(pod *apiv1.Pod) { pod.Spec.NodeName = name }
}

func unschedulable(pod *apiv1.Pod) {
	pod.Status.Conditions = []apiv1.PodCondition{{
		Type: apiv1.PodScheduled, Status: apiv1.ConditionFalse, Reason: apiv1.PodReasonUnschedulable,
	}}
}

func names(pods []*apiv1.Pod) []string {
	list := []string{}
	for _, pod := range pods {
		list = append(list, pod.Name)
	}
	return list
}

func nodeNames(nodes []*apiv1.Node) []string {
	list := []string{}
	for _, node := range nodes {
		list = append(list, node.Name)
	}
	return list
}

// newNode is a ready node; resources come in pairs of name and quantity.
func newNode(name string, resources ...string) *apiv1.Node {
	node := &apiv1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, CreationTimestamp: metav1.NewTime(epoch)},
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

type podList []*apiv1.Pod

func (l podList) List() ([]*apiv1.Pod, error) { return l, nil }

type nodeList []*apiv1.Node

func (l nodeList) List() ([]*apiv1.Node, error) { return l, nil }

func (l nodeList) Get(name string) (*apiv1.Node, error) {
	for _, node := range l {
		if node.Name == name {
			return node, nil
		}
	}
	return nil, fmt.Errorf("no node %s", name)
}

// newContext is what core hands to processors, of a cluster with these pods and nodes.
func newContext(pods []*apiv1.Pod, nodes []*apiv1.Node) (*cacontext.AutoscalingContext, *callbacks.TestProcessorCallbacks, *record.FakeRecorder) {
	called, recorder := callbacks.NewTestProcessorCallbacks(), record.NewFakeRecorder(100)
	snapshot, _, err := testsnapshot.NewTestSnapshotAndHandle()
	if err != nil {
		panic(err)
	}
	return &cacontext.AutoscalingContext{
		ClusterSnapshot: snapshot,
		AutoscalingKubeClients: cacontext.AutoscalingKubeClients{
			ListerRegistry: kubeutil.NewListerRegistry(nodeList(nodes), nodeList(nodes), podList(pods), nil, nil, nil, nil, nil, nil),
			Recorder:       recorder,
		},
		ProcessorCallbacks: called,
	}, called, recorder
}

type recordedEvents []string

func (e *recordedEvents) Eventf(eventType, reason, format string, args ...any) {
	*e = append(*e, fmt.Sprintf("%s %s %s", eventType, reason, fmt.Sprintf(format, args...)))
}
