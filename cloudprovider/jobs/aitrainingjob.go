package jobs

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type aiTrainingJob struct{ *system }

func newAITrainingJob(c *cluster) Adapter {
	return &aiTrainingJob{&system{
		cluster: c, name: "aitrainingjob", kind: "AITrainingJob",
		resource: schema.GroupVersionResource{Group: "kongming.cce.baiudbce.com", Version: "v1", Resource: "aitrainingjobs"},
	}}
}

func (*aiTrainingJob) Member(*corev1.Pod) (Membership, bool)        { return Membership{}, false }
func (*aiTrainingJob) Read(*unstructured.Unstructured) (Job, error) { return Job{}, ErrUnsupported }
func (*aiTrainingJob) Gang(Job, int) ([]*corev1.Pod, error)         { return nil, ErrUnsupported }
