package market

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const poll = 10 * time.Minute

func at(d time.Duration) time.Time { return time.Unix(1_800_000_000, 0).Add(d) }

func TestWhatWasSeenLastHoldsUntilTheNextTime(t *testing.T) {
	h := NewHistory([]string{"a"})
	h.Observe(0, at(time.Hour), true, 1)
	h.Observe(0, at(2*time.Hour), false, 2)

	up, _ := h.At(0, at(0))
	assert.False(t, up, "nothing was seen")
	up, price := h.At(0, at(time.Hour+time.Minute))
	assert.True(t, up)
	assert.Equal(t, 1., price)
	up, price = h.At(0, at(4*time.Hour))
	assert.False(t, up)
	assert.Equal(t, 2., price)
	up, _ = h.At(0, at(24*time.Hour))
	assert.True(t, up, "nobody knows, so a purchase has to tell")
}

func TestUpTimeAndLossesAreCountedWithinTheTimeBefore(t *testing.T) {
	h := NewHistory([]string{"a"})
	for hour, up := range []bool{true, true, false, true, false, false, true, true} {
		h.Observe(0, at(time.Duration(hour)*time.Hour), up, 1)
	}
	s := &h.offerings[0]
	for name, tc := range map[string]struct {
		i      int
		length time.Duration
		up     time.Duration
		losses int
	}{
		"all":                    {7, 24 * time.Hour, 4 * time.Hour, 2},
		"from a time between":    {7, 4*time.Hour + 30*time.Minute, 2 * time.Hour, 1},
		"from just after a loss": {7, 2 * time.Hour, time.Hour, 0},
		"at the first time":      {0, time.Hour, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			up, losses := s.past(tc.i, int64(tc.length/time.Second))
			assert.Equal(t, tc.up, time.Duration(up)*time.Second)
			assert.Equal(t, tc.losses, losses)
		})
	}
}

func TestOnlyOthersOfTheRegionCountAsItsShare(t *testing.T) {
	h := NewHistory([]string{"a", "a", "a", "b"})
	for offering, up := range []bool{false, true, false, false} {
		h.Observe(offering, at(0), up, 1)
	}
	now := at(time.Hour).Unix()
	assert.Equal(t, .5, h.shareUp(0, now))
	assert.Equal(t, 0., h.shareUp(1, now))
	assert.Equal(t, .5, h.shareUp(3, now), "there is no other")
}

// simulate observes offerings that are lost with the given probabilities from one poll to the next while they are young, that is for the
// first half hour, and old; lost ones come back after an hour.
func simulate(young, old []float64, days int) *History {
	random := rand.New(rand.NewPCG(1, 2))
	h := NewHistory(make([]string, len(young)))
	for offering := range young {
		age, down := time.Duration(0), time.Duration(0)
		for now := time.Duration(0); now < time.Duration(days)*24*time.Hour; now += poll {
			loss := old[offering]
			if age < 30*time.Minute {
				loss = young[offering]
			}
			switch {
			case down > 0:
				down -= poll
				age = 0
			case age > 0 && random.Float64() < loss:
				down, age = time.Hour, 0
			default:
				age += poll
			}
			h.Observe(offering, at(now), age > 0, 1)
		}
	}
	return h
}

func mean(lives []time.Duration) (sum time.Duration) {
	for _, life := range lives {
		sum += life / time.Duration(len(lives))
	}
	return sum
}

func TestLivesAreAsLongAsTheyWere(t *testing.T) {
	h := simulate([]float64{.02, .2}, []float64{.02, .2}, 40)
	z := h.Fit(at(0), at(40*24*time.Hour))
	for offering, loss := range []float64{.02, .2} {
		h.Observe(offering, at(40*24*time.Hour), true, 1)
		lives := z.Lives(h, offering, at(40*24*time.Hour), 1000)
		want := time.Duration(float64(poll) / loss)
		assert.InEpsilon(t, want, mean(lives), .35, "offering %d: %v", offering, mean(lives))
		assert.IsIncreasing(t, lives)
	}
}

func TestAnOfferingThatHasJustComeBackIsKeptForAShorterTime(t *testing.T) {
	h := simulate([]float64{.6}, []float64{.01}, 40)
	z := h.Fit(at(0), at(40*24*time.Hour))
	now := 40 * 24 * time.Hour
	h.Observe(0, at(now), false, 1)
	h.Observe(0, at(now+poll), true, 1)
	young := z.Lives(h, 0, at(now+poll), 15)
	h.Observe(0, at(now+6*time.Hour), true, 1)
	old := z.Lives(h, 0, at(now+6*time.Hour), 15)
	assert.Less(t, young[7], 2*time.Hour, "the median")
	assert.Greater(t, old[7], 6*time.Hour)
}

func TestNothingIsBelievedOfWhatWasNotSeen(t *testing.T) {
	h := NewHistory([]string{"a", "a"})
	z := h.Fit(at(0), at(time.Hour))
	assert.Nil(t, z.Lives(h, 0, at(time.Hour), 15))
	h.Observe(0, at(time.Hour), true, 1)
	for _, life := range z.Lives(h, 0, at(time.Hour), 15) {
		assert.Positive(t, life)
		assert.LessOrEqual(t, life, 30*24*time.Hour)
	}
}

func TestAnOfferingOfWhichLittleWasSeenIsTakenToBeLikeTheOthers(t *testing.T) {
	h := simulate([]float64{.1, .1}, []float64{.1, .1}, 20)
	fresh := NewHistory([]string{"", "", ""})
	copy(fresh.offerings, h.offerings)
	end := 20 * 24 * time.Hour
	for now := end - time.Hour; now <= end; now += poll {
		fresh.Observe(2, at(now), true, 1)
	}
	fresh.Observe(0, at(end), true, 1)
	z := fresh.Fit(at(0), at(end))
	assert.InEpsilon(t, mean(z.Lives(fresh, 0, at(end), 15)), mean(z.Lives(fresh, 2, at(end), 15)), .6)
}

func TestSolve(t *testing.T) {
	a := [][]float64{{4, 2, .6}, {2, 5, 1}, {.6, 1, 3}}
	want := []float64{1, -2, 3}
	b := make([]float64, 3)
	for i := range a {
		b[i] = dot(a[i], want)
	}
	got := solve(a, b)
	require.Len(t, got, 3)
	for i := range want {
		assert.False(t, math.Abs(got[i]-want[i]) > 1e-9, "%v", got)
	}
}

func TestWhatWasSeenWrongNowAndThenIsSeenThrough(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	up, wrong := true, 0
	seen, exact := NewHistory([]string{"a"}), NewHistory([]string{"a"})
	var truth []bool
	for n := range 3000 {
		if random.Float64() < .02 {
			up = !up
		}
		truth = append(truth, up)
		exact.Observe(0, at(time.Duration(n)*10*time.Minute), up, 1)
		seen.Observe(0, at(time.Duration(n)*10*time.Minute), up != (random.Float64() < .15), 1)
	}
	end := at(3000 * 10 * time.Minute)
	assert.Same(t, exact, exact.Without(exact.Noise(end)), "nothing was seen wrong")
	clean := seen.Without(seen.Noise(end))
	for n, up := range truth {
		if believed, _ := clean.At(0, at(time.Duration(n)*10*time.Minute)); believed != up {
			wrong++
		}
	}
	assert.Less(t, float64(wrong)/3000, .06, "a change is believed one or two looks late")
}

// An offering is lost in a fifth of the looks, and nobody looks for twenty hours of each day.
func TestWhatHappenedWhileNobodyLookedIsNotLearnt(t *testing.T) {
	all := simulate([]float64{.2}, []float64{.5}, 120)
	h, end := NewHistory([]string{"a"}), 120*24*time.Hour
	for after := time.Duration(0); after < end; after += poll {
		if up, price := all.At(0, at(after)); after%(24*time.Hour) < 4*time.Hour {
			h.Observe(0, at(after), up, price)
		}
	}
	mean := func(h *History) (sum time.Duration) {
		z := h.Fit(at(0), at(end))
		h.Observe(0, at(end), false, 1)
		h.Observe(0, at(end+poll), true, 1)
		for _, life := range z.Lives(h, 0, at(end+poll), 100) {
			sum += life / 100
		}
		return sum
	}
	assert.InEpsilon(t, mean(all), mean(h), .25)
	assert.True(t, h.IsSeen(at(end+poll+time.Hour)))
	assert.False(t, h.IsSeen(at(end+poll+time.Hour+time.Second)))
	assert.False(t, h.IsSeen(at(12*time.Hour)))
}

// Nobody looks for ten hours while it is up, and then it is down for most of a day: the gap is across the beginning of the day before.
func TestWhatIsLearntIsANumberWhereverAGapIs(t *testing.T) {
	for hours := range 60 {
		h := simulate([]float64{.1}, []float64{.2}, 10)
		end := 10*24*time.Hour + time.Duration(hours)*time.Hour
		for _, up := range []bool{true, false, true} {
			h.Observe(0, at(end), up, 1)
			end += 10 * time.Hour
			h.Observe(0, at(end), up, 1)
		}
		for after := range 20 {
			h.Observe(0, at(end+time.Duration(after)*poll), after%3 > 0, 1)
		}
		end += 20 * poll
		z := h.Fit(at(0), at(end))
		require.False(t, slices.ContainsFunc(z.weights, math.IsNaN), hours)
		lives := z.Lives(h, 0, at(end), 15)
		assert.Positive(t, lives[14], hours)
		assert.Less(t, lives[7], 24*time.Hour, hours)
	}
}

func TestAnOfferingIsAsYoungAsTheTimeSinceItWasSeenDown(t *testing.T) {
	h, at := NewHistory([]string{"a"}), time.Unix(1_800_000_000, 0)
	for i, up := range []bool{true, true, false, true, true} {
		h.Observe(0, at.Add(time.Duration(i)*time.Hour), up, 1)
	}
	for after, want := range map[time.Duration]time.Duration{
		-time.Hour:                   -1, // nothing was seen
		time.Hour + 30*time.Minute:   -1, // it was never seen down
		2*time.Hour + 30*time.Minute: -1, // it is down
		3 * time.Hour:                time.Hour,
		5*time.Hour + time.Minute:    3*time.Hour + time.Minute,
	} {
		ago, known := h.SinceDown(0, at.Add(after))
		if !known {
			ago = -1
		}
		assert.Equal(t, want, ago, "after %v", after)
	}
}

// Half of the offerings that have just come back are lost by the next look, and a fortieth of the others.
func TestAsManyYoungOfferingsAreLostByTheNextLookAsWere(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	h, end := NewHistory([]string{"a"}), time.Duration(0)
	up, wasUp := false, false
	for ; end < 60*24*time.Hour; end += poll {
		loss := .025
		if !wasUp {
			loss = .5
		}
		up, wasUp = !up || random.Float64() > loss, up
		h.Observe(0, at(end), up, 1)
	}
	z := h.Fit(at(0), at(end))
	h.Observe(0, at(end), false, 1)
	h.Observe(0, at(end+poll), true, 1)
	lost := func(after time.Duration) float64 {
		lives := z.Lives(h, 0, at(end+after), 1000)
		return float64(slices.IndexFunc(lives, func(life time.Duration) bool { return life > poll })) / 1000
	}
	assert.InDelta(t, .5, lost(poll), .1)
	h.Observe(0, at(end+6*time.Hour), true, 1)
	assert.InDelta(t, .025, lost(6*time.Hour), .02)
}

func TestWhatWasSeenSomeTimeAgoMayBeGoneAlready(t *testing.T) {
	h := simulate([]float64{.4}, []float64{.4}, 40)
	end := 40 * 24 * time.Hour
	z := h.Fit(at(0), at(end))
	h.Observe(0, at(end), true, 1)
	gone := func(after time.Duration) (count int) {
		for _, life := range z.Lives(h, 0, at(end+after), 1000) {
			if life == 0 {
				count++
			}
		}
		return count
	}
	assert.Zero(t, gone(0))
	assert.InDelta(t, 230, gone(poll/2), 60)
	assert.InDelta(t, 400, gone(poll), 60)
	assert.InDelta(t, 400, gone(5*time.Hour), 60, "nobody has looked for hours, so a purchase has to tell")
	h.Observe(0, at(end+poll), false, 1)
	for _, life := range z.Lives(h, 0, at(end+poll+StaleAfter+time.Minute), 15) {
		assert.Positive(t, life, "it was seen down, and nobody has looked since")
	}
}
