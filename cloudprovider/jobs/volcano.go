package jobs

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type volcano struct{ *system }

func newVolcano(c *cluster) Adapter {
	return &volcano{&system{
		cluster: c, name: "vcjob", kind: "Job",
		resource: schema.GroupVersionResource{Group: "batch.volcano.sh", Version: "v1alpha1", Resource: "jobs"},
	}}
}

func (*volcano) Member(*corev1.Pod) (Membership, bool)        { return Membership{}, false }
func (*volcano) Read(*unstructured.Unstructured) (Job, error) { return Job{}, ErrUnsupported }
func (*volcano) Gang(Job, int) ([]*corev1.Pod, error)         { return nil, ErrUnsupported }
