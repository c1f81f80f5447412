package ess

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/ledger"
)

func TestARemovalThatWasNotCarriedOutIsAskedForAgainWhileNobodyUsesTheNode(t *testing.T) {
	toBeDeleted := func(node *apiv1.Node) { node.Spec.Taints = []apiv1.Taint{{Key: taints.ToBeDeletedTaint}} }
	for name, test := range map[string]struct {
		node     func(*apiv1.Node)
		occupied bool
		freed    bool // after the first loop
		closed   bool // after the first loop
		asked    int
	}{
		"core has closed the Node":           {node: toBeDeleted, asked: 1 + ledger.MaxRetries},
		"somebody else has":                  {node: func(node *apiv1.Node) { node.Spec.Unschedulable = true }, asked: 1 + ledger.MaxRetries},
		"a pod has come that tolerates that": {node: toBeDeleted, occupied: true, asked: 1},
		"that pod has gone":                  {node: toBeDeleted, occupied: true, freed: true, asked: 1 + ledger.MaxRetries},
		"it is closed again later":           {node: func(*apiv1.Node) {}, closed: true, asked: 1},
		"it is open":                         {node: func(*apiv1.Node) {}, asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, newFakeCloud(spotGroup("asg-1")), func(c *Config) {
					c.Occupied = func(*apiv1.Node) bool { return test.occupied }
				})
				f.cloud.removing = true
				ids := f.cloud.launch(1, "asg-1", "", a10, "zone-a")
				node := nodeOf(ids[0])
				test.node(node)
				f.loop(node)
				require.Empty(t, f.giveBack(ids...))
				for i := range 2 * ledger.MaxRetries {
					if i > 0 && test.freed {
						test.occupied = false
					}
					if i > 0 && test.closed {
						node.Spec.Unschedulable = true
					}
					f.cloud.setState(alicloud.LifecycleInService, ids[0])
					f.cloud.endAs(fmt.Sprintf("asa-remove-%d", len(f.cloud.removeCalls)), alicloud.ActivityFailed)
					f.loop(node)
					f.loop(node)
					time.Sleep(time.Second)
				}
				assert.Len(t, f.cloud.removeCalls, test.asked)
				assert.Len(t, f.events.With("SpotRemovalFailed"), test.asked, "each is told")
				assert.Equal(t, 1, f.target(a10InA))

				f.cloud.release(ids[0])
				f.loop()
				assert.Empty(t, f.provider.manager.ledger.Removals.Due())
			})
		})
	}
}
