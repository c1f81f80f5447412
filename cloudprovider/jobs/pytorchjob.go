package jobs

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type pyTorchJob struct{ *system }

func newPyTorchJob(c *cluster) Adapter {
	return &pyTorchJob{&system{
		cluster: c, name: "pytorchjob", kind: "PyTorchJob",
		resource: schema.GroupVersionResource{Group: "kubeflow.org", Version: "v1", Resource: "pytorchjobs"},
	}}
}

func (*pyTorchJob) Member(*corev1.Pod) (Membership, bool)        { return Membership{}, false }
func (*pyTorchJob) Read(*unstructured.Unstructured) (Job, error) { return Job{}, ErrUnsupported }
func (*pyTorchJob) Gang(Job, int) ([]*corev1.Pod, error)         { return nil, ErrUnsupported }
