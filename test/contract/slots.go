package main

import (
	"context"
	"time"
)

const oneActivity = "“No scaling activity is in progress in the scaling group” on the page of ScaleWithAdjustment (2014-08-28, 2026-09-10) and of RemoveInstances"

func slotQuestions() []question {
	return []question{{
		name:    "parallel-purchases",
		asks:    "Is a second purchase accepted while one is in progress, with ParallelTask and without?",
		matters: "Where it is not, purchases of a group have to queue.",
		source:  oneActivity + "; ParallelTask has one documented line in 2022-02-22 and is in " + goSDK,
		spends:  spends{instances: 2},
		rules:   []string{"oneAtATime"},
		believed: facts{
			"without ParallelTask": "refused with ScalingActivityInProgress", "with ParallelTask": "refused with ScalingActivityInProgress",
		},
		try: tryParallelPurchases,
	}, {
		name:     "purchase-during-removal",
		asks:     "Is a purchase accepted while instances are being removed?",
		matters:  "A removal that takes a minute or more keeps every purchase of its group waiting.",
		source:   oneActivity,
		spends:   spends{instances: 2},
		rules:    []string{"oneAtATime"},
		believed: facts{"with ParallelTask": "refused with ScalingActivityInProgress"},
		try:      tryPurchaseDuringRemoval,
	}, {
		name:     "removal-during-purchase",
		asks:     "Is a removal accepted while a purchase is in progress, of an instance that serves and of one that is Pending?",
		matters:  "A gang that came short is given back as soon as that is allowed.",
		source:   oneActivity + "; cloudpilot-ai/karpenter-provider-alibabacloud refuses to remove Pending instances because the API does",
		spends:   spends{instances: 2},
		rules:    []string{"oneAtATime"},
		believed: facts{"of one that serves": "refused with ScalingActivityInProgress", "of a Pending one": "refused with ScalingActivityInProgress"},
		try:      tryRemovalDuringPurchase,
	}}
}

func tryParallelPurchases(ctx context.Context, e *trial) (facts, error) {
	parallel := parameters{"ParallelTask": "true"}
	first, _, err := e.buy(ctx, 1, parallel)
	if err != nil {
		return nil, err
	}
	found := facts{}
	for _, second := range []struct {
		name string
		p    parameters
	}{{"without ParallelTask", nil}, {"with ParallelTask", parallel}} {
		_, _, err := e.buy(ctx, 1, second.p)
		word, err := e.noteWhile(ctx, first, found, second.name, err)
		if err != nil || word == "accepted" { // that is two
			return found, err
		}
	}
	return found, nil
}

func tryPurchaseDuringRemoval(ctx context.Context, e *trial) (facts, error) {
	id, err := e.bought(ctx)
	if err != nil {
		return nil, err
	}
	removal, err := e.remove(ctx, []string{id}, nil)
	if err != nil {
		return nil, err
	}
	found := facts{}
	_, _, err = e.buy(ctx, 1, parameters{"ParallelTask": "true"})
	_, err = e.noteWhile(ctx, removal, found, "with ParallelTask", err)
	return found, err
}

func tryRemovalDuringPurchase(ctx context.Context, e *trial) (facts, error) {
	serving, err := e.bought(ctx)
	if err != nil {
		return nil, err
	}
	found := facts{}
	purchase, _, err := e.buy(ctx, 1, nil)
	if err != nil {
		return nil, err
	}
	_, err = e.remove(ctx, []string{serving}, nil)
	if _, err := e.noteWhile(ctx, purchase, found, "of one that serves", err); err != nil {
		return found, err
	}
	if err := e.giveBackAll(ctx); err != nil {
		return found, err
	}
	return found, e.untilPending(ctx, nil, found)
}

// untilPending buys an instance until one is listed as Pending, which not every one is, and notes whether it can be removed.
func (e *trial) untilPending(ctx context.Context, more parameters, found facts) error {
	for range 4 {
		activity, _, err := e.buy(ctx, 1, more)
		if err != nil {
			return err
		}
		if err := e.removePending(ctx, activity, found); err != nil || found["of a Pending one"] != "" {
			return err
		}
		if err := e.giveBackAll(ctx); err != nil {
			return err
		}
	}
	return nil
}

// removePending notes what the removal of an instance answers that is listed as Pending, if it is before its activity ends.
func (e *trial) removePending(ctx context.Context, activity string, found facts) error {
	_, err := e.untilEvery(ctx, time.Second, activityTakes, func() (bool, error) {
		listed, err := e.ofActivity(ctx, activity)
		if err != nil {
			return true, err
		}
		for _, i := range listed {
			if state := i.text("LifecycleState"); state == "Pending" || state == "Pending:Wait" {
				_, err := e.remove(ctx, []string{i.text("InstanceId")}, nil)
				_, err = e.noteWhile(ctx, activity, found, "of a Pending one", err)
				return true, err
			}
		}
		now, err := e.activity(ctx, activity)
		return now != nil && now.text("StatusCode") != "InProgress", err
	})
	return err
}
