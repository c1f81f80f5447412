package spotfirst

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	apiv1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/deadline"
)

// certain chooses always the same. On demand costs 3, spot 1.
type certain struct {
	listener
	choice deadline.Choice
}

func (c certain) Choose(*deadline.Offers, time.Duration, time.Duration) deadline.Choice {
	return c.choice
}

func TestAMovePaysByHowLongTheJobGoesOn(t *testing.T) {
	now := testutil.Epoch
	by := func(d time.Duration) testutil.PodOption {
		return testutil.Annotated(api.AnnotationDeadline, now.Add(d).Format(time.RFC3339))
	}
	work := func(d time.Duration) testutil.PodOption { return testutil.Annotated(api.AnnotationWork, d.String()) }
	for name, c := range map[string]struct {
		ran     time.Duration
		choice  deadline.Choice
		options []testutil.PodOption
		pays    bool
	}{
		"one that has run for long":              {2 * time.Hour, deadline.Spot, nil, true},
		"one that has just begun":                {10 * time.Minute, deadline.Spot, nil, false},
		"one that is almost over":                {23 * time.Hour, deadline.Spot, []testutil.PodOption{work(23*time.Hour + 10*time.Minute)}, false},
		"one with work left":                     {2 * time.Hour, deadline.Spot, []testutil.PodOption{work(24 * time.Hour)}, true},
		"one with time until its deadline":       {2 * time.Hour, deadline.Spot, []testutil.PodOption{work(24 * time.Hour), by(26 * time.Hour)}, true},
		"one of which the market is not known":   {2 * time.Hour, deadline.Undecided, []testutil.PodOption{work(24 * time.Hour), by(26 * time.Hour)}, true},
		"one with no time for another reclaim":   {2 * time.Hour, deadline.Spot, []testutil.PodOption{work(24 * time.Hour), by(22*time.Hour + 2*restart)}, false},
		"one that had better stay on demand":     {2 * time.Hour, deadline.OnDemand, []testutil.PodOption{work(24 * time.Hour), by(26 * time.Hour)}, false},
		"one whose work until then is not known": {2 * time.Hour, deadline.Spot, []testutil.PodOption{by(26 * time.Hour)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(now)
			deadlines := NewDeadlines(newShop(map[string]pricing.Offering{"spot": a10Spot, "od": a10OnDemand}), &certain{choice: c.choice}, clock)
			moves := NewMoves(deadlines, pricing.Terms{Restart: restart}, clock)
			costs, pays := moves.Pays([]*apiv1.Pod{testutil.NewPod("p", c.options...), testutil.NewPod("q", c.options...)}, now.Add(-c.ran))
			assert.Equal(t, c.pays, pays)
			assert.Equal(t, Costs{Spot: 2, OnDemand: 6}, costs)
		})
	}
}

func TestThePodSaysWhetherItMovesAndElseItsPool(t *testing.T) {
	moves := NewMoves(nil, pricing.Terms{}, nil)
	silent := testutil.NewPod("p")
	assert.False(t, moves.Wanted(silent, false))
	assert.True(t, moves.Wanted(silent, true))
	assert.True(t, moves.Wanted(testutil.NewPod("p", testutil.Annotated(api.AnnotationMoveToSpot, "true")), false))
	assert.False(t, moves.Wanted(testutil.NewPod("p", testutil.Annotated(api.AnnotationMoveToSpot, "false")), true))
	malformed := testutil.NewPod("p", testutil.Annotated(api.AnnotationMoveToSpot, "maybe"))
	assert.False(t, moves.Wanted(malformed, false))
	_, err := settingsOf(malformed)
	assert.ErrorContains(t, err, api.AnnotationMoveToSpot)
}
