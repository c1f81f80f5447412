package scaleup

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaleup/orchestrator"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"

	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

// blockedGroup is a node group of which no more can be bought.
type blockedGroup struct {
	cloudprovider.NodeGroup
	id, obstacle string
}

func (g blockedGroup) Id() string       { return g.id }
func (g blockedGroup) Exist() bool      { return true }
func (g blockedGroup) Obstacle() string { return g.obstacle }

// messages keeps what the Events of pods would say.
type messages []string

func (m *messages) Process(_ *cacontext.AutoscalingContext, result *status.ScaleUpStatus) {
	groups := map[string]cloudprovider.NodeGroup{}
	for _, group := range result.ConsideredNodeGroups {
		groups[group.Id()] = group
	}
	for _, info := range result.PodsRemainUnschedulable {
		*m = append(*m, status.ReasonsMessage(result.Result, info, groups))
	}
}
func (*messages) CleanUp() {}

func TestEventsOfPendingPodsSayWhatStandsInTheWayOfAPurchase(t *testing.T) {
	for want, tc := range map[string]struct {
		obstacle string
		reason   status.Reasons
	}{
		"1 price above the cap of 0.01":      {"price above the cap of 0.01", orchestrator.MaxLimitReachedReason},
		"1 max node group size reached":      {"", orchestrator.MaxLimitReachedReason},
		"1 in backoff after failed scale-up": {"price above the cap of 0.01", orchestrator.BackoffReason},
	} {
		skipped := map[string]status.Reasons{"a": tc.reason} // core shares it among pods
		result := &status.ScaleUpStatus{Result: status.ScaleUpNoOptionsAvailable, ConsideredNodeGroups: []cloudprovider.NodeGroup{blockedGroup{id: "a", obstacle: tc.obstacle}}}
		for _, pod := range testutil.NewPods(2, "p") {
			result.PodsRemainUnschedulable = append(result.PodsRemainUnschedulable, status.NoScaleUpInfo{Pod: pod, SkippedNodeGroups: skipped})
		}
		said := &messages{}
		NewObstacles(said).Process(nil, result)
		assert.Equal(t, messages{want, want}, *said)
	}
}
