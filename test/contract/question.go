package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// question is one belief about Alibaba's APIs on which the product depends, and how to ask whether it holds.
type question struct {
	// name never changes: reports are compared by it.
	name string
	// asks is what is asked, in one sentence.
	asks string
	// matters is what hangs on the answer, in one sentence.
	matters string
	// source is where the belief comes from.
	source string
	// spends says what asking may buy. The zero value reads only.
	spends spends
	// rules are those of the simulator's temper that the answer depends on, as temper.Rules names them.
	rules []string
	// believed is what the simulator answers in its strict temper.
	believed facts
	// ask asks by reading, try by buying; a question has one of them.
	ask func(ctx context.Context, a *account) (facts, error)
	try func(ctx context.Context, e *trial) (facts, error)
}

// spends is what a question may do beyond reading.
type spends struct {
	// instances is how many it has at most at any moment; all are given back. 0 means that it reads only.
	instances int
	// desired says that it needs a group with a desired capacity.
	desired bool
}

func (s spends) anything() bool { return s.instances > 0 }

func (s spends) String() string {
	switch {
	case !s.anything():
		return "–"
	case s.instances == 1:
		return "1 instance"
	}
	return fmt.Sprintf("%d instances", s.instances)
}

// facts are an answer: short words by the name of what they are about. Two answers are compared fact by fact; one that
// only one side could find out is no difference.
type facts map[string]string

func (f facts) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(f)) {
		parts = append(parts, name+": "+f[name])
	}
	return strings.Join(parts, "; ")
}

// yesNo is the word for a fact that holds or does not.
func yesNo(holds bool) string {
	if holds {
		return "yes"
	}
	return "no"
}

// unknowable says that this account has nothing to learn the answer from, and why.
type unknowable struct{ because string }

func (u unknowable) Error() string { return u.because }

func cannotTell(format string, args ...any) error {
	return unknowable{fmt.Sprintf(format, args...)}
}

// answer is what came of asking one question.
type answer struct {
	Facts facts `json:"facts,omitempty"`
	// Unknown says why there are no facts: the account has nothing to learn them from, or the question would spend.
	Unknown string `json:"unknown,omitempty"`
	// Error is why asking failed.
	Error string `json:"error,omitempty"`
}

func answerOf(found facts, err error) answer {
	var nothing unknowable
	switch {
	case errors.As(err, &nothing):
		return answer{Facts: found, Unknown: nothing.because}
	case err != nil:
		return answer{Facts: found, Error: err.Error()}
	}
	return answer{Facts: found}
}

func (a answer) String() string {
	switch {
	case a.Error != "":
		return "failed: " + a.Error
	case len(a.Facts) > 0:
		return a.Facts.String()
	case a.Unknown != "":
		return "not known: " + a.Unknown
	}
	return "no answer"
}

// questions is the one list of them, in the order in which they are asked: those about what has happened come last.
func questions() []question {
	return slices.Concat(
		listingQuestions(), fieldQuestions(), vmQuestions(), marketQuestions(), nodeQuestions(),
		purchaseQuestions(), tokenQuestions(), slotQuestions(), removalQuestions(), stateQuestions(), desiredQuestions(),
		historyQuestions(),
	)
}
