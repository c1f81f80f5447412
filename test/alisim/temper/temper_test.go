package temper

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestATemperIsReadByNameOrWithOverrides(t *testing.T) {
	parallel := Strict()
	parallel.OneAtATime, parallel.LockReason = false, "Recycling"
	for text, want := range map[string]Rules{
		`"strict"`:  Strict(),
		`"lenient"`: Lenient(),
		`{"base": "strict", "oneAtATime": false, "lockReason": "Recycling"}`: parallel,
		`{"base": "lenient", "buysPlans": true}`:                             {Base: LenientBase, BuysPlans: true},
	} {
		t.Run(text, func(t *testing.T) {
			var got Rules
			require.NoError(t, json.Unmarshal([]byte(text), &got))
			assert.Equal(t, want, got)
			assert.NoError(t, got.Validate())
			out, err := json.Marshal(got)
			require.NoError(t, err)
			var again Rules
			require.NoError(t, json.Unmarshal(out, &again))
			assert.Equal(t, got, again, "what is written is read")
		})
	}
}

func TestAMistypedTemperIsRefused(t *testing.T) {
	for name, test := range map[string]struct{ text, culprit string }{
		"unknown name":       {`"angry"`, "angry"},
		"unknown base":       {`{"base": "angry"}`, "angry"},
		"unknown rule":       {`{"base": "strict", "oneAtaTime2": true}`, "oneAtaTime2"},
		"neither":            {`7`, "temper"},
		"rule of other kind": {`{"base": "strict", "loseNoteOf": "often"}`, "loseNoteOf"},
	} {
		t.Run(name, func(t *testing.T) {
			var got Rules
			assert.ErrorContains(t, json.Unmarshal([]byte(test.text), &got), test.culprit)
		})
	}
	for name, rules := range map[string]Rules{
		"rollBack": {Base: StrictBase, RollBack: "most"}, "targeting": {Base: StrictBase, Targeting: "perhaps"},
		"hangOneIn": {Base: StrictBase, HangOneIn: -1}, "base": {OneAtATime: true},
	} {
		assert.ErrorContains(t, rules.Validate(), name)
	}
}

// A cloud that is wrong about its stock is for the tests of that: in the others it would be chance which offering is bought.
func TestStrictHoldsEveryRuleButOnesThatAreAnotherRoad(t *testing.T) {
	strict := reflect.ValueOf(Strict())
	for i := range strict.NumField() {
		name := strict.Type().Field(i).Name
		other := slices.Contains([]string{"Targeting", "BuysPlans", "WrongStockPercent"}, name)
		assert.Equal(t, other, strict.Field(i).IsZero(), name)
	}
}
