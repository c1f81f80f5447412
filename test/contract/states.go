package main

import (
	"context"
	"errors"
	"time"
)

func stateQuestions() []question {
	return []question{{
		name:     "protected",
		asks:     "Does RemoveInstances remove an instance that is protected from scale-in?",
		matters:  "Somebody protected it on purpose; only the autoscaler can refrain.",
		source:   essPages + ", SetInstancesProtection: protection is from scale-ins by number and by event; an instance is removed by hand only",
		spends:   spends{instances: 1},
		believed: facts{"state": "Protected", "counted as ProtectedCapacity": "yes", "removal": "accepted", "in the end": "gone"},
		try:      tryProtected,
	}, {
		name:     "standby",
		asks:     "How is an instance in Standby listed and counted, and can it be removed?",
		matters:  "It serves nothing, though it is in the group and may run.",
		source:   essPages + ", EnterStandby",
		spends:   spends{instances: 1},
		believed: facts{"state": "Standby", "counted as StandbyCapacity": "yes", "in TotalCapacity": "yes", "removal": "accepted", "in the end": "gone"},
		try:      tryStandby,
	}, {
		name:     "stopped",
		asks:     "How is an instance listed and counted that was stopped in economical mode?",
		matters:  "It serves nothing; a scale-out starts it before it buys.",
		source:   metadata + ": RemovePolicy=recycle, where the group's ScalingPolicy is recycle; LifecycleState Stopped",
		spends:   spends{instances: 1},
		believed: facts{"state": "Stopped", "counted as StoppedCapacity": "yes"},
		try:      tryStopped,
	}}
}

// settled waits until an instance is listed in a state, and returns that in which it is.
func (e *trial) settled(ctx context.Context, id, state string) (string, error) {
	last := ""
	_, err := e.until(ctx, 5*time.Minute, func() (bool, error) {
		i, err := e.member(ctx, e.group, id)
		last = i.text("LifecycleState")
		return last == state, err
	})
	if errors.Is(err, errTooLate) {
		err = nil // what it is instead is the answer
	}
	return last, err
}

// inState notes how an instance is listed and counted once it has been put into a state.
func (e *trial) inState(ctx context.Context, id, state, capacity string, found facts) error {
	var err error
	if found["state"], err = e.settled(ctx, id, state); err != nil {
		return err
	}
	g, err := e.describeGroup(ctx, e.group)
	found["counted as "+capacity] = yesNo(g.number(capacity) == 1)
	return err
}

// removal notes whether an instance can be removed in the state it is in.
func (e *trial) removal(ctx context.Context, id string, found facts) error {
	activityID, err := e.remove(ctx, []string{id}, nil)
	if found["removal"], err = verdict(err); err != nil || activityID == "" {
		return err
	}
	if _, err := e.end(ctx, activityID); err != nil {
		return err
	}
	found["in the end"], err = e.whereabouts(ctx, id)
	return err
}

func tryProtected(ctx context.Context, e *trial) (facts, error) {
	id, err := e.bought(ctx)
	if err != nil {
		return nil, err
	}
	p := parameters{"ScalingGroupId": e.group, "ProtectedFromScaleIn": "true"}.list("InstanceId", id)
	if _, err := e.ess(ctx, "SetInstancesProtection", p); err != nil {
		return nil, err
	}
	found := facts{}
	if err := e.inState(ctx, id, "Protected", "ProtectedCapacity", found); err != nil {
		return found, err
	}
	return found, e.removal(ctx, id, found)
}

func tryStandby(ctx context.Context, e *trial) (facts, error) {
	id, err := e.bought(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := e.ess(ctx, "EnterStandby", parameters{"ScalingGroupId": e.group}.list("InstanceId", id)); err != nil {
		return nil, err
	}
	found := facts{}
	if err := e.inState(ctx, id, "Standby", "StandbyCapacity", found); err != nil {
		return found, err
	}
	g, err := e.describeGroup(ctx, e.group)
	if err != nil {
		return found, err
	}
	found["in TotalCapacity"] = yesNo(g.number("TotalCapacity") == 1)
	return found, e.removal(ctx, id, found)
}

func tryStopped(ctx context.Context, e *trial) (facts, error) {
	g, err := e.describeGroup(ctx, e.group)
	if err != nil {
		return nil, err
	}
	if g.text("ScalingPolicy") != "recycle" {
		return nil, cannotTell("the group's ScalingPolicy is %q, not recycle", g.text("ScalingPolicy"))
	}
	id, err := e.bought(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := e.removed(ctx, []string{id}, parameters{"RemovePolicy": "recycle"}); err != nil {
		return nil, err
	}
	found := facts{}
	return found, e.inState(ctx, id, "Stopped", "StoppedCapacity", found)
}
