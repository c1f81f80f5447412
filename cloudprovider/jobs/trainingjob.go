package jobs

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type trainingJob struct{ *system }

func newTrainingJob(c *cluster) Adapter {
	return &trainingJob{&system{
		cluster: c, name: "trainingjob", kind: "TrainingJob",
		resource: schema.GroupVersionResource{Group: "kai.alibabacloud.com", Version: "v1alpha1", Resource: "trainingjobs"},
	}}
}

func (*trainingJob) Member(*corev1.Pod) (Membership, bool)        { return Membership{}, false }
func (*trainingJob) Read(*unstructured.Unstructured) (Job, error) { return Job{}, ErrUnsupported }
func (*trainingJob) Gang(Job, int) ([]*corev1.Pod, error)         { return nil, ErrUnsupported }
