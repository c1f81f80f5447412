package trim

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// worker is a pod of a controller, unlike others in its name and, where given, in its index.
func worker(controller types.UID, name, index string) *apiv1.Pod {
	pod := &apiv1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"job": string(controller)}, Annotations: map[string]string{"a": "b"},
			OwnerReferences: []metav1.OwnerReference{{UID: controller, Controller: ptr.To(true)}},
		},
		Spec: apiv1.PodSpec{
			NodeSelector: map[string]string{"gpu": "a10"}, Tolerations: []apiv1.Toleration{{Key: "t"}},
			Containers: []apiv1.Container{{Name: "c", Resources: gpus("1")}},
		},
	}
	if index != "" {
		pod.Labels["index"] = index
	}
	return pod
}

func TestPodsOfAControllerShareWhatIsEqual(t *testing.T) {
	shared := func(a, b any) bool { return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() }
	parts := newSharedParts()
	first, second := worker("job", "first", ""), worker("job", "second", "")
	indexed, other := worker("job", "third", "3"), worker("other", "fourth", "")
	for _, pod := range []*apiv1.Pod{first, second, indexed, other} {
		before := pod.DeepCopy()
		parts.share(pod)
		assert.Equal(t, before, pod, "nothing that can be seen changes")
	}
	assert.True(t, shared(first.Labels, second.Labels))
	assert.True(t, shared(first.Annotations, second.Annotations))
	assert.True(t, shared(first.Spec.NodeSelector, second.Spec.NodeSelector))
	assert.True(t, shared(first.Spec.Tolerations, second.Spec.Tolerations))
	assert.True(t, shared(first.Spec.Containers[0].Resources.Requests, second.Spec.Containers[0].Resources.Requests))
	assert.False(t, shared(first.Labels, indexed.Labels))
	assert.True(t, shared(first.Annotations, indexed.Annotations))
	assert.False(t, shared(first.Spec.NodeSelector, other.Spec.NodeSelector))
}

func TestPodsWithoutControllerAreLeftAlone(t *testing.T) {
	pod := &apiv1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	parts := newSharedParts()
	parts.share(pod)
	assert.Equal(t, &apiv1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, pod)
	assert.Zero(t, parts.byController.Len())
}
