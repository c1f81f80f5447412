package rig

import (
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/test/alisim"
)

// GPUPod asks for GPUs, in the namespace default.
func GPUPod(name string, gpus int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{
				Name: "train", Image: "train",
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
					"nvidia.com/gpu": *resource.NewQuantity(int64(gpus), resource.DecimalSI),
				}},
			}},
		},
	}
}

// Gang makes n pods of one GPU each that are worth nothing apart, as ACK's gang scheduling declares it.
func Gang(name string, n int) (pods []*corev1.Pod) {
	for i := range n {
		pod := GPUPod(fmt.Sprintf("%s-%d", name, i), 1)
		pod.Labels["pod-group.scheduling.sigs.k8s.io/name"] = name
		pod.Labels["pod-group.scheduling.sigs.k8s.io/min-available"] = strconv.Itoa(n)
		pods = append(pods, pod)
	}
	return pods
}

// Submit creates the pods.
func (r *Rig) Submit(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		if _, err := r.Client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// SpotPool is a pool of spot instances that is tagged for the rig's autoscaler and free of what buys behind its back.
func SpotPool(id string, maxSize int, types, vswitches []string) alisim.Pool {
	compensate := false
	return alisim.Pool{
		ID: id, MaxSize: maxSize, InstanceTypes: types, VSwitches: vswitches, SpotStrategy: alisim.SpotAsPriceGo,
		CompensateWithOnDemand: &compensate,
		Tags: map[string]string{
			"k8s.io/cluster-autoscaler/enabled":        "true",
			"k8s.io/cluster-autoscaler/" + ClusterName: "owned",
		},
	}
}
