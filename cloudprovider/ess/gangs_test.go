package ess

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/ledger"
)

func bigGroup() alicloud.ScalingGroup {
	group := spotGroup("asg-1")
	group.MaxSize = 500
	return group
}

// buyForGangs buys for gangs of four, four and two while the pool is busy, and lets their purchase, asa-1, be accepted.
func (f *fixture) buyForGangs(t *testing.T) {
	t.Helper()
	f.cloud.alone = true
	f.refresh()
	require.NoError(t, f.group(a10InB).IncreaseSize(1)) // is sent first
	for _, size := range []int{4, 4, 2} {
		require.NoError(t, f.group(a10InA).AtomicIncreaseSize(size))
	}
	f.cloud.end("asa-0", "", f.cloud.launch(1, "asg-1", "asa-0", a10, "zone-b")...)
	f.refresh()
	require.Equal(t, []int{1, 10}, f.cloud.accepted())
}

func TestGangsOfOneOfferingThatWaitShareAPurchase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(bigGroup()))
		f.buyForGangs(t)
		require.NoError(t, f.group(a10InA).IncreaseSize(1))
		assert.Equal(t, 11, f.target(a10InA))
		note, ours := ledger.NoteOf(f.cloud.activities["asa-1"])
		require.True(t, ours)
		assert.EqualValues(t, []int{4, 4, 2}, note.Gangs, "the next leader reads it")
		f.cloud.end("asa-1", "", f.cloud.launch(10, "asg-1", "asa-1", a10, "zone-a")...)
		f.refresh()
		assert.Equal(t, []int{1, 10, 1}, f.cloud.accepted(), "other pods are bought for apart")
		assert.Empty(t, f.failedNodes(a10InA))
		assert.Equal(t, 11, f.target(a10InA))
	})
}

func TestNoteOfAPurchaseForManyGangsIsOfLimitedLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(bigGroup()))
		f.cloud.alone = true
		f.refresh()
		for range 120 {
			require.NoError(t, f.group(a10InA).AtomicIncreaseSize(2))
		}
		assert.Equal(t, 240, f.target(a10InA))
		for n := range 4 {
			f.cloud.end(fmt.Sprintf("asa-%d", n), "")
			f.refresh()
		}
		assert.ElementsMatch(t, []int{2, 100, 100, 38}, f.cloud.accepted())
	})
}

func TestWhatComesShortForGangsIsKeptByWholeGangs(t *testing.T) {
	for came, kept := range map[int]int{0: 0, 1: 0, 3: 2, 4: 4, 5: 4, 6: 6, 7: 6, 8: 8, 9: 8, 10: 10} {
		t.Run(fmt.Sprintf("%d of 10", came), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, newFakeCloud(bigGroup()))
				f.buyForGangs(t)
				ids := f.cloud.launch(came, "asg-1", "asa-1", a10, "zone-a")
				f.cloud.end("asa-1", "OperationDenied.NoStock", ids...)
				f.loop(nodesOf(ids...)...)
				assert.Len(t, f.failedNodes(a10InA), 10-kept)
				assert.Equal(t, 10, f.target(a10InA), "until core has deleted the failed ones")
				if kept < 10 {
					require.NoError(t, f.group(a10InA).DeleteNodes(f.failedNodes(a10InA)))
				}
				assert.Equal(t, kept, f.target(a10InA))
				time.Sleep(time.Minute)
				f.loop(nodesOf(ids...)...)
				assert.Len(t, f.cloud.instances, 1+kept, "what makes no whole gang is given back")
				assert.Equal(t, kept, f.target(a10InA))
				assert.Empty(t, f.failedNodes(a10InA), "nothing fails twice")
				time.Sleep(ledger.RollBackTime)
				f.loop(nodesOf(ids...)...)
				assert.Empty(t, f.purchases())
				assert.Len(t, f.cloud.instances, 1+kept)
			})
		})
	}
}

func TestGangThatLosesAnInstanceAfterwardsIsGivenBackAndTheOthersStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(bigGroup()))
		f.buyForGangs(t)
		ids := f.cloud.launch(9, "asg-1", "asa-1", a10, "zone-a")
		f.cloud.setState(alicloud.LifecyclePending, ids...)
		f.cloud.end("asa-1", "OperationDenied.NoStock", ids...)
		f.cloud.change("asa-1", func(a *alicloud.Activity) { a.Status = alicloud.ActivityWarning })
		f.refresh()
		require.NoError(t, f.group(a10InA).DeleteNodes(f.failedNodes(a10InA)))
		require.Equal(t, 8, f.target(a10InA))

		f.cloud.release(ids[0]) // the cloud rolls it back late
		f.refresh()
		assert.Len(t, f.failedNodes(a10InA), 2, "six of seven make a gang of four and one of two")
		require.NoError(t, f.group(a10InA).DeleteNodes(f.failedNodes(a10InA)))
		assert.Equal(t, 6, f.target(a10InA))
		time.Sleep(time.Minute)
		f.refresh()
		assert.Len(t, f.cloud.instances, 1+6)
	})
}

func TestNewProcessKeepsTheWholeGangsOfAPurchaseThatCameShort(t *testing.T) {
	for name, restart := range map[string]func(f *fixture){
		"killed before it saw the end": func(*fixture) {},
		"killed after it saw the end":  func(f *fixture) { f.refresh() },
		"killed after it gave back":    func(f *fixture) { f.refresh(); time.Sleep(time.Second); f.refresh() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud := newFakeCloud(bigGroup())
				old := newFixture(t, cloud)
				old.buyForGangs(t)
				ids := cloud.launch(9, "asg-1", "asa-1", a10, "zone-a")
				cloud.end("asa-1", "OperationDenied.NoStock", ids...)
				restart(old)

				f := newFixture(t, cloud, occupied())
				for range 4 {
					f.refresh()
					f.provider.BeginLoop(nodesOf(ids...))
					time.Sleep(time.Minute)
				}
				f.refresh()
				assert.Len(t, cloud.instances, 1+8)
				assert.Equal(t, 8, f.target(a10InA))
				assert.Empty(t, f.failedNodes(a10InA))
			})
		})
	}
}
