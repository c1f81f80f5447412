package jobs

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type mpiJob struct{ *system }

func newMPIJob(c *cluster) Adapter {
	return &mpiJob{&system{
		cluster: c, name: "mpijob", kind: "MPIJob",
		resource: schema.GroupVersionResource{Group: "kubeflow.org", Version: "v2beta1", Resource: "mpijobs"},
	}}
}

func newMPIJobV1(c *cluster) Adapter {
	return &mpiJob{&system{
		cluster: c, name: "mpijob-v1", kind: "MPIJob",
		resource: schema.GroupVersionResource{Group: "kubeflow.org", Version: "v1", Resource: "mpijobs"},
	}}
}

func (*mpiJob) Member(*corev1.Pod) (Membership, bool)        { return Membership{}, false }
func (*mpiJob) Read(*unstructured.Unstructured) (Job, error) { return Job{}, ErrUnsupported }
func (*mpiJob) Gang(Job, int) ([]*corev1.Pod, error)         { return nil, ErrUnsupported }
