package dryrun

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// Reads are the calls that a dry run sends to Alibaba Cloud. None of them changes anything. *client.Client implements it.
type Reads interface {
	ScalingGroups(ctx context.Context, filter alicloud.GroupFilter) ([]alicloud.ScalingGroup, error)
	ScalingInstances(ctx context.Context, filter alicloud.InstanceFilter) ([]alicloud.ScalingInstance, error)
	ScalingConfigurations(ctx context.Context, ids []string) ([]alicloud.ScalingConfiguration, error)
	Activities(ctx context.Context, ids []string) ([]alicloud.Activity, error)
	ActivitiesInProgress(ctx context.Context, groupID string) ([]alicloud.Activity, error)
	GroupActivities(ctx context.Context, groupID string, since time.Time) ([]alicloud.Activity, error)
	Instances(ctx context.Context, ids []string) ([]alicloud.Instance, error)
	LaunchedInstances(ctx context.Context, tag, value string) ([]alicloud.Instance, error)
	RecyclingInstances(ctx context.Context) ([]alicloud.Instance, error)
	InstanceTypes(ctx context.Context, ids []string) ([]alicloud.InstanceType, error)
	VSwitches(ctx context.Context, ids []string) ([]alicloud.VSwitch, error)
	SpotPriceHistory(ctx context.Context, instanceType, zoneID string, isProtected bool, since time.Time) ([]alicloud.SpotPrice, error)
	OnDemandPrice(ctx context.Context, instanceType, zoneID string) (float64, error)
	SpotStock(ctx context.Context, instanceType string) ([]alicloud.Stock, error)
	SpotStrengths(ctx context.Context, scalingGroupID string) ([]alicloud.OfferingStrength, error)
	Currency() string
}

// Cloud sends reads to Alibaba Cloud, and keeps purchases and removals to itself. What it was asked to buy is in its answers as instances which
// are in service, but never become Nodes, until they are removed or as old as keep. An instance that it was asked to remove is Removing for as long.
//
// It takes every purchase for granted: it does not know what is in stock. It is safe for concurrent use.
type Cloud struct {
	Reads
	mu     sync.Mutex
	memory memory
}

// memory is what would have been done, and what is known of the pools.
type memory struct {
	clock clock.PassiveClock
	// keep is how long what was decided counts.
	keep time.Duration
	// decisions are what would have been done, the oldest first.
	decisions []Decision
	// bought are the virtual instances, removed the real ones that would be gone since then.
	bought  map[string]instance
	removed map[string]time.Time
	// activities answer by the id of the activity, tokens by the ClientToken.
	activities map[string]alicloud.Activity
	tokens     map[string][]string
	// zones are those of vSwitches. groups and configurations are the last that were read.
	zones          map[string]string
	groups         map[string]alicloud.ScalingGroup
	configurations map[string]alicloud.ScalingConfiguration
}

// mostDecisions is how many decisions are kept.
const mostDecisions = 100

// Decision is something that would have been done.
type Decision struct {
	Time time.Time
	// Action is the API action that was not sent.
	Action string
	Pool   string
	Count  int
	// InstanceType, Zone and SpotStrategy say what would have been bought.
	InstanceType, Zone, SpotStrategy string
	// Instances are those that would have been removed.
	Instances []string
}

// New returns a Cloud that has decided nothing.
func New(reads Reads, clk clock.PassiveClock, keep time.Duration) *Cloud {
	return &Cloud{Reads: reads, memory: memory{
		clock: clk, keep: keep, bought: map[string]instance{}, removed: map[string]time.Time{},
		activities: map[string]alicloud.Activity{}, tokens: map[string][]string{}, zones: map[string]string{},
		groups: map[string]alicloud.ScalingGroup{}, configurations: map[string]alicloud.ScalingConfiguration{},
	}}
}

// Decisions returns what would have been done lately, the oldest first.
func (c *Cloud) Decisions() []Decision {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.memory.decisions)
}

// decide enters a decision.
func (m *memory) decide(ctx context.Context, d Decision) {
	d.Time = m.clock.Now()
	m.decisions = append(m.decisions, d)
	if excess := len(m.decisions) - mostDecisions; excess > 0 {
		m.decisions = slices.Delete(m.decisions, 0, excess)
	}
	klog.FromContext(ctx).Info("Dry run: this would be done", "action", d.Action, "pool", d.Pool, "count", d.Count,
		"instanceType", d.InstanceType, "zone", d.Zone, "spotStrategy", d.SpotStrategy, "instances", d.Instances)
}

// forget drops what is as old as keep.
func (m *memory) forget() {
	oldest := m.clock.Now().Add(-m.keep)
	for id, each := range m.bought {
		if each.Created.Before(oldest) {
			delete(m.bought, id)
		}
	}
	for id, since := range m.removed {
		if since.Before(oldest) {
			delete(m.removed, id)
		}
	}
	for id, activity := range m.activities {
		if activity.Started.Before(oldest) {
			delete(m.activities, id)
		}
	}
	for token, ids := range m.tokens {
		if !slices.ContainsFunc(ids, func(id string) bool { _, kept := m.activities[id]; _, bought := m.bought[id]; return kept || bought }) {
			delete(m.tokens, token)
		}
	}
}

// split returns the ids of what this Cloud has made up, and the others.
func split(ids []string) (ours sets.Set[string], others []string) {
	ours = sets.New[string]()
	for _, id := range ids {
		if isVirtual(id) {
			ours.Insert(id)
		} else {
			others = append(others, id)
		}
	}
	return ours, others
}
