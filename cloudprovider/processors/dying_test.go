package processors

import (
	"testing"

	"github.com/stretchr/testify/assert"
	apiv1 "k8s.io/api/core/v1"
	testprovider "k8s.io/autoscaler/cluster-autoscaler/cloudprovider/test"
	"k8s.io/autoscaler/cluster-autoscaler/processors/customresources"
)

type doom struct {
	doomed, outOfService map[string]bool
	begun                []string
}

func (d *doom) BeginLoop(nodes []*apiv1.Node)  { d.begun = nodeNames(nodes) }
func (d *doom) IsDoomed(node *apiv1.Node) bool { return d.doomed[node.Name] }

func (d *doom) OutOfService(node *apiv1.Node) bool { return d.outOfService[node.Name] }

func TestDyingNodes(t *testing.T) {
	sound, dying, leaving := newNode("sound", "cpu", "8"), newNode("dying", "cpu", "8"), newNode("leaving", "cpu", "8")
	ctx, _, _ := newContext(nil, nil)
	ctx.CloudProvider = testprovider.NewTestCloudProviderBuilder().Build()
	d := &doom{doomed: map[string]bool{"dying": true}, outOfService: map[string]bool{"leaving": true}}
	p := NewDyingNodes(d, customresources.NewDefaultCustomResourcesProcessor(false))
	everything := []*apiv1.Node{sound, dying, leaving}
	all, ready := p.FilterOutNodesWithUnreadyResources(ctx, everything, everything, nil)
	assert.Equal(t, []string{"sound", "dying", "leaving"}, d.begun, "the loop begins with all nodes")
	assert.Equal(t, []string{"sound"}, nodeNames(all), "what is doomed or given back is no node")
	assert.Equal(t, []string{"sound"}, nodeNames(ready))
}
