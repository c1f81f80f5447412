package overrides

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"gpu-spot-autoscaler/cloudprovider/api"
)

func TestConfigMapsOverrideTagsOfTheirPool(t *testing.T) {
	settings := func(namespace, name, pool, value string) *apiv1.ConfigMap {
		return &apiv1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{api.LabelPool: pool},
			Annotations: map[string]string{"gpu-spot.autoscaling/max-size": value},
		}}
	}
	client := fake.NewClientset(
		settings("kube-system", "b", "asg-1", "2"), settings("kube-system", "a", "asg-1", "1"),
		settings("kube-system", "c", "asg-2", "3"), settings("default", "a", "asg-3", "4"))
	overrides, err := New(client, "kube-system")
	require.NoError(t, err)
	overrides.Informers.Start(t.Context().Done())
	overrides.Informers.WaitForCacheSync(t.Context().Done())
	for pool, want := range map[string]string{"asg-1": "1", "asg-2": "3", "asg-3": "", "asg-4": ""} {
		assert.Equal(t, want, overrides.Of(pool)["gpu-spot.autoscaling/max-size"], pool)
	}
}
