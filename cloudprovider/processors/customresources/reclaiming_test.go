package customresources

import (
	"testing"

	"github.com/stretchr/testify/assert"
	apiv1 "k8s.io/api/core/v1"
	testprovider "k8s.io/autoscaler/cluster-autoscaler/cloudprovider/test"
	"k8s.io/autoscaler/cluster-autoscaler/processors/customresources"

	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

type provider struct {
	reclaiming, outOfService map[string]bool
	begun                    []string
}

func (p *provider) BeginLoop(nodes []*apiv1.Node)      { p.begun = testutil.NodeNames(nodes) }
func (p *provider) IsReclaiming(node *apiv1.Node) bool { return p.reclaiming[node.Name] }

func (p *provider) OutOfService(node *apiv1.Node) bool { return p.outOfService[node.Name] }

func TestReclaimingNodesAreNoCapacity(t *testing.T) {
	healthy, reclaiming, leaving := testutil.NewNode("healthy", "cpu", "8"), testutil.NewNode("reclaiming", "cpu", "8"), testutil.NewNode("leaving", "cpu", "8")
	ctx, _, _ := testutil.NewContext(nil, nil)
	ctx.CloudProvider = testprovider.NewTestCloudProviderBuilder().Build()
	known := &provider{reclaiming: map[string]bool{"reclaiming": true}, outOfService: map[string]bool{"leaving": true}}
	p := NewReclaimingNodes(known, customresources.NewDefaultCustomResourcesProcessor(false))
	everything := []*apiv1.Node{healthy, reclaiming, leaving}
	all, ready := p.FilterOutNodesWithUnreadyResources(ctx, everything, everything, nil)
	assert.Equal(t, []string{"healthy", "reclaiming", "leaving"}, known.begun, "the loop begins with all nodes")
	assert.Equal(t, []string{"healthy"}, testutil.NodeNames(all), "what is reclaiming or given back is no node")
	assert.Equal(t, []string{"healthy"}, testutil.NodeNames(ready))
}
