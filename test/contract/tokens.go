package main

import (
	"context"
	"strings"

	"github.com/google/uuid"
)

const idempotence = "“How to ensure idempotence” of Auto Scaling (alibabacloud.com/help/en/auto-scaling/developer-reference/how-to-ensure-idempotence)"

func tokenQuestions() []question {
	return []question{{
		name:    "token-repeated",
		asks:    "Does the same ScaleWithAdjustment under the same ClientToken answer with the same activity while that is in progress, after its end, and ten minutes later?",
		matters: "A purchase whose reply was lost is sent again; it must not buy twice.",
		source:  idempotence + "; whether the token is looked at before the activity in progress, and for how long it is remembered, is " + guess,
		spends:  spends{instances: 2},
		rules:   []string{"forgetTokens", "slotBeforeToken"},
		believed: facts{
			"in progress": "refused with ScalingActivityInProgress", "after its end": "the same activity", "ten minutes later": "another activity",
		},
		try: tryTokenRepeated,
	}, {
		name:     "token-with-another-request",
		asks:     "Is a ClientToken refused under which something else was asked?",
		matters:  "A token that is used twice by mistake must not pass for the first request.",
		source:   idempotence + ": IdempotentParameterMismatch",
		spends:   spends{instances: 2},
		believed: facts{"another note": "refused with IdempotentParameterMismatch"},
		try:      tryTokenMismatch,
	}, {
		name:     "token-length",
		asks:     "Is a ClientToken of 65 characters refused?",
		matters:  "One that is cut off or ignored would not protect from buying twice.",
		source:   metadata + ": at most 64 ASCII characters",
		spends:   spends{instances: 1},
		believed: facts{"65 characters": "refused"},
		try: func(ctx context.Context, e *trial) (facts, error) {
			_, _, err := e.buy(ctx, 1, parameters{"ClientToken": strings.Repeat("x", 65)})
			word, err := acceptedOrRefused(err)
			return facts{"65 characters": word}, err
		},
	}, {
		name:     "removal-token-repeated",
		asks:     "Does the same RemoveInstances under the same ClientToken answer with the same activity?",
		matters:  "A removal whose reply was lost is sent again; a refusal of it must not pass for a failure.",
		source:   metadata + ": ClientToken of RemoveInstances, without a description; " + docComment,
		spends:   spends{instances: 1},
		rules:    []string{"slotBeforeToken"},
		believed: facts{"in progress": "refused with ScalingActivityInProgress", "after its end": "the same activity"},
		try:      tryRemovalTokenRepeated,
	}}
}

// sameOr names the activity that a repeated request answered with.
func sameOr(first, again string, err error) (string, error) {
	word, err := verdict(err)
	switch {
	case err != nil || word != "accepted":
		return word, err
	case again == first:
		return "the same activity", nil
	case again == "":
		return "no activity", nil
	}
	return "another activity", nil
}

func tryTokenRepeated(ctx context.Context, e *trial) (facts, error) {
	found := facts{}
	same := parameters{"ClientToken": "contract-" + uuid.NewString()}
	first, _, err := e.buy(ctx, 1, same)
	if err != nil {
		return nil, err
	}
	again := func(when string) (more bool, err error) {
		id, _, err := e.scale(ctx, 1, same) // the bound counts the two that it can be at most
		found[when], err = sameOr(first, id, err)
		bought := found[when] == "another activity" || found[when] == "no activity"
		return err == nil && !bought, err // one that bought again is enough
	}
	if more, err := again("in progress"); !more {
		return found, err
	}
	if _, err := e.end(ctx, first); err != nil {
		return found, err
	}
	if more, err := again("after its end"); !more {
		return found, err
	}
	if err := e.wait(ctx, tokenMustLive); err != nil {
		return found, err
	}
	_, err = again("ten minutes later")
	return found, err
}

func tryTokenMismatch(ctx context.Context, e *trial) (facts, error) {
	token := "contract-" + uuid.NewString()
	id, _, err := e.buy(ctx, 1, parameters{"ClientToken": token})
	if err != nil {
		return nil, err
	}
	if _, err := e.end(ctx, id); err != nil { // else the activity in progress may be why it is refused
		return nil, err
	}
	_, _, err = e.buy(ctx, 1, parameters{"ClientToken": token, "ActivityMetadata": `{"another":"note"}`})
	word, err := verdict(err)
	return facts{"another note": word}, err
}

func tryRemovalTokenRepeated(ctx context.Context, e *trial) (facts, error) {
	id, err := e.bought(ctx)
	if err != nil {
		return nil, err
	}
	same := parameters{"ClientToken": "contract-" + uuid.NewString()}
	first, err := e.remove(ctx, []string{id}, same)
	if err != nil {
		return nil, err
	}
	found := facts{}
	again, err := e.remove(ctx, []string{id}, same)
	if found["in progress"], err = sameOr(first, again, err); err != nil {
		return found, err
	}
	if _, err := e.end(ctx, first); err != nil {
		return found, err
	}
	again, err = e.remove(ctx, []string{id}, same)
	found["after its end"], err = sameOr(first, again, err)
	return found, err
}
