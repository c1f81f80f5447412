package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// givingBackTakes bounds how long instances are tried to be given back before somebody else has to.
const givingBackTakes = 20 * time.Minute

// How long a group must be empty before all is believed to be given back: a listing may lag behind, and a purchase whose
// reply was lost may yet begin.
const (
	quiet          = 10 * time.Second
	quietUncertain = 2 * time.Minute
)

// notGivenBack says that instances go on costing money.
type notGivenBack struct {
	group     string
	instances []string
	because   string
}

func (e notGivenBack) Error() string {
	return fmt.Sprintf("NOT GIVEN BACK, and costing money: instances %v of scaling group %s: %s; run this again with -give-back, or release them in the console",
		e.instances, e.group, e.because)
}

// giveBack releases every instance that the group has bought, and returns when ESS lists none for a while and ECS lists
// none of them. The group was empty before, so all that it created is ours; what somebody attached by hand is left alone.
func (a *account) giveBack(ctx context.Context, group string, quiet time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(float64(givingBackTakes)/a.speed), errTooLate)
	defer cancel()
	const pause = 5 * time.Second
	seen, last := map[string]bool{}, error(nil)
	for empty := time.Duration(0); empty < quiet; {
		left, err := a.giveBackOnce(ctx, group, seen)
		if err == nil && left == 0 {
			empty += pause
		} else {
			empty = 0
		}
		if err != nil && ctx.Err() == nil {
			last = err
			a.log("giving back the instances of %s: %v; trying again", group, err)
		}
		if err := a.wait(ctx, pause); err != nil {
			return a.stuck(group, seen, errors.Join(err, last))
		}
	}
	for id := range seen {
		if _, err := a.until(ctx, 5*time.Minute, func() (bool, error) {
			vm, err := a.vm(ctx, id)
			return vm == nil, err
		}); err != nil {
			return a.stuck(group, map[string]bool{id: true}, err)
		}
	}
	return nil
}

func (a *account) stuck(group string, seen map[string]bool, why error) error {
	ids := slices.Sorted(maps.Keys(seen))
	if len(ids) == 0 {
		ids = []string{"of which no id is known"}
	}
	return notGivenBack{group, ids, why.Error()}
}

// giveBackOnce removes what can be removed now, and returns how many instances or activities there still are.
func (a *account) giveBackOnce(ctx context.Context, group string, seen map[string]bool) (left int, err error) {
	g, err := a.describeGroup(ctx, group)
	if err != nil {
		return 0, err
	}
	if g.number("DesiredCapacity") > 0 {
		// Else ESS buys again what is removed.
		if _, err := a.ess(ctx, "ModifyScalingGroup", parameters{"ScalingGroupId": group, "DesiredCapacity": "0"}); err != nil {
			return 0, err
		}
	}
	running, err := a.running(ctx, group)
	if err != nil {
		return 0, err
	}
	members, err := a.members(ctx, group)
	if err != nil {
		return 0, err
	}
	var ids []string
	for _, i := range members {
		if i.text("CreationType") == "Attached" {
			continue
		}
		id := i.text("InstanceId")
		seen[id] = true
		if err := a.makeRemovable(ctx, group, i); err != nil {
			return 0, err
		}
		ids = append(ids, id)
	}
	left = len(ids) + len(running) + g.number("TotalCapacity")
	if len(ids) == 0 || len(running) > 0 {
		return left, nil
	}
	_, err = a.ess(ctx, "RemoveInstances", removalOf(group, ids))
	return left, err
}

// makeRemovable ends what might keep an instance in its group.
func (a *account) makeRemovable(ctx context.Context, group string, i object) error {
	p := parameters{"ScalingGroupId": group}.list("InstanceId", i.text("InstanceId"))
	var err error
	switch i.text("LifecycleState") {
	case "Protected":
		_, err = a.ess(ctx, "SetInstancesProtection", p.with("ProtectedFromScaleIn", "false"))
	case "Standby":
		_, err = a.ess(ctx, "ExitStandby", p)
	}
	return err
}

// running returns the activities of a group that are in progress, whether the status filter works or not.
func (a *account) running(ctx context.Context, group string) ([]object, error) {
	body, err := a.ess(ctx, "DescribeScalingActivities", parameters{"ScalingGroupId": group, "StatusCode": "InProgress", "PageSize": "50"})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(body.list("ScalingActivities"), func(o object) bool { return o.text("StatusCode") != "InProgress" }), nil
}
