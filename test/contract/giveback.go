package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// givingBackTakes bounds how long instances are tried to be given back before somebody else has to.
const givingBackTakes = 20 * time.Minute

// How long a group must be empty before all is believed to be given back: a listing may lag behind, and a purchase whose
// reply was lost, or named no activity, may yet begin.
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

// holdings are what a group may have of what it bought.
type holdings struct {
	group string
	// activities are those of which it is not known yet what they created, instances those that ECS may still have.
	activities, instances sets.Set[string]
}

func newHoldings(group string, activities ...string) *holdings {
	return &holdings{group, sets.New(activities...), sets.New[string]()}
}

func (h *holdings) stuck(why error) error {
	ids := sets.List(h.instances)
	if len(ids) == 0 {
		ids = []string{"of which no id is known"}
	}
	return notGivenBack{h.group, ids, why.Error()}
}

// giveBack releases every instance that the group has bought, and returns when ESS lists none for a while and ECS lists
// none of them. The group was empty before, so all that it created is ours; what somebody attached by hand is left alone.
func (a *account) giveBack(ctx context.Context, h *holdings, quiet time.Duration) error {
	const pause = 5 * time.Second
	var last error
	for began, empty := a.clock.Now(), time.Duration(0); empty < quiet; {
		left, err := a.giveBackOnce(ctx, h)
		if empty += pause; err != nil || left > 0 {
			empty = 0
		}
		if err != nil && ctx.Err() == nil {
			last = err
			a.log("giving back the instances of %s: %v; trying again", h.group, err)
		}
		if a.since(began) > givingBackTakes {
			return h.stuck(errors.Join(errTooLate, last))
		}
		if err := a.wait(ctx, pause); err != nil {
			return h.stuck(errors.Join(err, last))
		}
	}
	return nil
}

// giveBackOnce removes what can be removed now, and returns how many instances and activities there still are. It removes
// what it knows of even where something went wrong on the way.
func (a *account) giveBackOnce(ctx context.Context, h *holdings) (left int, err error) {
	g, err := a.describeGroup(ctx, h.group)
	if err != nil {
		return 0, err
	}
	err = a.wantNone(ctx, g)
	running, noRunning := a.running(ctx, h.group)
	members, noMembers := a.members(ctx, h.group)
	if noRunning != nil || noMembers != nil {
		return 0, errors.Join(err, noRunning, noMembers)
	}
	for _, activity := range running {
		h.activities.Insert(activity.text("ScalingActivityId"))
	}
	var ids []string
	for _, i := range members {
		if i.text("CreationType") != "Attached" {
			ids = append(ids, i.text("InstanceId"))
			err = errors.Join(err, a.makeRemovable(ctx, h.group, i))
		}
	}
	h.instances.Insert(ids...)
	if len(ids) > 0 && len(running) == 0 {
		_, refused := a.ess(ctx, "RemoveInstances", removalOf(h.group, ids))
		err = errors.Join(err, refused)
	}
	err = errors.Join(err, a.forget(ctx, h, ids))
	attached := len(members) - len(ids)
	return max(0, g.number("TotalCapacity")-attached) + len(h.activities) + len(h.instances), err
}

// wantNone lowers the desired capacity, else ESS buys again what is removed.
func (a *account) wantNone(ctx context.Context, group object) error {
	if group.number("DesiredCapacity") == 0 {
		return nil
	}
	p := parameters{"ScalingGroupId": group.text("ScalingGroupId"), "DesiredCapacity": "0"}
	_, err := a.ess(ctx, "ModifyScalingGroup", p)
	return err
}

// forget strikes off the activities that have ended, once it has noted what they created, and the instances that neither
// the group lists nor ECS.
func (a *account) forget(ctx context.Context, h *holdings, listed []string) error {
	for _, id := range sets.List(h.activities) {
		activity, err := a.activity(ctx, id)
		if err != nil {
			return err
		}
		h.instances.Insert(activity.texts("CreatedInstances")...)
		if activity != nil && activity.text("StatusCode") != "InProgress" {
			h.activities.Delete(id)
		}
	}
	for _, id := range sets.List(h.instances.Clone().Delete(listed...)) {
		vm, err := a.vm(ctx, id)
		if err != nil {
			return err
		}
		if vm == nil {
			h.instances.Delete(id)
		}
	}
	return nil
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
