package jobs

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type ray struct{ *system }

func newRayCluster(c *cluster) Adapter {
	return &ray{&system{
		cluster: c, name: "raycluster", kind: "RayCluster",
		resource: schema.GroupVersionResource{Group: "ray.io", Version: "v1", Resource: "rayclusters"},
	}}
}

func newRayJob(c *cluster) Adapter {
	return &ray{&system{
		cluster: c, name: "rayjob", kind: "RayJob",
		resource: schema.GroupVersionResource{Group: "ray.io", Version: "v1", Resource: "rayjobs"},
	}}
}

func (*ray) Member(*corev1.Pod) (Membership, bool)        { return Membership{}, false }
func (*ray) Read(*unstructured.Unstructured) (Job, error) { return Job{}, ErrUnsupported }
func (*ray) Gang(Job, int) ([]*corev1.Pod, error)         { return nil, ErrUnsupported }
