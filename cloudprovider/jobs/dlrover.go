package jobs

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type dlrover struct{ *system }

func newDLRover(c *cluster) Adapter {
	return &dlrover{&system{
		cluster: c, name: "dlrover", kind: "ElasticJob",
		resource: schema.GroupVersionResource{Group: "elastic.iml.github.io", Version: "v1alpha1", Resource: "elasticjobs"},
	}}
}

func (*dlrover) Member(*corev1.Pod) (Membership, bool)        { return Membership{}, false }
func (*dlrover) Read(*unstructured.Unstructured) (Job, error) { return Job{}, ErrUnsupported }
func (*dlrover) Gang(Job, int) ([]*corev1.Pod, error)         { return nil, ErrUnsupported }
