package market

import (
	"errors"
	"math/rand"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/state"
)

// expects enters the strength of the offering at a time.
func expects(m *Memory, o pricing.Offering, strength alicloud.Strength, after time.Duration) {
	m.Observe(nil, at(after))
	m.NoteStrengths(map[pricing.Offering]alicloud.Strength{o: strength}, true, at(after))
}

// newcomer is an offering of which nothing is known, in no zone and of no type of the others.
var newcomer = pricing.Offering{InstanceType: "l20", Zone: "z", Spot: true}

func TestAStrengthChangesNothingUntilPurchasesHaveTaughtWhatItMeans(t *testing.T) {
	for _, category := range append([]alicloud.StockCategory{""}, alicloud.StockCategories...) {
		m, silent := NewMemory(), NewMemory()
		for _, each := range []*Memory{m, silent} {
			if category != "" {
				says(each, other, category, time.Hour)
				buy(each, other, 7, 3)
				says(each, here, category, time.Hour)
			}
		}
		for _, strength := range alicloud.Strengths {
			expects(m, here, strength, time.Hour)
			silent.Observe(nil, at(time.Hour))
			assert.InDelta(t, silent.Of(here).Refusal, m.Of(here).Refusal, 1e-9, "%s of %q", strength, category)
		}
	}
}

func TestWhatAStrengthMeansBesideACategoryIsLearnt(t *testing.T) {
	m := NewMemory()
	teach := func(strength alicloud.Strength, refused int) {
		says(m, here, alicloud.WithStock, time.Hour)
		expects(m, here, strength, time.Hour)
		buy(m, here, 50, refused)
	}
	teach(alicloud.Strong, 0)
	teach(alicloud.Weak, 45)
	refusal := func(strength alicloud.Strength) float64 {
		says(m, newcomer, alicloud.WithStock, time.Hour)
		expects(m, newcomer, strength, time.Hour)
		return m.Of(newcomer).Refusal
	}
	assert.Less(t, refusal(alicloud.Strong), .15)
	assert.Greater(t, refusal(alicloud.Weak), .75)
	assert.InDelta(t, m.stock.refusalIn(hint{category: alicloud.WithStock}), m.stock.refusalIn(hint{alicloud.WithStock, alicloud.Medium}), 1e-9, "nothing was bought there")
	assert.Equal(t, .85, m.stock.refusalIn(hint{category: alicloud.WithoutStock}), "the other categories are what they were")
}

func TestAStrengthIsLearntWhereNothingIsSaidOfTheCategory(t *testing.T) {
	m := NewMemory()
	expects(m, here, alicloud.Weak, time.Hour)
	buy(m, here, 50, 40)
	expects(m, newcomer, alicloud.Weak, time.Hour)
	assert.Greater(t, m.Of(newcomer).Refusal, .6)
	expects(m, newcomer, alicloud.Strong, time.Hour)
	assert.InDelta(t, NewMemory().Of(newcomer).Refusal, m.Of(newcomer).Refusal, 1e-9)
	expects(m, newcomer, alicloud.Weak, 2*time.Hour)
	m.Observe(nil, at(2*time.Hour+stockFresh+time.Minute))
	assert.InDelta(t, NewMemory().Of(newcomer).Refusal, m.Of(newcomer).Refusal, 1e-9, "it was said too long ago")
}

// Both are wrong in some cases, each in its own, and purchases are made whatever is said.
func TestTwoThatAreOftenWrongAreTogetherRightMoreOftenThanOne(t *testing.T) {
	m, random := NewMemory(), rand.New(rand.NewSource(1))
	for n := range 4000 {
		isUp, category, strength := random.Intn(2) == 0, alicloud.WithoutStock, alicloud.Weak
		if isUp != (random.Float64() < .2) {
			category = alicloud.WithStock
		}
		if isUp != (random.Float64() < .2) {
			strength = alicloud.Strong
		}
		says(m, here, category, time.Duration(n)*8*time.Minute)
		expects(m, here, strength, time.Duration(n)*8*time.Minute)
		refused := 1
		if isUp {
			refused = 0
		}
		buy(m, here, 1, refused)
	}
	assert.InDelta(t, .2, m.stock.refusalIn(hint{category: alicloud.WithStock}), .05)
	assert.InDelta(t, .06, m.stock.refusalIn(hint{alicloud.WithStock, alicloud.Strong}), .05)
	assert.InDelta(t, .5, m.stock.refusalIn(hint{alicloud.WithStock, alicloud.Weak}), .1)
	assert.InDelta(t, .94, m.stock.refusalIn(hint{alicloud.WithoutStock, alicloud.Weak}), .05)
}

func TestAStrengthThatChangesMakesNobodyForgetARefusal(t *testing.T) {
	m, without := NewMemory(), NewMemory()
	for _, each := range []*Memory{m, without} {
		says(each, there, alicloud.ClosedWithStock, time.Minute)
		expects(each, there, alicloud.Strong, time.Minute)
		buy(each, there, 200, 0) // it is better than nothing said
	}
	says(m, here, alicloud.ClosedWithStock, time.Hour)
	expects(m, here, alicloud.Medium, time.Hour)
	without.Observe(nil, at(time.Hour))
	buy(m, here, 5, 5)
	buy(without, here, 5, 5)
	for minute := 8; minute <= 32; minute += 8 {
		now := time.Hour + time.Duration(minute)*time.Minute
		says(m, here, alicloud.ClosedWithStock, now)
		expects(m, here, alicloud.Strong, now)
		without.Observe(nil, at(now))
	}
	assert.InDelta(t, without.Of(here).Refusal, m.Of(here).Refusal, .01)
	assert.False(t, m.Present([]pricing.Offering{here}, at(time.Hour+32*time.Minute)).AnyUp(), "ECS says the same as before")
	says(m, here, alicloud.WithStock, time.Hour+40*time.Minute)
	says(m, here, alicloud.WithStock, time.Hour+48*time.Minute)
	assert.True(t, m.Present([]pricing.Offering{here}, at(time.Hour+48*time.Minute)).AnyUp(), "it is said to be back")
}

func TestARefusalOutranksAStrengthBesideNoCategory(t *testing.T) {
	m, without := NewMemory(), NewMemory()
	for _, each := range []*Memory{m, without} {
		expects(each, there, alicloud.Strong, time.Minute)
		buy(each, there, 200, 0)
	}
	expects(m, here, alicloud.Strong, time.Hour)
	without.Observe(nil, at(time.Hour))
	require.Less(t, m.Of(here).Refusal, without.Of(here).Refusal)
	buy(m, here, 5, 5)
	buy(without, here, 5, 5)
	assert.InDelta(t, without.Of(here).Refusal, m.Of(here).Refusal, .01)
}

func TestAStrengthThatChangesIsNoReturnAndNoLossInTheHistory(t *testing.T) {
	m := NewMemory()
	for _, strength := range []alicloud.Strength{alicloud.Weak, alicloud.Medium} {
		says(m, there, alicloud.WithStock, time.Minute)
		expects(m, there, strength, time.Minute)
		buy(m, there, 100, 95)
	}
	expects(m, there, alicloud.Strong, time.Minute)
	buy(m, there, 900, 0) // the category is good
	for n, strength := range []alicloud.Strength{alicloud.Weak, alicloud.Weak, alicloud.Medium, alicloud.Medium} {
		now := time.Hour + time.Duration(n)*8*time.Minute
		expects(m, newcomer, strength, now)
		says(m, newcomer, alicloud.WithStock, now)
	}
	assert.Len(t, m.past.runs[place{newcomer.InstanceType, newcomer.Zone}], 1)
}

func TestWhileAPoolDoesNotAnswerAWeakerStrengthOfAnotherSaysNothing(t *testing.T) {
	m := NewMemory()
	strength := func() alicloud.Strength { return m.stock.said[place{here.InstanceType, here.Zone}].Strength }
	note := func(strength alicloud.Strength, isWhole bool, after time.Duration) {
		m.NoteStrengths(map[pricing.Offering]alicloud.Strength{here: strength}, isWhole, at(after))
	}
	note(alicloud.Medium, false, 0)
	assert.Equal(t, alicloud.Medium, strength(), "nothing was said before")
	note(alicloud.Weak, false, 8*time.Minute)
	assert.Equal(t, alicloud.Medium, strength())
	note(alicloud.Strong, false, 16*time.Minute)
	assert.Equal(t, alicloud.Strong, strength())
	note(alicloud.Weak, true, 24*time.Minute)
	assert.Equal(t, alicloud.Weak, strength())
	note(alicloud.Strong, true, 32*time.Minute)
	note(alicloud.Weak, false, 32*time.Minute+stockFresh+time.Second)
	assert.Equal(t, alicloud.Weak, strength(), "it is too long ago that it was strong")
}

func TestAStrengthAloneIsNotSeenInTheHistory(t *testing.T) {
	m := NewMemory()
	expects(m, here, alicloud.Weak, time.Hour)
	expects(m, here, alicloud.Weak, time.Hour+8*time.Minute)
	assert.False(t, m.Seen(here), "nobody knows what it means")
}

func TestStrengthsAndWhatTheyMeanSurviveARestart(t *testing.T) {
	m := NewMemory()
	says(m, here, alicloud.ClosedWithStock, time.Hour)
	expects(m, here, alicloud.Medium, time.Hour)
	buy(m, here, 30, 25)
	expects(m, there, alicloud.Medium, time.Hour)
	saved, err := m.Encode()
	require.NoError(t, err)
	restarted := NewMemory()
	require.NoError(t, restarted.Decode(saved))
	assert.Equal(t, m.stock.tried, restarted.stock.tried)
	for _, o := range []pricing.Offering{here, there} {
		assert.InDelta(t, m.Of(o).Refusal, restarted.Of(o).Refusal, 1e-9, o)
	}
}

type saidBefore struct {
	place
	Category alicloud.StockCategory `json:"category"`
	Since    int64                  `json:"since"`
	At       int64                  `json:"at"`
}

// categories is what was saved before there were strengths.
type categories struct {
	Version int       `json:"version"`
	At      time.Time `json:"at"`
	Stock   struct {
		Said  []saidBefore                          `json:"said,omitempty"`
		Tried map[alicloud.StockCategory]experience `json:"tried,omitempty"`
	} `json:"stock"`
}

func TestAStateOfBeforeThereWereStrengthsIsRead(t *testing.T) {
	old := categories{Version: memoryVersion, At: at(time.Hour)}
	old.Stock.Said = append(old.Stock.Said, saidBefore{place{here.InstanceType, here.Zone}, alicloud.WithStock, at(0).Unix(), at(time.Hour).Unix()})
	old.Stock.Tried = map[alicloud.StockCategory]experience{alicloud.WithStock: {Asked: 40, Refused: 30}}
	saved, err := state.Encode(old)
	require.NoError(t, err)
	m := NewMemory()
	require.NoError(t, m.Decode(saved))
	assert.Greater(t, m.Of(here).Refusal, .5)
	assert.Equal(t, at(0).Unix(), m.stock.said[place{here.InstanceType, here.Zone}].Since)
}

func TestAVersionBeforeThereWereStrengthsReadsTheState(t *testing.T) {
	m := NewMemory()
	says(m, here, alicloud.WithStock, time.Hour)
	expects(m, here, alicloud.Weak, time.Hour)
	buy(m, here, 40, 30)
	expects(m, other, alicloud.Weak, time.Hour)
	saved, err := m.Encode()
	require.NoError(t, err)
	var old categories
	require.NoError(t, state.Decode(saved, memoryVersion, &old))
	assert.Equal(t, experience{Asked: 40, Refused: 30}, old.Stock.Tried[alicloud.WithStock], "all purchases in the category")
	for _, each := range old.Stock.Said {
		assert.Equal(t, each.InstanceType == here.InstanceType, each.Category == alicloud.WithStock)
	}

	saved, err = state.Encode(old)
	require.NoError(t, err)
	back := NewMemory()
	require.NoError(t, back.Decode(saved))
	assert.Equal(t, m.stock.tried, back.stock.tried, "what was learnt outlives the older version")
}

func TestWordsThatAreNotKnownAreLeftOutOfTheMemory(t *testing.T) {
	m := NewMemory()
	expects(m, here, "Mighty", time.Hour)
	m.NoteStrengths(map[pricing.Offering]alicloud.Strength{{InstanceType: "big", Zone: "a"}: alicloud.Weak}, true, at(time.Hour))
	assert.Empty(t, m.stock.said, "nor is anything said of on-demand instances")

	m.stock.said[place{"a10", "a"}] = saying{Category: alicloud.WithStock, Since: 1, At: 2, Strength: "Mighty", StrengthSince: 3, StrengthAt: 4}
	m.stock.tried = map[hint]experience{{"Perhaps", ""}: {Asked: 1}, {alicloud.WithStock, "Mighty"}: {Asked: 1}, {}: {Asked: 1}, {"", alicloud.Weak}: {Asked: 1}}
	saved, err := m.Encode()
	require.NoError(t, err)
	restarted := NewMemory()
	require.NoError(t, restarted.Decode(saved))
	assert.Equal(t, map[hint]experience{{"", alicloud.Weak}: {Asked: 1}}, restarted.stock.tried)
	assert.Equal(t, saying{Category: alicloud.WithStock, Since: 1, At: 2}, restarted.stock.said[place{"a10", "a"}])
}

func TestTheStrongestOfThePoolsCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		strength := func(o pricing.Offering, s alicloud.Strength) alicloud.OfferingStrength {
			return alicloud.OfferingStrength{InstanceType: o.InstanceType, ZoneID: o.Zone, Strength: s}
		}
		m := NewMemory()
		s := &shop{asked: map[string][]time.Time{}, strengths: map[string][]alicloud.OfferingStrength{
			"asg-1": {strength(here, alicloud.Medium), strength(there, alicloud.Weak)},
			"asg-2": {strength(here, alicloud.Strong), strength(newcomer, alicloud.Strong)},
			"asg-3": {strength(here, alicloud.Weak), strength(there, alicloud.Weak)},
		}}
		watching(t, m, s, &notebook{})
		time.Sleep(time.Minute)
		synctest.Wait()
		m.mu.RLock()
		defer m.mu.RUnlock()
		assert.Equal(t, alicloud.Strong, m.stock.said[place{here.InstanceType, here.Zone}].Strength)
		assert.Equal(t, alicloud.Weak, m.stock.said[place{there.InstanceType, there.Zone}].Strength)
		assert.NotContains(t, m.stock.said, place{newcomer.InstanceType, newcomer.Zone}, "nobody wants it")
		assert.False(t, m.stock.strengthRead.IsZero())
	})
}

func TestWhatOneServiceRefusesDoesNotHideWhatTheOtherSays(t *testing.T) {
	forbidden := &alicloud.Error{Service: "ess", Action: "any", Code: "Forbidden.RAM", Class: alicloud.Unauthorized}
	tests := []struct {
		name             string
		ofECS, ofESS     error
		category         alicloud.StockCategory
		strength         alicloud.Strength
		events           int
		says             string
		isRead, isStrong bool
	}{
		{"ESS may not be asked", nil, forbidden, alicloud.WithoutStock, "", 1, "ess:DescribeElasticStrength", true, false},
		{"ECS may not be asked", forbidden, nil, "", alicloud.Weak, 1, "ecs:DescribeAvailableResource", false, true},
		{"ESS does not answer", nil, errors.New("a timeout"), alicloud.WithoutStock, "", 0, "", true, false},
		{"ECS does not answer", errors.New("a timeout"), nil, "", alicloud.Weak, 0, "", false, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, n := NewMemory(), &notebook{}
				s := &shop{asked: map[string][]time.Time{}, err: test.ofECS, strengthErr: test.ofESS, strengths: map[string][]alicloud.OfferingStrength{
					"asg-1": {{InstanceType: here.InstanceType, ZoneID: here.Zone, Strength: alicloud.Weak}}, "asg-2": nil}}
				if test.ofECS != nil {
					s.fail(test.ofECS)
				}
				watching(t, m, s, n)
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				m.mu.RLock()
				defer m.mu.RUnlock()
				said := m.stock.said[place{here.InstanceType, here.Zone}]
				assert.Equal(t, test.category, said.Category)
				assert.Equal(t, test.strength, said.Strength)
				assert.Equal(t, []bool{test.isRead, test.isStrong}, []bool{!m.stock.read.IsZero(), !m.stock.strengthRead.IsZero()})
				assert.Greater(t, s.strengthsAsked, 10, "it goes on asking")
				n.mu.Lock()
				defer n.mu.Unlock()
				require.Len(t, n.lines, test.events)
				if test.events > 0 {
					assert.Contains(t, n.lines[0], test.says)
				}
			})
		})
	}
}
