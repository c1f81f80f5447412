package alisim

import (
	"fmt"
	"maps"
	"os"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// World describes a simulated cloud: one account in one region. It is what a world file holds, as YAML; an unknown
// field in a file is an error. A zero duration means the default named with the field; a negative one means none.
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

	// Speed is how many market seconds, and seconds of the protected first hour, pass in one second; default 1. The
	// delays below are not scaled.
	Speed float64 `json:"speed,omitempty"`
	// ActivityDelay is how long a scaling activity takes; default 2s. Instances exist from its middle on.
	ActivityDelay metav1.Duration `json:"activityDelay,omitempty"`
	// BootDelay is how long after its activity an instance registers its Node; default 5s.
	BootDelay metav1.Duration `json:"bootDelay,omitempty"`
	// DriverDelay is how long after its Node appeared an instance's GPUs become allocatable; default 3s.
	DriverDelay metav1.Duration `json:"driverDelay,omitempty"`
	// NoticePeriod is the time between a spot instance's notice and its release; default 5m, as at Alibaba.
	NoticePeriod metav1.Duration `json:"noticePeriod,omitempty"`
	// HealthCheckDelay is how long ESS takes to notice that an instance is gone or unhealthy, or that a group is below
	// its minimum or desired capacity; default 2s, far quicker than the real service.
	HealthCheckDelay metav1.Duration `json:"healthCheckDelay,omitempty"`

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
}

// VSwitch is a subnet in a zone.
type VSwitch struct {
	ID   string `json:"id"`
	Zone string `json:"zone"`
	// AvailableIPs is how many instances fit; 0 means 4096.
	AvailableIPs int `json:"availableIPs,omitempty"`
}

// Type is the shape and, optionally, the price of an instance type. Prices are CNY per instance-hour and hold in every
// zone of the world; where both are 0 the market knows the type already.
type Type struct {
	ID        string  `json:"id"`
	VCPU      int     `json:"vcpu"`
	MemoryGiB float64 `json:"memoryGiB"`
	GPUs      int     `json:"gpus,omitempty"`
	// GPUModel is the bare name, such as "A10".
	GPUModel string `json:"gpuModel,omitempty"`
	// GPUMemGiB is per GPU.
	GPUMemGiB float64 `json:"gpuMemGiB,omitempty"`
	OnDemand  float64 `json:"onDemand,omitempty"`
	Spot      float64 `json:"spot,omitempty"`
}

// Quota bounds the account.
type Quota struct {
	// Instances is how many instances the account may own at once; 0 means unlimited. Beyond it a scaling activity
	// fails with QuotaExceed.ElasticQuota.
	Instances int `json:"instances,omitempty"`
}

// Pool is a scaling group together with its active scaling configuration.
type Pool struct {
	// ID of the scaling group, such as "asg-t4". Required.
	ID string `json:"id"`
	// Name of the group; default the ID.
	Name    string `json:"name,omitempty"`
	MinSize int    `json:"minSize,omitempty"`
	MaxSize int    `json:"maxSize"`
	// DesiredCapacity, where given, makes ESS keep the group at that size by itself.
	DesiredCapacity *int `json:"desiredCapacity,omitempty"`
	// Instances is how many instances the group has when the world begins.
	Instances int `json:"instances,omitempty"`

	// InstanceTypes of the scaling configuration, in order of priority. Without any, the group has no configuration.
	InstanceTypes []string `json:"instanceTypes,omitempty"`
	// VSwitches by ID, in order of priority.
	VSwitches []string `json:"vswitches,omitempty"`
	// SpotStrategy is NoSpot, SpotAsPriceGo or SpotWithPriceLimit; default NoSpot.
	SpotStrategy string `json:"spotStrategy,omitempty"`
	// SpotDuration is the protected time of a new spot instance in market hours, 0 or 1; default 1.
	SpotDuration *int `json:"spotDuration,omitempty"`
	// SpotPriceLimits are CNY per instance-hour by type, for SpotWithPriceLimit.
	SpotPriceLimits map[string]float64 `json:"spotPriceLimits,omitempty"`
	// SystemDiskGiB is the size of the system disk; default 120.
	SystemDiskGiB int `json:"systemDiskGiB,omitempty"`

	// MultiAZPolicy chooses the offering where a request does not: PRIORITY (vSwitches, then types, in their order),
	// BALANCE (zones evenly) or COST_OPTIMIZED (the lowest price per vCPU); default PRIORITY.
	MultiAZPolicy string `json:"multiAZPolicy,omitempty"`
	// CompensateWithOnDemand lets ESS buy pay-as-you-go where no spot instance can be had, whatever was asked for.
	// Default true, as at Alibaba, where the documentation restricts it to COST_OPTIMIZED; here it holds for every policy.
	CompensateWithOnDemand *bool `json:"compensateWithOnDemand,omitempty"`
	// SpotInstanceRemedy lets ESS buy a replacement of its own as soon as a spot instance gets its notice.
	SpotInstanceRemedy bool `json:"spotInstanceRemedy,omitempty"`
	// HealthCheckType is ECS or NONE; default ECS.
	HealthCheckType string `json:"healthCheckType,omitempty"`
	// DefaultCooldown is in seconds; default 300. Nothing here waits for it.
	DefaultCooldown *int `json:"defaultCooldown,omitempty"`
	// LifecycleState is Active, Inactive or Deleting; default Active.
	LifecycleState string `json:"lifecycleState,omitempty"`
	// SystemSuspended is what ESS sets after seven days of failures: nothing in the group happens by itself any more,
	// and scaling is refused.
	SystemSuspended bool `json:"systemSuspended,omitempty"`
	// SuspendedProcesses are some of ScaleIn, ScaleOut, HealthCheck, AlarmNotification and ScheduledAction.
	SuspendedProcesses []string `json:"suspendedProcesses,omitempty"`

	// Tags of the scaling group.
	Tags map[string]string `json:"tags,omitempty"`
	// ConfigurationTags are the tags of the scaling configuration.
	ConfigurationTags map[string]string `json:"configurationTags,omitempty"`
	// IgnoreTargeting is World.IgnoreTargeting for this pool alone.
	IgnoreTargeting bool `json:"ignoreTargeting,omitempty"`
	// Node is what its instances' Nodes have beyond what the tags' node templates say.
	Node Node `json:"node,omitempty"`
}

// Node describes the Nodes of a pool. Labels, taints and resources named by the pool's tags
// (k8s.io/cluster-autoscaler/node-template/…) need no mention: ACK applies them, and so does the simulator.
type Node struct {
	Labels map[string]string `json:"labels,omitempty"`
	// Taints have the form "key=value:effect".
	Taints []string `json:"taints,omitempty"`
	// Resources are quantities by name.
	Resources map[string]string `json:"resources,omitempty"`
}

// Spot strategies, as Alibaba spells them.
const (
	NoSpot             = "NoSpot"
	SpotAsPriceGo      = "SpotAsPriceGo"
	SpotWithPriceLimit = "SpotWithPriceLimit"
)

const (
	policyPriority = "PRIORITY"
	policyBalance  = "BALANCE"
	policyCost     = "COST_OPTIMIZED"
)

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
