package ess

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestListingOfManyInstancesIsNotRepeatedFasterThanTheLimitAllows(t *testing.T) {
	for name, test := range map[string]struct {
		instances int
		after     time.Duration
		listed    bool
	}{
		"a thousand are listed in every loop":           {instances: 1000, listed: true},
		"ten thousand are not":                          {instances: 10_000, after: 3 * time.Second},
		"but are within the scan interval":              {instances: 10_000, after: 10 * time.Second, listed: true},
		"two thousand are listed once in half a second": {instances: 2000, after: 500 * time.Millisecond, listed: true},
		"two thousand are not more often":               {instances: 2000, after: 250 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				group := spotGroup("asg-1")
				group.MaxSize = 20_000
				f := newFixture(t, newFakeCloud(group))
				f.cloud.launch(test.instances, "asg-1", "", a10, "zone-a")
				f.refresh()
				time.Sleep(test.after)
				f.cloud.launch(1, "asg-1", "", a10, "zone-a")
				f.refresh()
				want := test.instances
				if test.listed {
					want++
				}
				assert.Equal(t, want, f.target(a10InA))
			})
		})
	}
}

func TestWhatIsBoughtBetweenTwoListingsCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := spotGroup("asg-1")
		group.MaxSize = 20_000
		f := newFixture(t, newFakeCloud(group))
		f.cloud.launch(10_000, "asg-1", "", a10, "zone-a")
		f.refresh()
		require.NoError(t, f.group(a10InA).IncreaseSize(3))
		f.refresh()
		assert.Equal(t, 10_003, f.target(a10InA))
	})
}
