package nodes_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/test/alisim/nodes"
)

const (
	lookPeriod = 5 * time.Minute
	grace      = 50 * time.Second
)

// goesDown has a machine go down so long before the controller's next look.
func goesDown(t *testing.T, before time.Duration) *fixture {
	f := newFixture()
	f.registrar.Controller = &nodes.Controller{Period: lookPeriod, Grace: grace}
	m := a10("i-1")
	m.DriverDelay = 0
	require.NoError(t, f.registrar.Up(t.Context(), m))
	f.after(lookPeriod - before)
	require.NoError(t, f.registrar.Down(t.Context(), "i-1"))
	return f
}

func (f *fixture) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (f *fixture) ready(t *testing.T) corev1.ConditionStatus {
	t.Helper()
	for _, c := range f.onlyNode(t).Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

func TestTheControllerDeletesWhatIsSilentAndAbsentAtItsNextLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := goesDown(t, 2*time.Minute)
		assert.NotContains(t, f.onlyNode(t).Annotations, nodes.KwokAnnotation)
		f.after(grace - time.Millisecond)
		assert.Empty(t, f.ready(t), "nobody has noticed its silence")
		f.after(time.Millisecond)
		assert.Equal(t, corev1.ConditionUnknown, f.ready(t))
		f.after(2*time.Minute - grace - time.Millisecond)
		f.onlyNode(t)
		f.after(time.Millisecond)
		assert.Empty(t, f.nodes(t))
	})
}

func TestTheControllerLeavesANodeThatIsNotUnknownUntilALaterLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := goesDown(t, 10*time.Second)
		f.after(10 * time.Second)
		f.onlyNode(t)
		f.after(lookPeriod - time.Millisecond)
		assert.Equal(t, corev1.ConditionUnknown, f.ready(t))
		f.after(time.Millisecond)
		assert.Empty(t, f.nodes(t))
	})
}

func TestTheControllerIsContentWithANodeThatSomebodyDeletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := goesDown(t, time.Minute)
		require.NoError(t, f.client.CoreV1().Nodes().Delete(t.Context(), f.onlyNode(t).Name, metav1.DeleteOptions{}))
		f.after(time.Minute)
		f.registrar.Wait()
	})
}
