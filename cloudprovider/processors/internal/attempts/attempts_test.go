package attempts

import (
	"testing"

	"github.com/stretchr/testify/assert"
	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	testprovider "k8s.io/autoscaler/cluster-autoscaler/cloudprovider/test"
	"k8s.io/autoscaler/cluster-autoscaler/processors/nodegroupset"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
)

func TestTheResultIsThatOfTheAttemptThatDidMost(t *testing.T) {
	for _, c := range []struct{ first, second, joined status.ScaleUpResult }{
		{status.ScaleUpNotTried, status.ScaleUpNoOptionsAvailable, status.ScaleUpNoOptionsAvailable},
		{status.ScaleUpNoOptionsAvailable, status.ScaleUpNotTried, status.ScaleUpNoOptionsAvailable},
		{status.ScaleUpNoOptionsAvailable, status.ScaleUpSuccessful, status.ScaleUpSuccessful},
		{status.ScaleUpSuccessful, status.ScaleUpNoOptionsAvailable, status.ScaleUpSuccessful},
		{status.ScaleUpNotTried, status.ScaleUpLimitedByMaxNodesTotal, status.ScaleUpLimitedByMaxNodesTotal},
		{status.ScaleUpNotTried, status.ScaleUpInCooldown, status.ScaleUpInCooldown},
		{status.ScaleUpNoOptionsAvailable, status.ScaleUpError, status.ScaleUpError},
	} {
		assert.Equal(t, c.joined, Join(&status.ScaleUpStatus{Result: c.first}, &status.ScaleUpStatus{Result: c.second}).Result, "%v and %v", c.first, c.second)
	}
}

func TestNothingThatAnAttemptSaysIsLost(t *testing.T) {
	a, b := pod("a"), pod("b")
	groups := groups("one", "two")
	joined := Join(
		&status.ScaleUpStatus{
			ScaleUpInfos:            []nodegroupset.ScaleUpInfo{{Group: groups[0], NewSize: 1}},
			PodsTriggeredScaleUp:    []*apiv1.Pod{a},
			PodsRemainUnschedulable: []status.NoScaleUpInfo{{Pod: a}},
			PodsAwaitEvaluation:     []*apiv1.Pod{a},
			ConsideredNodeGroups:    groups[:1],
		},
		&status.ScaleUpStatus{
			ScaleUpInfos:            []nodegroupset.ScaleUpInfo{{Group: groups[1], NewSize: 2}},
			PodsTriggeredScaleUp:    []*apiv1.Pod{b},
			PodsRemainUnschedulable: []status.NoScaleUpInfo{{Pod: b}},
			PodsAwaitEvaluation:     []*apiv1.Pod{b},
			ConsideredNodeGroups:    groups,
		})
	assert.Len(t, joined.ScaleUpInfos, 2)
	assert.Equal(t, []*apiv1.Pod{a, b}, joined.PodsTriggeredScaleUp)
	assert.Equal(t, []status.NoScaleUpInfo{{Pod: a}, {Pod: b}}, joined.PodsRemainUnschedulable)
	assert.Equal(t, []*apiv1.Pod{a, b}, joined.PodsAwaitEvaluation)
	assert.Equal(t, groups, joined.ConsideredNodeGroups, "each once")
}

func TestOneAttemptIsTheStatus(t *testing.T) {
	only := &status.ScaleUpStatus{Result: status.ScaleUpNoOptionsAvailable}
	assert.Same(t, only, Join(nil, only))
	assert.Same(t, only, Join(only, nil))
}

func pod(name string) *apiv1.Pod { return &apiv1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}} }

func groups(ids ...string) (groups []cloudprovider.NodeGroup) {
	provider := testprovider.NewTestCloudProviderBuilder().Build()
	for _, id := range ids {
		provider.AddNodeGroup(id, 0, 10, 0)
		groups = append(groups, provider.GetNodeGroup(id))
	}
	return groups
}
