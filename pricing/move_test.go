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
	assert.False(t, MovePays(3, 1, 49*time.Minute, terms))
	assert.True(t, MovePays(3, 1, 50*time.Minute, terms))
	assert.True(t, MovePays(3, 1, 30*time.Minute, Terms{Restart: 10 * time.Minute, ValueOfTime: .5}), "whose time is worth little")
	assert.False(t, MovePays(3, 2.7, 1000*time.Hour, terms), "spot that saves less than a tenth is not worth its risk")
}
