package jobs

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type jobSet struct{ *system }

func newJobSet(c *cluster) Adapter {
	return &jobSet{&system{
		cluster: c, name: "jobset", kind: "JobSet",
		resource: schema.GroupVersionResource{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"},
	}}
}

func (*jobSet) Member(*corev1.Pod) (Membership, bool)        { return Membership{}, false }
func (*jobSet) Read(*unstructured.Unstructured) (Job, error) { return Job{}, ErrUnsupported }
func (*jobSet) Gang(Job, int) ([]*corev1.Pod, error)         { return nil, ErrUnsupported }
