package pricing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// On demand costs 3, spot 1 with its losses. A restart of ten minutes costs (3 + 1)/6, and both instances 1/6 for ten minutes: 0.83 in all, of
// which a move has to save twice, so that it pays from 50 minutes on.
func TestAMovePaysOnceItSavesTwiceWhatItCosts(t *testing.T) {
	terms := Terms{Restart: 10 * time.Minute}
	after := func(d time.Duration) Move { return Move{OnDemand: 3, Useful: 1, Instances: 1, GoesOn: d} }
	assert.False(t, after(49*time.Minute).Pays(terms))
	assert.True(t, after(50*time.Minute).Pays(terms))
	assert.True(t, after(30*time.Minute).Pays(Terms{Restart: 10 * time.Minute, ValueOfTime: .5}), "whose time is worth little")
	assert.False(t, Move{OnDemand: 3, Useful: 2.7, GoesOn: 1000 * time.Hour}.Pays(terms), "spot that saves less than a tenth is not worth its risk")
	large := after(3 * time.Hour)
	large.Rest, large.Instances, large.Others = 63, 64, 63
	assert.False(t, large.Pays(terms), "all 63 others restart with it")
	large.GoesOn = 24 * time.Hour
	assert.True(t, large.Pays(terms))
	large.Losses = .2
	assert.False(t, large.Pays(terms), "and again with each loss")
	assert.False(t, large.IsWorthIt(terms))
	assert.True(t, after(time.Minute).IsWorthIt(terms))
	assert.False(t, Move{OnDemand: 3, Useful: 2.7}.IsWorthIt(terms))
	large.Rest, large.Losses = 1, .15
	assert.True(t, large.Pays(Terms{Restart: 10 * time.Minute, ValueOfTime: .01}))
	assert.False(t, large.Pays(Terms{Restart: 10 * time.Minute, ValueOfTime: 1}), "whose time is worth more")
}
