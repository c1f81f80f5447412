package main

import (
	"context"
	"errors"
	"strings"
	"time"
)

func removalQuestions() []question {
	return []question{{
		name:    "departure",
		asks:    "How is an instance listed while it is removed, and when is it gone from the group and from ECS after the activity's end?",
		matters: "What is still listed a minute after the end counts again, and a Node is deleted only once ECS lists its instance no more.",
		source:  essPages + ", “Scaling activity process”; the lag is " + guess,
		spends:  spends{instances: 1},
		rules:   []string{"listLags"},
		believed: facts{
			"state while it goes": "Removing", "the activity ended as": "Successful", "gone from the group": "within a minute",
			"gone from ECS": "within a minute",
		},
		try: tryDeparture,
	}, {
		name:     "stop-timeout",
		asks:     "Does RemoveInstances take a StopInstanceTimeout of 30 seconds, and refuse one of 29?",
		matters:  "Without it the removal waits for an instance that does not stop, and takes everything back in the end.",
		source:   docComment + " and " + metadata + ": 30 to 240 seconds",
		spends:   spends{instances: 1},
		believed: facts{"29 seconds": "refused", "30 seconds": "accepted"},
		try:      tryStopTimeout,
	}, {
		name:    "invalid-among-valid",
		asks:    "How does a removal with IgnoreInvalidInstance end that names an instance which is not in the group beside one that is?",
		matters: "It must not pass for a failure of the one that went.",
		source:  docComment + ": the valid ones are removed, and the activity ends as Warning",
		spends:  spends{instances: 1},
		rules:   []string{"warnOfInvalid"},
		believed: facts{
			"request": "accepted", "the activity ended as": "Warning", "the valid one": "gone", "the invalid one is named in": "Detail",
		},
		try: tryInvalidAmongValid,
	}, {
		name:     "only-invalid",
		asks:     "What does a removal with IgnoreInvalidInstance answer that names only an instance which is not in the group?",
		matters:  "An instance that went by itself must not be removed for ever.",
		source:   essPages + ": InvalidInstanceId.NotFound (404) on the page of RemoveInstances; IgnoreInvalidInstance says nothing of this",
		spends:   spends{instances: 1},
		believed: facts{"request": "refused with InvalidInstanceId.NotFound"},
		try: func(ctx context.Context, e *trial) (facts, error) {
			_, err := e.remove(ctx, strange("i-", 1), nil)
			word, err := verdict(err)
			return facts{"request": word}, err
		},
	}, {
		name:     "removed-twice",
		asks:     "What does a second removal of an instance answer, under another token, while the first is in progress?",
		matters:  "After a restart the autoscaler removes again what it may have removed already.",
		source:   oneActivity,
		spends:   spends{instances: 1},
		rules:    []string{"oneAtATime"},
		believed: facts{"second removal": "refused with ScalingActivityInProgress"},
		try:      tryRemovedTwice,
	}}
}

func tryDeparture(ctx context.Context, e *trial) (facts, error) {
	id, err := e.bought(ctx)
	if err != nil {
		return nil, err
	}
	activityID, err := e.remove(ctx, []string{id}, nil)
	if err != nil {
		return nil, err
	}
	found := facts{}
	var ended object
	if _, err := e.until(ctx, activityTakes, func() (bool, error) {
		if ended, err = e.activity(ctx, activityID); err != nil || ended != nil && ended.text("StatusCode") != "InProgress" {
			return true, err
		}
		i, err := e.member(ctx, e.group, id)
		if i != nil {
			found["state while it goes"] = i.text("LifecycleState")
		}
		return false, err
	}); err != nil {
		return found, err
	}
	found["the activity ended as"] = ended.text("StatusCode")
	took, err := e.until(ctx, 10*time.Minute, func() (bool, error) {
		i, err := e.member(ctx, e.group, id)
		return i == nil, err
	})
	if err != nil {
		return found, err
	}
	found["gone from the group"] = within(took)
	more, err := e.until(ctx, 10*time.Minute, func() (bool, error) {
		vm, err := e.vm(ctx, id)
		return vm == nil, err
	})
	found["gone from ECS"] = within(took + more)
	return found, err
}

func tryStopTimeout(ctx context.Context, e *trial) (facts, error) {
	id, err := e.bought(ctx)
	if err != nil {
		return nil, err
	}
	_, err = e.remove(ctx, []string{id}, parameters{"StopInstanceTimeout": "29"})
	word, err := acceptedOrRefused(err)
	found := facts{"29 seconds": word}
	if err != nil || word == "accepted" {
		return found, err
	}
	_, err = e.remove(ctx, []string{id}, parameters{"StopInstanceTimeout": "30"})
	found["30 seconds"], err = acceptedOrRefused(err)
	return found, err
}

func tryInvalidAmongValid(ctx context.Context, e *trial) (facts, error) {
	id, err := e.bought(ctx)
	if err != nil {
		return nil, err
	}
	invalid := strange("i-", 1)[0]
	activityID, err := e.remove(ctx, []string{id, invalid}, nil)
	word, err := verdict(err)
	found := facts{"request": word}
	if err != nil || word != "accepted" {
		return found, err
	}
	ended, err := e.end(ctx, activityID)
	if err != nil {
		return found, err
	}
	found["the activity ended as"] = ended.text("StatusCode")
	found["the invalid one is named in"] = fieldNaming(ended, invalid)
	found["the valid one"], err = e.whereabouts(ctx, id)
	return found, err
}

// whereabouts waits a while for an instance to be gone from its group, and returns the state in which it is if it is not.
func (e *trial) whereabouts(ctx context.Context, id string) (string, error) {
	state := "gone"
	_, err := e.until(ctx, 2*time.Minute, func() (bool, error) {
		i, err := e.member(ctx, e.group, id)
		if state = "gone"; i != nil {
			state = i.text("LifecycleState")
		}
		return i == nil, err
	})
	if errors.Is(err, errTooLate) {
		err = nil
	}
	return state, err
}

// fieldNaming returns the first field of an activity that has a text in it.
func fieldNaming(activity object, text string) string {
	for _, field := range []string{"ErrorMessages", "ErrorMessage", "Detail", "StatusMessage", "Description", "Cause"} {
		if strings.Contains(activity.text(field), text) {
			return field
		}
	}
	return "none"
}

func tryRemovedTwice(ctx context.Context, e *trial) (facts, error) {
	id, err := e.bought(ctx)
	if err != nil {
		return nil, err
	}
	first, err := e.remove(ctx, []string{id}, nil)
	if err != nil {
		return nil, err
	}
	found := facts{}
	_, err = e.remove(ctx, []string{id}, nil)
	_, err = e.noteWhile(ctx, first, found, "second removal", err)
	return found, err
}
