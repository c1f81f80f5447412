package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/alicloud/client"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/observe"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/ess/problem"
)

// history is how far back the activities of a scaling group are read, as the autoscaler does.
const history = time.Hour

// cloudExam examines the account and its scaling groups.
type cloudExam struct {
	*Doctor
	report *Report
	// overrides are the annotations of the ConfigMaps of pools, by scaling group.
	overrides map[string]map[string]string

	groups []alicloud.ScalingGroup
	pools  map[string]*pool.Pool
	// instances are those of the scaling groups, by id.
	instances map[string]alicloud.ScalingInstance
	read      *keeper
	// pollRefused says that ECS cannot be asked for reclaim notices.
	pollRefused bool
}

// keeper is the client, and keeps what the catalog of pools reads by it.
type keeper struct {
	*client.Client
	configurations map[string]alicloud.ScalingConfiguration
	vswitches      map[string]alicloud.VSwitch
}

// ScalingConfigurations implements pool.CatalogReader.
func (k *keeper) ScalingConfigurations(ctx context.Context, ids []string) ([]alicloud.ScalingConfiguration, error) {
	found, err := k.Client.ScalingConfigurations(ctx, ids)
	for _, configuration := range found {
		k.configurations[configuration.ID] = configuration
	}
	return found, err
}

// VSwitches implements pool.CatalogReader.
func (k *keeper) VSwitches(ctx context.Context, ids []string) ([]alicloud.VSwitch, error) {
	found, err := k.Client.VSwitches(ctx, ids)
	for _, vswitch := range found {
		k.vswitches[vswitch.ID] = vswitch
	}
	return found, err
}

func (e *cloudExam) examine(ctx context.Context) {
	e.read = &keeper{e.Cloud, map[string]alicloud.ScalingConfiguration{}, map[string]alicloud.VSwitch{}}
	if !e.readGroups(ctx) {
		return
	}
	e.readInstances(ctx)
	e.checkPoll(ctx)
	catalog := pool.NewCatalog()
	err := catalog.Update(ctx, e.read, e.Clock.Now(), e.groups, nil)
	e.failed("", err)
	e.checkGroups()
	if err == nil { // what is missing of the pools would not be missing, but unread
		e.buildPools(catalog)
	}
	e.checkPools()
	e.checkRoom()
	e.checkQuota(ctx)
	e.checkPrices(ctx)
	e.checkWrites(ctx)
}

// readGroups reads the scaling groups. It returns false if nothing else can be read either.
func (e *cloudExam) readGroups(ctx context.Context) bool {
	reader := observe.NewReader(observe.ReaderConfig{Cloud: e.Cloud, Clock: e.Clock, ClusterName: e.ClusterName, Region: e.Region, Named: e.Nodes})
	found := problem.Set{}
	groups, err := reader.Groups(ctx, found)
	if err != nil {
		e.report.addFailure("", err)
		return Code(alicloud.Diagnose(err).Reason) == NotAllowed
	}
	e.groups = groups
	e.checkTags(ctx)
	for key, cause := range found {
		if key.Reason != problem.OtherClusters { // which is said of the tags
			e.report.addProblem(key.Reason, Error, key.Pool, cause)
		}
	}
	return true
}

// failed enters all that a call of several parts says.
func (e *cloudExam) failed(object string, err error) {
	if err == nil {
		return
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			e.failed(object, one)
		}
		return
	}
	e.report.addFailure(object, err)
}

func (e *cloudExam) readInstances(ctx context.Context) {
	e.instances = map[string]alicloud.ScalingInstance{}
	listed, err := e.Cloud.ScalingInstances(ctx, alicloud.InstanceFilter{})
	e.failed("", err)
	for _, instance := range listed {
		e.instances[instance.ID] = instance
	}
	for _, group := range e.groups {
		_, err := e.Cloud.GroupActivities(ctx, group.ID, e.Clock.Now().Add(-history))
		e.failed("", err)
	}
}

// checkPoll checks that ECS may be asked for reclaim notices.
func (e *cloudExam) checkPoll(ctx context.Context) {
	err := e.Cloud.CheckInstances(ctx)
	if err == nil {
		_, err = e.Cloud.RecyclingInstances(ctx)
	}
	e.pollRefused = err != nil
	e.failed("", err)
}

// checkPrices looks up the prices of one offering of each kind, and what is in stock of the spot one, as the autoscaler does for all.
func (e *cloudExam) checkPrices(ctx context.Context) {
	asked := map[bool]bool{}
	for _, id := range slices.Sorted(maps.Keys(e.pools)) {
		for _, offered := range e.pools[id].Offerings {
			if asked[offered.Spot] {
				continue
			}
			asked[offered.Spot] = true
			if offered.Spot {
				_, err := e.Cloud.SpotPriceHistory(ctx, offered.InstanceType, offered.Zone, false, e.Clock.Now().Add(-history))
				e.failedLookup("price", offered, err)
				_, err = e.Cloud.SpotStock(ctx, offered.InstanceType)
				e.failedLookup("stock", offered, err)
				_, err = e.Cloud.SpotStrengths(ctx, id)
				e.failedLookup("strength", offered, err)
			}
			_, err := e.Cloud.OnDemandPrice(ctx, offered.InstanceType, offered.Zone)
			e.failedLookup("price", offered, err)
		}
	}
}

// failedLookup enters why a price or a stock could not be read. That there is none, as for what is not sold in a zone, is not wrong.
func (e *cloudExam) failedLookup(what string, offered *pool.Offering, err error) {
	switch alicloud.ClassOf(err) {
	case "":
	case alicloud.Unauthorized:
		e.report.addFailure("", err)
	default:
		e.report.notProven(fmt.Sprintf("the %s of %s in %s: %s", what, offered.InstanceType, offered.Zone, alicloud.Brief(err)))
	}
}

// checkWrites checks the permissions to change scaling groups, as far as that can be done without a change.
func (e *cloudExam) checkWrites(ctx context.Context) {
	if len(e.groups) == 0 {
		return
	}
	for _, group := range e.groups {
		switch err := e.Cloud.CheckRemove(ctx, group.ID); {
		case err == nil:
		case alicloud.ClassOf(err) == alicloud.Unauthorized:
			e.report.addFailure(group.ID, err)
		default:
			e.report.notProven(fmt.Sprintf("ess:RemoveInstances in %s: %s", group.ID, alicloud.Brief(err)))
		}
	}
	e.report.notProven("ess:ScaleWithAdjustment: it has no dry run. The shipped policy allows it in the same statement as ess:RemoveInstances")
	for _, id := range slices.Sorted(maps.Keys(e.pools)) {
		if e.pools[id].Targeting == pool.TargetLaunch {
			e.checkLaunch(ctx, e.pools[id])
		}
	}
}

// checkLaunch checks whether RunInstances would create an instance as the pool would buy it.
func (e *cloudExam) checkLaunch(ctx context.Context, p *pool.Pool) {
	e.report.notProven("ecs:DeleteInstances and ess:AttachInstances: nothing is there that they could be tried on")
	if p.Unbuyable != "" {
		return // RunInstances could not follow its scaling configuration
	}
	request := p.LaunchRequest(p.Offerings[0])
	request.Amount, request.MinAmount, request.VSwitchID = 1, 1, p.Offerings[0].VSwitchIDs[0]
	request.ClientToken = "doctor-" + uuid.NewString()
	switch err := e.Cloud.CheckLaunch(ctx, request); alicloud.ClassOf(err) {
	case "", alicloud.Stockout, alicloud.PriceTooLow: // which may be otherwise in a minute
	case alicloud.Throttled, alicloud.Unavailable, alicloud.Conflict:
		e.report.notProven(fmt.Sprintf("ecs:RunInstances for %s: %s", p.ID, alicloud.Brief(err)))
	default:
		e.report.addFailure(p.ID, err)
	}
}

// buildPools builds the pools as the autoscaler would, and enters what stands in the way.
func (e *cloudExam) buildPools(catalog *pool.Catalog) {
	e.pools = map[string]*pool.Pool{}
	for _, group := range e.groups {
		source := pool.Source{Region: e.Region, Group: group, Overrides: e.overrides[group.ID]}
		if bounds, named := e.Nodes[group.ID]; named {
			source.Bounds = &bounds
		}
		built, leftOut, broken := pool.Build(source, catalog)
		switch {
		case broken == nil:
			e.pools[group.ID] = built
			if len(leftOut) > 0 {
				e.report.addProblem(problem.LeftOut, Warning, group.ID, errors.Join(leftOut...).Error())
			}
		case broken.Reason == problem.Tags && e.report.hasFor(Tags, group.ID): // said tag by tag
		default:
			e.report.addProblem(broken.Reason, Error, group.ID, broken.Err.Error())
		}
	}
}

// clusterTag is the tag that says that a scaling group is of the cluster.
func (e *cloudExam) clusterTag() string { return api.TagCluster + e.ClusterName }
