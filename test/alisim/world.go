package alisim

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"gpu-spot-autoscaler/test/alisim/market"
	"gpu-spot-autoscaler/test/alisim/ram"
	"gpu-spot-autoscaler/test/alisim/temper"
)

// World describes a simulated cloud: one account in one region. It is what a world file holds, as YAML; an unknown
// field in a file is an error. A zero duration means the default; a negative one means none.
type World struct {
	// Region is the only region there is, such as "ap-southeast-1". Required.
	Region string `json:"region"`
	// AccountID is the account that owns everything; default "1234567890123456".
	AccountID string `json:"accountId,omitempty"`
	// Seed makes ids, secrets and choices repeatable: the same world asked the same questions in the same order answers
	// the same. Default 1.
	Seed uint64 `json:"seed,omitempty"`
	// Credentials are the access keys that may sign requests; default one key, see Server.AccessKey.
	Credentials []AccessKey `json:"credentials,omitempty"`
	// RAMPolicy is what whoever signs may do; default everything, as the account itself may.
	RAMPolicy *ram.Policy `json:"ramPolicy,omitempty"`
	// Administrators are further access keys, which may do everything whatever RAMPolicy says.
	Administrators []AccessKey `json:"administrators,omitempty"`
	// Roles are the ARNs of the RAM roles that AssumeRoleWithOIDC hands out; empty allows every well-formed one.
	Roles []string `json:"roles,omitempty"`

	// VPCID is the network of all vSwitches; default "vpc-sim".
	VPCID string `json:"vpcId,omitempty"`
	// VSwitches are the subnets; each fixes a zone.
	VSwitches []VSwitch `json:"vswitches,omitempty"`
	// Zones are further zones of the region, without vSwitch. Those of the vSwitches need no mention.
	Zones []string `json:"zones,omitempty"`
	// Types are added to the published GPU catalogue (market.Catalogue), or replace entries of it.
	Types []Type `json:"types,omitempty"`
	// Pools are the scaling groups, each with its scaling configuration.
	Pools []Pool `json:"pools,omitempty"`
	// Market tells prices and stock.
	Market Market `json:"market,omitempty"`
	// Quota bounds what the account may own.
	Quota Quota `json:"quota,omitempty"`

	// Temper is how hard the cloud is on its clients: "strict" or "lenient", or an object with one of them as its base and
	// rules that differ from it. Default temper.Default.
	Temper temper.Rules `json:"temper,omitzero"`

	// Speed is how many seconds of the market, of the protected first hour and of everything that the cloud takes its
	// time for pass in one second; default 1. The durations below, where given, are those of the clock.
	Speed float64 `json:"speed,omitempty"`
	// ActivityDelay is how long a scaling activity takes; default cloud.Durations.Activity of the world's temper, as are
	// the next: cloud.Real where it is strict, cloud.Quick, at every speed, where it is lenient.
	ActivityDelay metav1.Duration `json:"activityDelay,omitempty"`
	// RemovalDelay is how long a scale-in takes; default ActivityDelay, if given.
	RemovalDelay metav1.Duration `json:"removalDelay,omitempty"`
	// BootDelay is how long after its activity an instance registers its Node.
	BootDelay metav1.Duration `json:"bootDelay,omitempty"`
	// DriverDelay is how long after its Node appeared an instance's GPUs become allocatable.
	DriverDelay metav1.Duration `json:"driverDelay,omitempty"`
	// NoticePeriod is the time between a spot instance's notice and its release.
	NoticePeriod metav1.Duration `json:"noticePeriod,omitempty"`
	// HealthCheckDelay is how long ESS takes to notice that an instance is gone or unhealthy, or that a group is below
	// its minimum or desired capacity.
	HealthCheckDelay metav1.Duration `json:"healthCheckDelay,omitempty"`
	// ListLag, TokenLife, NodeGrace and NodeController are those of cloud.Durations.
	ListLag        metav1.Duration `json:"listLag,omitempty"`
	TokenLife      metav1.Duration `json:"tokenLife,omitempty"`
	NodeGrace      metav1.Duration `json:"nodeGrace,omitempty"`
	NodeController metav1.Duration `json:"nodeController,omitempty"`

	// RateLimits are requests per 60 seconds by action; the key "*" is for all actions not named; 0 means unlimited.
	// Defaults are the published limits (see limits.go), else 1000.
	RateLimits map[string]int `json:"rateLimits,omitempty"`
	// IgnoreTargeting makes ScaleWithAdjustment accept InstanceType.N, VSwitchId.N and SpotStrategy and act as if they
	// had not been given. The parameters are not in the public documentation, so a client must cope with this.
	IgnoreTargeting bool `json:"ignoreTargeting,omitempty"`
	// RequireIMDSv2 refuses metadata requests without a token, as instances with HttpTokens=required do.
	RequireIMDSv2 bool `json:"requireIMDSv2,omitempty"`
}

// AccessKey is a key pair that signs requests.
type AccessKey struct {
	ID     string `json:"id"`
	Secret string `json:"secret"`
	// RAMPolicy is what whoever signs with this key may do; default the policy of the world.
	RAMPolicy *ram.Policy `json:"ramPolicy,omitempty"`
}

// NewWorld returns a world of one region with a vSwitch in each of the zones, and nothing for sale but at the published
// prices. The vSwitch of zone "cn-beijing-f" in region "cn-beijing" is "vsw-f", as is that of "ap-southeast-1f" in
// "ap-southeast-1".
func NewWorld(region string, zones ...string) World {
	w := World{Region: region}
	for _, zone := range zones {
		suffix := strings.TrimPrefix(strings.TrimPrefix(zone, region), "-")
		w.VSwitches = append(w.VSwitches, VSwitch{ID: "vsw-" + suffix, Zone: zone})
	}
	return w
}

// VSwitchIDs returns the IDs of the vSwitches, in their order.
func (w *World) VSwitchIDs() []string {
	var ids []string
	for _, v := range w.VSwitches {
		ids = append(ids, v.ID)
	}
	return ids
}

// Sell offers an instance type in a zone from the beginning, in any number, at these prices in CNY per hour.
func (w *World) Sell(instanceType, zone string, spot, onDemand float64) {
	w.Market.Script = append(w.Market.Script, Change{
		InstanceType: instanceType, Zone: zone, Stock: ptr.To(market.Unlimited), Spot: &spot, OnDemand: &onDemand,
	})
}

// LoadWorld reads a world file.
func LoadWorld(path string) (World, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return World{}, fmt.Errorf("world file: %w", err)
	}
	w, err := ParseWorld(text)
	if err != nil {
		return World{}, fmt.Errorf("world file %s: %w", path, err)
	}
	return w, nil
}

// ParseWorld reads a world from YAML and checks it.
func ParseWorld(text []byte) (World, error) {
	var w World
	if err := yaml.UnmarshalStrict(text, &w); err != nil {
		return World{}, err
	}
	return w, w.Validate()
}

// zones returns all zones, sorted.
func (w *World) zones() []string {
	set := map[string]bool{}
	for _, z := range w.Zones {
		set[z] = true
	}
	for _, v := range w.VSwitches {
		set[v.Zone] = true
	}
	return slices.Sorted(maps.Keys(set))
}
