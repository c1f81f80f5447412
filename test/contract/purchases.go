package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
)

func purchaseQuestions() []question {
	return []question{{
		name:    "plan-only",
		asks:    "Does ScaleWithAdjustment with ExecutionMode=PlanOnly answer with a plan, in which the type and zone asked for are kept, and buy nothing?",
		matters: "It tells for nothing whether targeting is honoured; where it is not known it buys.",
		source:  docComment + "; ExecutionMode is in " + metadata + " without a description, and not in " + goSDK,
		spends:  spends{instances: 1},
		rules:   []string{"buysPlans", "targeting"},
		believed: facts{
			"PlanOnly": "accepted", "bought": "nothing", "PlanResult": "list", "type": "as asked", "zone": "as asked", "SpotStrategy": "as asked",
			"Amount": "as asked",
		},
		try: tryPlanOnly,
	}, {
		name:    "targeting",
		asks:    "Are the instance type, the vSwitch and the spot strategy of ScaleWithAdjustment honoured?",
		matters: "Each offering is a node group of its own: what comes must be what was asked for.",
		source:  "InstanceType.N, VSwitchId.N and SpotStrategy are in " + goSDK + " and in no documentation",
		spends:  spends{instances: 1},
		rules:   []string{"targeting"},
		believed: facts{
			"request": "accepted", "type": "as asked", "zone": "as asked", "SpotStrategy": "as asked",
		},
		try: tryTargeting,
	}, {
		name:    "arrival",
		asks:    "When, in which state and with which fields are bought instances listed, before their activity ends and after?",
		matters: "What is created and not yet listed would be bought again.",
		source:  essPages + ", “ECS instance lifecycle”; the lag is " + guess,
		spends:  spends{instances: 2},
		rules:   []string{"listLags", "bareNewcomers"},
		believed: facts{
			"listed before the end": "some", "state before the end": "Pending", "type and zone before the end": "no",
			"activity before the end": "its purchase", "CreatedInstances": "named", "the activity ended as": "Successful",
			"all listed after the end": "within a minute",
		},
		try: tryArrival,
	}, {
		name:     "note-of-strings",
		asks:     "Does ActivityMetadata that holds strings come back with the activity?",
		matters:  "A new leader knows purchases under way by their notes.",
		source:   docComment + `: example {"key":"value"}`,
		spends:   spends{instances: 1},
		believed: facts{"request": "accepted", "note": "kept"},
		try: func(ctx context.Context, e *trial) (facts, error) {
			return e.note(ctx, `{"token":"a-token","type":"ecs.gn7i-c8g1.2xlarge","zone":"cn-hangzhou-j","count":"3"}`)
		},
	}, {
		name:     "note-of-other-kinds",
		asks:     "Does ActivityMetadata that holds numbers, booleans and lists come back with the activity?",
		matters:  "A note that is dropped for its kinds of values loses the purchase for a new leader.",
		source:   guess + " (the documented example has strings)",
		spends:   spends{instances: 1},
		rules:    []string{"notesHoldStrings"},
		believed: facts{"request": "accepted", "note": "dropped"},
		try: func(ctx context.Context, e *trial) (facts, error) {
			return e.note(ctx, `{"count":3,"atomic":true,"zones":["a","b"],"nested":{"count":1}}`)
		},
	}, {
		name:     "note-length",
		asks:     "How long may ActivityMetadata be?",
		matters:  "A purchase whose note is too long is refused, or loses its note.",
		source:   guess,
		spends:   spends{instances: 1},
		believed: facts{"4096 characters": "accepted", "4096 characters, note": "kept"},
		try:      tryNoteLength,
	}, {
		name:    "maximum",
		asks:    "What does ScaleWithAdjustment answer where the group is at its maximum, and do instances count that are being removed?",
		matters: "A purchase beyond the maximum must fail its offering now, not seem to be under way.",
		source:  "IncorrectCapacity.NoChange (HTTP 400) on the page of ExecuteScalingRule, " + essPages + "; seen with ACK's GOATScaler while ESS was still removing the last instance",
		spends:  spends{instances: 2},
		rules:   []string{"refuseNoChange", "oneAtATime"},
		believed: facts{
			"at the maximum": "refused with IncorrectCapacity.NoChange", "while one is being removed": "refused with ScalingActivityInProgress",
		},
		try: tryMaximum,
	}}
}

func tryPlanOnly(ctx context.Context, e *trial) (facts, error) {
	id, reply, err := e.buy(ctx, 1, parameters{"ExecutionMode": "PlanOnly"})
	word, err := verdict(err)
	found := facts{"PlanOnly": word}
	if err != nil || word != "accepted" {
		return found, err
	}
	found["bought"] = "nothing"
	if id != "" {
		found["bought"] = "an instance"
	}
	plan := reply.object("PlanResult")
	if plan == nil {
		found["PlanResult"] = "absent"
		return found, nil
	}
	found["PlanResult"], _, _ = strings.Cut(plan.kind("ResourceAllocations"), " ")
	amount := 0
	for _, part := range plan.list("ResourceAllocations") {
		amount += part.number("Amount")
		e.offer.compare(found, part)
	}
	found["Amount"] = asAsked(amount == 1)
	return found, nil
}

// compare notes whether an instance or a part of a plan is what the offer asked for.
func (o offer) compare(found facts, came object) {
	found["type"] = asAsked(came.text("InstanceType") == o.instanceType)
	found["zone"] = asAsked(came.text("ZoneId") == o.zone)
	if o.strategy != "" {
		found["SpotStrategy"] = asAsked(came.text("SpotStrategy") == o.strategy)
	}
}

func asAsked(yes bool) string {
	if yes {
		return "as asked"
	}
	return "another"
}

func tryTargeting(ctx context.Context, e *trial) (facts, error) {
	id, _, err := e.buy(ctx, 1, nil)
	word, err := verdict(err)
	found := facts{"request": word}
	if word != "accepted" {
		e.untargeted = true // for all that follows
		return found, err
	}
	if _, err := e.end(ctx, id); err != nil {
		return found, err
	}
	instances, err := e.serving(ctx, id, 1)
	if err != nil {
		return found, cannotTell("the purchase brought nothing: %v", err)
	}
	came, err := e.member(ctx, e.group, instances[0])
	if err != nil || came == nil {
		return found, err
	}
	e.offer.compare(found, came)
	return found, nil
}

func tryArrival(ctx context.Context, e *trial) (facts, error) {
	const count = 2
	found := facts{"listed before the end": "none"}
	id, _, err := e.buy(ctx, count, nil)
	if err != nil {
		return nil, err
	}
	var ended object
	if _, err := e.untilEvery(ctx, time.Second, activityTakes, func() (bool, error) {
		listed, err := e.ofActivity(ctx, id)
		if err != nil {
			return true, err
		}
		// Asked after the listing, so that what was listed was so before the end.
		if ended, err = e.activity(ctx, id); err != nil || ended != nil && ended.text("StatusCode") != "InProgress" {
			return true, err
		}
		noteArrival(listed, count, found)
		return false, nil
	}); err != nil {
		return found, err
	}
	found["the activity ended as"] = ended.text("StatusCode")
	created := ended.texts("CreatedInstances")
	found["CreatedInstances"] = "absent"
	if len(created) > 0 {
		found["CreatedInstances"] = "named"
	}
	took, err := e.until(ctx, activityTakes, func() (bool, error) {
		listed, err := e.ofActivity(ctx, id)
		return len(listed) == count, err
	})
	if errors.Is(err, errTooLate) {
		return found, cannotTell("the purchase did not bring %d instances", count)
	}
	found["all listed after the end"] = within(took)
	return found, err
}

// noteArrival notes how instances are listed whose activity has not ended.
func noteArrival(listed []object, count int, found facts) {
	if len(listed) == 0 {
		return
	}
	i := listed[0]
	found["listed before the end"], found["activity before the end"] = "some", "its purchase"
	if len(listed) == count {
		found["listed before the end"] = "all"
	}
	if _, known := found["state before the end"]; !known {
		found["state before the end"] = i.text("LifecycleState")
	}
	found["type and zone before the end"] = yesNo(i.text("InstanceType") != "" && i.text("ZoneId") != "")
}

func (e *trial) ofActivity(ctx context.Context, id string) ([]object, error) {
	members, err := e.members(ctx, e.group)
	var found []object
	for _, i := range members {
		if i.text("ScalingActivityId") == id {
			found = append(found, i)
		}
	}
	return found, err
}

// within names how long something took, so that two clouds can be compared.
func within(took time.Duration) string {
	switch {
	case took < time.Minute:
		return "within a minute"
	case took < 5*time.Minute:
		return "within five minutes"
	}
	return "later"
}

// note buys an instance with a note and says what became of it.
func (e *trial) note(ctx context.Context, text string) (facts, error) {
	id, _, err := e.buy(ctx, 1, parameters{"ActivityMetadata": text})
	word, err := verdict(err)
	found := facts{"request": word}
	if err != nil || word != "accepted" {
		return found, err
	}
	ended, err := e.end(ctx, id)
	if err != nil {
		return found, err
	}
	found["note"] = noteOutcome(text, ended.text("ActivityMetadata"))
	return found, nil
}

// noteOutcome returns what ESS did with a note: kept, changed or dropped. The note is read as JSON, so that only its meaning counts.
func noteOutcome(sent, kept string) string {
	var before, after map[string]any
	if err := errors.Join(json.Unmarshal([]byte(sent), &before), json.Unmarshal([]byte(kept), &after)); err != nil || len(after) == 0 {
		return "dropped"
	}
	if !reflect.DeepEqual(before, after) {
		return "changed"
	}
	return "kept"
}

func tryNoteLength(ctx context.Context, e *trial) (facts, error) {
	found := facts{}
	for _, length := range []int{4096, 2048, 1024, 512} {
		note := fmt.Sprintf(`{"note":%q}`, strings.Repeat("x", length-len(`{"note":""}`)))
		kept, err := e.note(ctx, note)
		if err != nil {
			return found, err
		}
		name := fmt.Sprintf("%d characters", length)
		if found[name] = kept["request"]; kept["request"] == "accepted" {
			found[name+", note"] = kept["note"]
			return found, nil
		}
	}
	return found, nil
}

func tryMaximum(ctx context.Context, e *trial) (facts, error) {
	limits, err := e.describeGroup(ctx, e.group)
	if err != nil {
		return nil, err
	}
	ids, err := e.boughtSome(ctx, limits.number("MaxSize"))
	if err != nil {
		return nil, err
	}
	found := facts{}
	id, err := e.buyBeyond(ctx)
	if found["at the maximum"], err = verdict(err); err != nil {
		return found, err
	}
	if id != "" {
		ended, err := e.end(ctx, id)
		if err != nil {
			return found, err
		}
		found["at the maximum"] = "accepted, and ended as " + ended.text("StatusCode")
	}
	removal, err := e.remove(ctx, ids[:1], nil)
	if err != nil {
		return found, err
	}
	_, err = e.buyBeyond(ctx)
	_, err = e.noteWhile(ctx, removal, found, "while one is being removed", err)
	return found, err
}
