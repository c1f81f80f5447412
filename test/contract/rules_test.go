package main

import (
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/test/alisim/temper"
)

// TestEveryRuleShowsInAnAnswer puts one rule of the simulator right after the other: where no answer would change, nobody
// with an account could tell that the rule is wrong.
func TestEveryRuleShowsInAnAnswer(t *testing.T) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[temper.Rules]()) {
		rule := field.Tag.Get("json")
		asked := slices.DeleteFunc(questions(), func(q question) bool { return !slices.Contains(q.rules, rule) })
		if len(asked) == 0 {
			continue // see TestEveryRuleOfTheTemperIsAskedAbout
		}
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			other := strict()
			value := reflect.ValueOf(&other).Elem().FieldByIndex(field.Index)
			if value.IsZero() { // kind in the strict temper already
				value.Set(reflect.ValueOf(temper.Rules{Targeting: temper.TargetingIgnored, BuysPlans: true}).FieldByIndex(field.Index))
			} else {
				value.SetZero()
			}
			var before []string
			for _, q := range asked {
				before = append(before, q.believed.String()) // see TestSimulatorAnswersAsIsBelieved
			}
			if rule == "pendingStay" { // no two activities at a time, no removal of what is Pending
				kinder := strict()
				kinder.OneAtATime, other.OneAtATime = false, false
				before = answersUnder(t, kinder, asked)
			}
			assert.NotEqual(t, before, answersUnder(t, other, asked))
		})
	}
}

func answersUnder(t *testing.T, rules temper.Rules, asked []question) []string {
	t.Helper()
	w := newWorld()
	w.Temper = rules
	s, err := simulate(t.Context(), w)
	require.NoError(t, err)
	defer s.stop()
	if !asked[0].spends.anything() {
		require.NoError(t, s.furnish(t.Context()))
	}
	var answers []string
	for n, got := range askAll(t.Context(), s.account, asked, true) {
		assert.Empty(t, got.Error, asked[n].name)
		answers = append(answers, got.String())
	}
	return answers
}
