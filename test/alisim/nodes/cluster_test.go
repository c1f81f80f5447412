package nodes_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/test/alisim/nodes"
	"gpu-spot-autoscaler/test/cluster"
)

// TestAMachineLivesAndDiesInARealCluster proves what the fakes cannot: kwok leaves the node's resources alone and the
// scheduler waits for the GPU driver. What ran on the node is cleared away by the pod garbage collector about a minute
// later, which this does not wait for.
func TestAMachineLivesAndDiesInARealCluster(t *testing.T) {
	const soon, tick = 30 * time.Second, 100 * time.Millisecond
	config := cluster.StartForTest(t).AdminConfig()
	client, err := kubernetes.NewForConfig(nodes.Tune(config))
	require.NoError(t, err)
	registrar := nodes.NewRegistrar(client, clock.RealClock{})
	registrar.DeleteDelay = time.Second
	t.Cleanup(registrar.Wait)

	pods := client.CoreV1().Pods(metav1.NamespaceDefault)
	_, err = pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "trainer"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "trainer", Image: "trainer",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{gpu: resource.MustParse("1")}},
		}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	m := a10("i-1")
	m.DriverDelay = 2 * time.Second
	up := time.Now()
	require.NoError(t, registrar.Up(t.Context(), m))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		pod, err := pods.Get(t.Context(), "trainer", metav1.GetOptions{})
		assert.NoError(c, err)
		assert.Equal(c, corev1.PodRunning, pod.Status.Phase)
	}, soon, tick, "the pod runs once the GPU is there")
	assert.GreaterOrEqual(t, time.Since(up), m.DriverDelay)

	list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: nodes.LabelInstanceID + "=i-1"})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	node := list.Items[0]
	assert.Equal(t, "7910m", node.Status.Allocatable.Cpu().String(), "kwok does not touch it")
	assert.Equal(t, "cn-hangzhou.i-1", node.Spec.ProviderID)

	require.NoError(t, registrar.Down(t.Context(), "i-1"))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := client.CoreV1().Nodes().Get(t.Context(), node.Name, metav1.GetOptions{})
		assert.True(c, apierrors.IsNotFound(err))
	}, soon, tick, "the node goes")
}
