package ess

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNewProcessTakesUpWhatTheOldOneBought(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		old.refresh()
		require.NoError(t, old.group(a10InA).IncreaseSize(2))
		require.NoError(t, old.group(a10InB).AtomicIncreaseSize(4))
		old.cloud.end("asa-1", "OperationDenied.NoStock", old.cloud.launch(1, "asg-1", "asa-1", a10, "zone-b")...)

		f := newFixture(t, old.cloud)
		f.refresh()
		assert.Equal(t, 2, f.target(a10InA), "still under way")
		time.Sleep(time.Second)
		f.refresh()
		assert.Empty(t, f.cloud.instances, "the broken gang is given back")
		assert.Zero(t, f.target(a10InB))
		assert.Len(t, f.cloud.scaleCalls, 2)
	})
}
