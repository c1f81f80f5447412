package main

import (
	"context"
	"errors"
	"time"
)

const expected = "“Expected number of instances” (alibabacloud.com/help/doc-detail/146231.htm)"

func desiredQuestions() []question {
	return []question{{
		name:    "desired-without-sync",
		asks:    "What does ScaleWithAdjustment answer in a group with a desired capacity, without SyncActivity?",
		matters: "A purchase that is answered without an activity must be counted exactly once.",
		source:  metadata + " and " + docComment + ": it changes the desired capacity only, and says ActivityType=CapacityChange",
		spends:  spends{instances: 1, desired: true},
		rules:   []string{"expectation"},
		believed: facts{
			"request": "accepted", "ActivityType": "CapacityChange", "activity": "none", "desired capacity": "1",
			"bought by another activity": "yes", "its note": "none",
		},
		try: tryDesiredWithoutSync,
	}, {
		name:    "desired-with-sync",
		asks:    "What does ScaleWithAdjustment answer in a group with a desired capacity, with SyncActivity=true?",
		matters: "Only an activity of its own tells what became of a purchase.",
		source:  metadata + " and " + docComment + ": the scaling activity is triggered at once",
		spends:  spends{instances: 1, desired: true},
		rules:   []string{"expectation"},
		believed: facts{
			"request": "accepted", "ActivityType": "absent", "activity": "named", "desired capacity": "1", "note": "kept",
		},
		try: tryDesiredWithSync,
	}, {
		name:    "desired-twice",
		asks:    "Do two purchases in a row, each of one instance, make two where the first is not yet stable, with SyncActivity and without?",
		matters: "The second would overwrite the first: one instance would come where two pods wait.",
		source:  expected + ": the new number is that of the stable instances and the change",
		spends:  spends{instances: 2, desired: true},
		rules:   []string{"expectation", "oneAtATime"},
		believed: facts{
			"without SyncActivity": "accepted", "desired capacity without": "1",
			"with SyncActivity": "refused with ScalingActivityInProgress", "desired capacity with": "1",
		},
		try: tryDesiredTwice,
	}, {
		name:     "desired-removal-of-pending",
		asks:     "Can an instance be removed that is still Pending, in a group where activities may run side by side?",
		matters:  "What nobody waits for any more is given back as soon as that is allowed, not when it costs money already.",
		source:   "cloudpilot-ai/karpenter-provider-alibabacloud refuses to remove Pending instances because the API does; IncorrectInstanceStatus in aliyun/terraform-provider-alicloud; " + expected,
		spends:   spends{instances: 1, desired: true},
		rules:    []string{"pendingStay", "oneAtATime"},
		believed: facts{"of a Pending one": "refused with ScalingActivityInProgress"},
		try:      tryDesiredRemovalOfPending,
	}, {
		name:     "desired-removal",
		asks:     "Does RemoveInstances lower the desired capacity, so that nothing is bought in place of what went?",
		matters:  "Else every node that is given back is bought again.",
		source:   metadata + ": DecreaseDesiredCapacity, true by default",
		spends:   spends{instances: 1, desired: true},
		believed: facts{"desired capacity after it": "0", "bought again": "no"},
		try:      tryDesiredRemoval,
	}}
}

func (e *trial) desiredCapacity(ctx context.Context) (string, error) {
	g, err := e.describeGroup(ctx, e.group)
	return g.text("DesiredCapacity"), err
}

func orAbsent(text string) string {
	if text == "" {
		return "absent"
	}
	return text
}

func tryDesiredWithoutSync(ctx context.Context, e *trial) (facts, error) {
	id, reply, err := e.buy(ctx, 1, parameters{"ActivityMetadata": `{"a":"note"}`})
	word, err := verdict(err)
	found := facts{"request": word}
	if err != nil || word != "accepted" {
		return found, err
	}
	found["ActivityType"], found["activity"] = orAbsent(reply.text("ActivityType")), "named"
	if id == "" {
		found["activity"] = "none"
	}
	if found["desired capacity"], err = e.desiredCapacity(ctx); err != nil {
		return found, err
	}
	var came []object
	_, err = e.until(ctx, activityTakes, func() (bool, error) {
		came, err = e.members(ctx, e.group)
		return len(came) > 0, err
	})
	if errors.Is(err, errTooLate) {
		return found, nil
	} else if err != nil {
		return found, err
	}
	by := came[0].text("ScalingActivityId")
	if found["bought by another activity"] = yesNo(by != id); by == id {
		return found, nil
	}
	other, err := e.activity(ctx, by)
	if found["its note"] = "kept"; other.text("ActivityMetadata") == "" {
		found["its note"] = "none"
	}
	return found, err
}

func tryDesiredWithSync(ctx context.Context, e *trial) (facts, error) {
	const note = `{"a":"note"}`
	id, reply, err := e.buy(ctx, 1, parameters{"SyncActivity": "true", "ActivityMetadata": note})
	word, err := verdict(err)
	found := facts{"request": word}
	if err != nil || word != "accepted" {
		return found, err
	}
	found["ActivityType"], found["activity"] = orAbsent(reply.text("ActivityType")), "named"
	if found["desired capacity"], err = e.desiredCapacity(ctx); err != nil {
		return found, err
	}
	if id == "" {
		found["activity"] = "none"
		return found, nil
	}
	ended, err := e.end(ctx, id)
	if err != nil {
		return found, err
	}
	if found["note"] = "kept"; ended.text("ActivityMetadata") != note {
		found["note"] = "dropped"
	}
	return found, nil
}

func tryDesiredTwice(ctx context.Context, e *trial) (facts, error) {
	found := facts{}
	for _, how := range []string{"without", "with"} {
		var p parameters
		if how == "with" {
			p = parameters{"SyncActivity": "true"}
		}
		if _, _, err := e.buy(ctx, 1, p); err != nil {
			return found, err
		}
		_, _, err := e.buy(ctx, 1, p)
		if found[how+" SyncActivity"], err = verdict(err); err != nil {
			return found, err
		}
		if found["desired capacity "+how], err = e.desiredCapacity(ctx); err != nil {
			return found, err
		}
		if err := e.giveBackAll(ctx); err != nil {
			return found, err
		}
	}
	return found, nil
}

func tryDesiredRemovalOfPending(ctx context.Context, e *trial) (facts, error) {
	found := facts{}
	return found, e.untilPending(ctx, parameters{"SyncActivity": "true"}, found)
}

func tryDesiredRemoval(ctx context.Context, e *trial) (facts, error) {
	id, _, err := e.buy(ctx, 1, parameters{"SyncActivity": "true"})
	if err != nil {
		return nil, err
	}
	if id == "" {
		return nil, cannotTell("the purchase answered without an activity")
	}
	if _, err := e.end(ctx, id); err != nil {
		return nil, err
	}
	serving, err := e.serving(ctx, id, 1)
	if err != nil {
		return nil, cannotTell("the purchase brought nothing: %v", err)
	}
	if _, err := e.removed(ctx, serving, nil); err != nil {
		return nil, err
	}
	found := facts{}
	if found["desired capacity after it"], err = e.desiredCapacity(ctx); err != nil {
		return found, err
	}
	_, err = e.until(ctx, 2*time.Minute, func() (bool, error) {
		running, err := e.running(ctx, e.group)
		return len(running) > 0, err
	})
	found["bought again"] = yesNo(err == nil)
	if errors.Is(err, errTooLate) {
		err = nil
	}
	return found, err
}
