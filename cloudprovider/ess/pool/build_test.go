package pool

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/problem"
	"gpu-spot-autoscaler/pricing"
)

const (
	a10  = "ecs.gn7i-c8g1.2xlarge"
	v100 = "ecs.gn6v-c8g1.2xlarge"
)

// catalog knows one scaling configuration of two instance types, and a vSwitch in each of two zones.
func catalog() *Catalog {
	c := NewCatalog()
	c.configurations["asc-1"] = alicloud.ScalingConfiguration{
		ID: "asc-1", InstanceTypes: []string{a10, v100}, SpotStrategy: alicloud.SpotAsPriceGo, Tags: map[string]string{},
	}
	c.types.known[a10] = alicloud.InstanceType{ID: a10, VCPU: 8, MemoryGiB: 30, GPUs: 1, GPUModel: "NVIDIA A10"}
	c.types.known[v100] = alicloud.InstanceType{ID: v100, VCPU: 8, MemoryGiB: 32, GPUs: 1, GPUModel: "NVIDIA V100"}
	c.vswitches.known["vsw-a"] = alicloud.VSwitch{ID: "vsw-a", ZoneID: "zone-a"}
	c.vswitches.known["vsw-b"] = alicloud.VSwitch{ID: "vsw-b", ZoneID: "zone-b"}
	return c
}

func source() Source {
	return Source{Region: "cn-test", Group: alicloud.ScalingGroup{
		ID: "asg-1", LifecycleState: "Active", MinSize: 1, MaxSize: 10, ActiveScalingConfigurationID: "asc-1",
		VSwitchIDs: []string{"vsw-a", "vsw-b"}, Tags: map[string]string{},
	}}
}

func (p *Pool) groupIDs() []string { return sets.List(sets.KeySet(p.NodeGroups)) }

func TestEveryTypeInEveryZoneIsAnOffering(t *testing.T) {
	built, leftOut, broken := Build(source(), catalog())
	require.Nil(t, broken)
	assert.Empty(t, leftOut)
	assert.Equal(t, TargetRequest, built.Targeting)
	assert.Equal(t, []string{
		"asg-1/" + v100 + "/zone-a/spot", "asg-1/" + v100 + "/zone-b/spot",
		"asg-1/" + a10 + "/zone-a/spot", "asg-1/" + a10 + "/zone-b/spot",
	}, built.groupIDs())
	versions := sets.New[string]()
	for _, offered := range built.Offerings {
		assert.Equal(t, offered.InstanceType, offered.Template.Labels["node.kubernetes.io/instance-type"])
		assert.Equal(t, offered.Zone, offered.Template.Labels["topology.kubernetes.io/zone"])
		versions.Insert(offered.TemplateVersion)
	}
	assert.Len(t, versions, 4)
}

func TestAPoolThatCannotBeBuiltSaysWhy(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Source, *Catalog)
		reason problem.Reason
		text   string
	}{
		"no configuration": {func(s *Source, _ *Catalog) { s.Group.ActiveScalingConfigurationID = "" }, problem.Configuration, "no active scaling configuration"},
		"a misspelt tag":   {func(s *Source, _ *Catalog) { s.Group.Tags[api.Prefix+"max-sice"] = "3" }, problem.Tags, "no such setting"},
		"a minimum above the maximum": {func(s *Source, _ *Catalog) {
			s.Group.MinSize = 5
			s.Overrides = map[string]string{api.TagMaxSize: "4"}
		}, problem.Tags, "above the pool's maximum of 4"},
		"no instance type": {func(_ *Source, c *Catalog) { clear(c.types.known) }, problem.InstanceType, a10},
		"no vSwitch":       {func(_ *Source, c *Catalog) { clear(c.vswitches.known) }, problem.VSwitch, "vsw-a"},
		"several GPUs that are shared": {func(s *Source, c *Catalog) {
			s.Group.Tags[api.TagSharedGPU] = "true"
			several := c.types.known[a10]
			several.GPUs, several.GPUMemoryGiB = 4, 24
			c.types.known[a10] = several
		}, problem.SharedGPU, "has 4 GPUs"},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := source(), catalog()
			test.change(&s, c)
			built, _, broken := Build(s, c)
			require.NotNil(t, broken)
			assert.Nil(t, built)
			assert.Equal(t, test.reason, broken.Reason)
			assert.ErrorContains(t, broken, test.text)
		})
	}
}

func TestWhatIsUnknownIsLeftOutOfThePool(t *testing.T) {
	s, c := source(), catalog()
	delete(c.types.known, v100)
	delete(c.vswitches.known, "vsw-b")
	built, leftOut, broken := Build(s, c)
	require.Nil(t, broken)
	assert.Len(t, leftOut, 2)
	assert.Equal(t, []string{"asg-1/" + a10 + "/zone-a/spot"}, built.groupIDs())
	assert.Equal(t, TargetSingle, built.Targeting)
}

func TestAPoolThatIgnoresTargetingIsOneNodeGroupUnlessItsTagsSayOtherwise(t *testing.T) {
	s := source()
	s.Whole = true
	built, _, broken := Build(s, catalog())
	require.Nil(t, broken)
	assert.Equal(t, []string{"asg-1/any/any/spot"}, built.groupIDs())
	whole := built.NodeGroups["asg-1/any/any/spot"].Template
	assert.NotContains(t, whole.Labels, "node.kubernetes.io/instance-type", "any of them may be delivered")
	assert.Equal(t, "asg-1", whole.Annotations[api.AnnotationWholePool])
	assert.Equal(t, "asg-1/any/any/spot", built.GroupID(built.Offerings[0].Offering))

	s.Group.Tags[api.TagTargeting] = "request"
	built, _, broken = Build(s, catalog())
	require.Nil(t, broken)
	assert.Len(t, built.NodeGroups, 4)
}

func TestAnOfferingStaysWhileInstancesOfItAreLeft(t *testing.T) {
	s := source()
	gone := pricing.Offering{InstanceType: "ecs.gone.large", Zone: "zone-a", Spot: true}
	s.InUse = []pricing.Offering{gone, {InstanceType: a10, Zone: "zone-a", Spot: true}}
	built, _, broken := Build(s, catalog())
	require.Nil(t, broken)
	retired := built.NodeGroups[OfferingID("asg-1", gone)]
	require.NotNil(t, retired)
	assert.True(t, retired.Retired)
	assert.Len(t, built.NodeGroups, 5)
	assert.False(t, slices.Contains(built.Offerings, retired), "it is not launched any more")
}

func TestBoundsOfAPool(t *testing.T) {
	for name, test := range map[string]struct {
		tags     map[string]string
		bounds   *Bounds
		min, max int
	}{
		"of the scaling group":           {nil, nil, 1, 10},
		"of --nodes":                     {nil, &Bounds{2, 6}, 2, 6},
		"of the tags":                    {map[string]string{api.TagMinSize: "3", api.TagMaxSize: "5"}, &Bounds{2, 6}, 3, 5},
		"never below that of the group":  {map[string]string{api.TagMinSize: "0"}, nil, 1, 10},
		"of which the tags set only one": {map[string]string{api.TagMaxSize: "5"}, &Bounds{2, 6}, 2, 5},
	} {
		t.Run(name, func(t *testing.T) {
			s := source()
			s.Overrides, s.Bounds = test.tags, test.bounds
			built, _, broken := Build(s, catalog())
			require.Nil(t, broken)
			assert.Equal(t, []int{test.min, test.max}, []int{built.MinSize, built.MaxSize})
		})
	}
}

func TestParseBounds(t *testing.T) {
	bounds, err := ParseBounds([]string{"1:5:asg-1", "0:0:asg-2"})
	require.NoError(t, err)
	assert.Equal(t, map[string]Bounds{"asg-1": {1, 5}, "asg-2": {0, 0}}, bounds)
	_, err = ParseBounds([]string{"asg-1"})
	require.Error(t, err)
	assert.True(t, strings.Contains(err.Error(), `"asg-1"`))
}

func TestAPoolThatLaunchesHasItsPriceCapAsTheLimitOfSpotInstances(t *testing.T) {
	for name, test := range map[string]struct {
		configured, cap, strategy string
		limit                     float64
	}{
		"a cap":                     {alicloud.SpotAsPriceGo, "0.7", alicloud.SpotWithPriceLimit, 2.1},
		"a cap that cannot be told": {alicloud.SpotAsPriceGo, "0.1112", alicloud.SpotWithPriceLimit, .333},
		"no cap":                    {alicloud.SpotAsPriceGo, "", alicloud.SpotAsPriceGo, 0},
		"on-demand":                 {alicloud.NoSpot, "0.7", alicloud.NoSpot, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c, s := catalog(), source()
			configuration, a10Type := c.configurations["asc-1"], c.types.known[a10]
			configuration.InstanceTypes, configuration.SpotStrategy = []string{a10}, test.configured
			a10Type.GPUs = 3
			c.configurations["asc-1"], c.types.known[a10] = configuration, a10Type
			s.Group.Tags[api.TagPurchase] = "run-instances"
			if test.cap != "" {
				s.Group.Tags[api.TagPriceCapPerGPU] = test.cap
			}
			built, leftOut, broken := Build(s, c)
			require.Nil(t, broken)
			require.Empty(t, leftOut)
			request := built.LaunchRequest(built.Offerings[0])
			assert.Equal(t, test.strategy, request.SpotStrategy)
			assert.Equal(t, test.limit, request.SpotPriceLimit)
			assert.Equal(t, a10, request.InstanceType)
		})
	}
}
