package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	clocktesting "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/snapshot"
)

func TestFailedRemovalIsForgottenWhenTheInstanceIsGone(t *testing.T) {
	now := time.Now()
	l := New(Config{Clock: clocktesting.NewFakePassiveClock(now), Store: &snapshot.Store{}})
	l.state.facts.Instances = map[string]alicloud.ScalingInstance{"i-stays": {ID: "i-stays"}}
	l.state.failedRemovals["i-stays"], l.state.failedRemovals["i-gone"] = failedRemoval{due: true}, failedRemoval{due: true}
	l.state.reconcileRemovals(nil, now)
	assert.Contains(t, l.state.failedRemovals, "i-stays")
	assert.NotContains(t, l.state.failedRemovals, "i-gone")
}
