package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
)

// mostInstances is the greatest maximum that a group may have in which something is bought: ESS itself then bounds what
// can be.
const mostInstances = 2

// limits are those of a group in which instances may be bought.
type limits struct{ maximum int }

// mayBuyIn says why nothing may be bought in the group, else its limits.
func (a *account) mayBuyIn(ctx context.Context, id string, desired bool) (limits, error) {
	g, err := a.describeGroup(ctx, id)
	if err != nil {
		return limits{}, err
	}
	hasDesired := g["EnableDesiredCapacity"] == true
	members, err := a.members(ctx, id)
	if err != nil {
		return limits{}, err
	}
	running, err := a.running(ctx, id)
	if err != nil {
		return limits{}, err
	}
	refuse := func(format string, args ...any) (limits, error) {
		return limits{}, fmt.Errorf("nothing is bought in scaling group %s: %s", id, fmt.Sprintf(format, args...))
	}
	switch {
	case unfit(g) != "":
		return refuse("%s", unfit(g))
	case g.text("LifecycleState") != "Active":
		return refuse("it is %s, not Active", g.text("LifecycleState"))
	case hasDesired != desired:
		return refuse("whether it has a desired capacity is %t, and must be %t for this question", hasDesired, desired)
	case len(members) > 0 || g.number("TotalCapacity") > 0 || g.number("DesiredCapacity") > 0:
		return refuse("it is not empty; if a run of this was killed, say -give-back first")
	case len(running) > 0:
		return refuse("activity %s is in progress", running[0].text("ScalingActivityId"))
	}
	return limits{g.number("MaxSize")}, nil
}

// unfit says why a group was not made for this, "" where it was.
func unfit(group object) string {
	tags := tagsOf(group)
	_, isPool := tags[api.TagEnabled]
	minimum, maximum := group.number("MinSize"), group.number("MaxSize")
	switch {
	case tags[api.TagContract] != api.TagContractMaySpend:
		return fmt.Sprintf("it has no tag %s=%s", api.TagContract, api.TagContractMaySpend)
	case isPool:
		return fmt.Sprintf("its tag %s makes it a pool of an autoscaler, which would buy and remove beside us", api.TagEnabled)
	case minimum != 0 || maximum < 1 || maximum > mostInstances:
		return fmt.Sprintf("its limits are %d to %d instances, and must be 0 to at most %d", minimum, maximum, mostInstances)
	}
	return ""
}

func tagsOf(group object) map[string]string {
	tags := map[string]string{}
	for _, tag := range group.list("Tags") {
		tags[tag.text("TagKey")] = tag.text("TagValue")
	}
	return tags
}

// mayRemoveFrom keeps away from groups that were not made for this.
func (a *account) mayRemoveFrom(ctx context.Context, id string) error {
	g, err := a.describeGroup(ctx, id)
	if err != nil {
		return err
	}
	if why := unfit(g); why != "" {
		return fmt.Errorf("nothing is removed from scaling group %s: %s", id, why)
	}
	return nil
}

// mayGiveBack finds out whether the account may remove what it buys, by asking for what is not there.
func (a *account) mayGiveBack(ctx context.Context, group string) error {
	_, err := a.ess(ctx, "RemoveInstances", removalOf(group, strange("i-", 1)).with("IgnoreInvalidInstance", "false"))
	if _, err := verdict(err); err != nil {
		return fmt.Errorf("nothing is bought in scaling group %s, since it may be impossible to give it back: %w", group, err)
	}
	return nil
}

// offer is the one thing that is bought: the cheapest instance type of the group, in a zone that has it.
type offer struct {
	instanceType, zone, vswitch string
	// strategy is the group's, "" where it pays as it goes or has price limits of its own.
	strategy string
	// spot and onDemand are prices of an instance-hour, 0 where unknown; dearest is the greatest of any type of the group.
	spot, onDemand, dearest float64
	currency                string
}

func (o offer) target(p parameters) parameters {
	p = p.with("InstanceType.1", o.instanceType).with("VSwitchId.1", o.vswitch)
	if o.strategy != "" {
		p = p.with("SpotStrategy", o.strategy)
	}
	return p
}

// price is what an instance-hour of the offer costs.
func (o offer) price() float64 {
	if o.strategy != "" && o.spot > 0 {
		return o.spot
	}
	return o.onDemand
}

// cheapest finds the offer of a group. It is looked for once.
func (a *account) cheapest(ctx context.Context, group string) (offer, error) {
	if found, known := a.offers[group]; known {
		return found, nil
	}
	g, err := a.describeGroup(ctx, group)
	if err != nil {
		return offer{}, err
	}
	configurations, err := a.client.ScalingConfigurations(ctx, []string{g.text("ActiveScalingConfigurationId")})
	if err != nil {
		return offer{}, err
	}
	if len(configurations) == 0 || len(configurations[0].InstanceTypes) == 0 {
		return offer{}, fmt.Errorf("scaling group %s has no scaling configuration that names an instance type", group)
	}
	vswitches, err := a.client.VSwitches(ctx, g.texts("VSwitchIds"))
	if err != nil {
		return offer{}, err
	}
	offers, err := listOffers(ctx, a, configurations[0], vswitches)
	if err != nil {
		return offer{}, err
	}
	if len(offers) == 0 {
		return offer{}, cannotTell("no instance type of scaling group %s is in stock", group)
	}
	best := slices.MinFunc(offers, func(x, y offer) int { return cmp.Compare(x.price(), y.price()) })
	for _, o := range offers {
		best.dearest = max(best.dearest, o.onDemand)
	}
	a.offers[group] = best
	return best, nil
}

// listOffers lists what is in stock of a configuration.
func listOffers(ctx context.Context, a *account, c alicloud.ScalingConfiguration, vswitches []alicloud.VSwitch) ([]offer, error) {
	var offers []offer
	for _, t := range c.InstanceTypes {
		for _, v := range vswitches {
			stock, err := a.stock(ctx, t, v.ZoneID, c.SpotStrategy)
			if err != nil {
				return nil, err
			}
			if !slices.Contains(stock, "WithStock") {
				continue
			}
			o := offer{instanceType: t, zone: v.ZoneID, vswitch: v.ID}
			if c.SpotStrategy == alicloud.SpotAsPriceGo {
				o.strategy = c.SpotStrategy
				if o.spot, o.currency, err = hourlyPrice(ctx, a, o, o.strategy); err != nil {
					return nil, err
				}
			}
			if o.onDemand, o.currency, err = hourlyPrice(ctx, a, o, alicloud.NoSpot); err != nil {
				return nil, err
			}
			offers = append(offers, o)
		}
	}
	return offers, nil
}

// hourlyPrice asks DescribePrice what an instance-hour costs.
func hourlyPrice(ctx context.Context, a *account, o offer, strategy string) (price float64, currency string, err error) {
	var body object
	for _, disk := range []string{"cloud_essd", ""} {
		body, err = describePrice(ctx, a, o.instanceType, o.zone, strategy, disk)
		if _, refused := refusal(err); !refused {
			break
		}
	}
	if err != nil {
		return 0, "", err
	}
	whole := body.object("PriceInfo").object("Price")
	price, _ = whole["TradePrice"].(float64)
	return price, whole.text("Currency"), nil
}
