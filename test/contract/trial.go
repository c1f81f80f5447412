package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/google/uuid"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// trial is what a question that spends does in its group. It never has more instances than it may, and gives all back.
type trial struct {
	*account
	group string
	// offer is what is bought.
	offer offer
	// most bounds how many instances there are at any moment; out is how many there may be now.
	most, out int
	// uncertain: a purchase had no answer or named no activity, so that it may yet begin.
	uncertain bool
	// given is how many activities had begun when all was given back last.
	given int
}

// Durations of the cloud's, after which the answer is that it takes longer.
const (
	activityTakes = 10 * time.Minute
	tokenMustLive = 10 * time.Minute
)

// try asks a question that spends, and gives back what it bought, however it ends.
func (a *account) try(ctx context.Context, q question) (found facts, err error) {
	group := a.group
	if q.spends.desired {
		if group = a.desired; group == "" {
			return nil, cannotTell("no group with a desired capacity was given: say -desired-group")
		}
	}
	limits, err := a.mayBuyIn(ctx, group, q.spends.desired)
	if err != nil {
		return nil, err
	}
	if limits.maximum < q.spends.instances {
		return nil, cannotTell("the group's maximum is %d and this takes %d", limits.maximum, q.spends.instances)
	}
	offer, err := a.cheapest(ctx, group)
	if err != nil {
		return nil, err
	}
	e := &trial{account: a, group: group, offer: offer, most: q.spends.instances, given: len(a.begun)}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
		// Whatever ended the question must not keep the instances.
		err = errors.Join(err, e.giveBackAll(context.WithoutCancel(ctx)))
	}()
	return q.try(ctx, e)
}

func (e *trial) giveBackAll(ctx context.Context) error {
	empty := quiet
	if e.uncertain {
		empty = quietUncertain
	}
	if err := e.giveBack(ctx, newHoldings(e.group, e.begun[e.given:]...), empty); err != nil {
		return err
	}
	e.out, e.uncertain, e.given = 0, false, len(e.begun)
	return nil
}

// buy asks for so many more instances of the offer. The parameters given replace those that it sends by itself.
// It returns the reply and the id of the activity.
func (e *trial) buy(ctx context.Context, count int, more parameters) (activityID string, reply object, err error) {
	if e.out+count > e.most {
		return "", nil, fmt.Errorf("this question may have %d instances, not %d", e.most, e.out+count)
	}
	e.out += count
	activityID, reply, err = e.scale(ctx, count, more)
	if _, refused := refusal(err); refused {
		e.out -= count
	}
	return activityID, reply, err
}

// buyBeyond asks for one more where the group is at its maximum, which ESS must not exceed.
func (e *trial) buyBeyond(ctx context.Context) (activityID string, err error) {
	activityID, _, err = e.scale(ctx, 1, nil)
	return activityID, err
}

func (e *trial) scale(ctx context.Context, count int, more parameters) (activityID string, reply object, err error) {
	p := parameters{
		"ScalingGroupId": e.group, "AdjustmentType": "QuantityChangeInCapacity", "AdjustmentValue": fmt.Sprint(count),
		"ClientToken": uuid.NewString(),
	}
	if !e.untargeted {
		p = e.offer.target(p)
	}
	for name, value := range more {
		p = p.with(name, value)
	}
	reply, err = e.ess(ctx, "ScaleWithAdjustment", p)
	if err != nil {
		_, refused := refusal(err)
		e.uncertain = e.uncertain || !refused
		return "", nil, err
	}
	activityID = reply.text("ScalingActivityId")
	if activityID != "" {
		e.begun = append(e.begun, activityID)
	} else {
		e.uncertain = true
	}
	return activityID, reply, nil
}

// end waits until an activity has ended, and returns it.
func (e *trial) end(ctx context.Context, id string) (object, error) {
	var last object
	_, err := e.until(ctx, activityTakes, func() (bool, error) {
		var err error
		last, err = e.activity(ctx, id)
		return last != nil && last.text("StatusCode") != "InProgress", err
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for activity %s to end: %w", id, err)
	}
	return last, nil
}

// noteWhile notes what a request was answered while an activity ran. An acceptance says nothing where the activity had
// ended by then; it is not noted.
func (e *trial) noteWhile(ctx context.Context, activityID string, found facts, fact string, answer error) (word string, err error) {
	if word, err = verdict(answer); err != nil {
		return "", err
	}
	if word == "accepted" {
		now, err := e.activity(ctx, activityID)
		if err != nil || now.text("StatusCode") != "InProgress" {
			return word, err
		}
	}
	found[fact] = word
	return word, nil
}

// bought buys one instance and waits until it serves. What does not come is tried again twice.
func (e *trial) bought(ctx context.Context) (instanceID string, err error) {
	ids, err := e.boughtSome(ctx, 1)
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// boughtSome buys instances with one activity and waits until all of them serve.
func (e *trial) boughtSome(ctx context.Context, count int) ([]string, error) {
	for range 3 {
		id, _, err := e.buy(ctx, count, nil)
		if code, refused := refusal(err); refused && !e.untargeted && alicloud.ClassOfCode(code) == alicloud.Invalid {
			e.log("ScaleWithAdjustment refuses a purchase that names type and zone (%s): buying without", code)
			e.untargeted = true
			continue
		}
		if err != nil {
			return nil, err
		}
		ended, err := e.end(ctx, id)
		if err != nil {
			return nil, err
		}
		serving, err := e.serving(ctx, id, count)
		if err == nil && len(serving) == count {
			return serving, nil
		}
		if err != nil && !errors.Is(err, errTooLate) {
			return nil, err
		}
		e.log("activity %s of %d instances ended as %s and %d serve; trying again", id, count, ended.text("StatusCode"), len(serving))
		if err := e.giveBackAll(ctx); err != nil {
			return nil, err
		}
	}
	return nil, cannotTell("no purchase brought %d instances that serve", count)
}

// serving waits for the instances of an activity that has ended to serve, and returns those that do.
func (e *trial) serving(ctx context.Context, activityID string, count int) (ids []string, err error) {
	_, err = e.until(ctx, 2*time.Minute, func() (bool, error) {
		members, err := e.members(ctx, e.group)
		ids = nil
		for _, i := range members {
			if i.text("ScalingActivityId") == activityID && i.text("LifecycleState") == "InService" {
				ids = append(ids, i.text("InstanceId"))
			}
		}
		return len(ids) == count, err
	})
	return ids, err
}

// remove asks for instances to be released. It returns the id of the activity.
func (e *trial) remove(ctx context.Context, ids []string, more parameters) (activityID string, err error) {
	p := removalOf(e.group, ids)
	for name, value := range more {
		p = p.with(name, value)
	}
	reply, err := e.ess(ctx, "RemoveInstances", p)
	if err != nil {
		return "", err
	}
	activityID = reply.text("ScalingActivityId")
	e.begun = append(e.begun, activityID)
	return activityID, nil
}

// removalOf are the parameters that the product removes with.
func removalOf(group string, ids []string) parameters {
	return parameters{
		"ScalingGroupId": group, "RemovePolicy": "release", "DecreaseDesiredCapacity": "true", "IgnoreInvalidInstance": "true",
		"StopInstanceTimeout": "60", "ClientToken": uuid.NewString(),
	}.list("InstanceId", ids...)
}

// removed removes instances and waits for the activity's end. It returns the activity.
func (e *trial) removed(ctx context.Context, ids []string, more parameters) (object, error) {
	id, err := e.remove(ctx, ids, more)
	if err != nil {
		return nil, err
	}
	return e.end(ctx, id)
}
