package ess

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/ledger"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
)

// occupied puts pods on the Nodes of these instances.
func occupied(instanceIDs ...string) func(*Config) {
	names := sets.New(instanceIDs...)
	return func(c *Config) { c.Occupied = func(node *apiv1.Node) bool { return names.Has(node.Name) } }
}

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
		assert.Zero(t, f.target(a10InB), "nothing may be placed on what will be given back")
		time.Sleep(time.Second)
		f.refresh()
		assert.Len(t, f.cloud.instances, 1, "nothing is given back before the Nodes are known")
		f.provider.BeginLoop(nil)
		f.refresh()
		time.Sleep(time.Second)
		f.refresh()
		assert.Empty(t, f.cloud.instances, "the broken gang is given back")
		assert.Zero(t, f.target(a10InB))
		assert.Len(t, f.cloud.scaleCalls, 2)
		assert.Empty(t, f.events.With("SpotPurchaseFailed"), "the old process told of it")
	})
}

func TestNewProcessGivesBackOfABrokenGangOnlyWhatIsRecentAndIdle(t *testing.T) {
	for name, test := range map[string]struct {
		away  time.Duration // how long there was no leader
		busy  int           // on how many of its three nodes there are pods
		given int
	}{
		"of a moment ago, and idle":        {given: 3},
		"of a moment ago, with pods":       {busy: 3},
		"of a moment ago, with some pods":  {busy: 1, given: 2},
		"of nine minutes ago, and idle":    {away: 9 * time.Minute, given: 3},
		"of three days ago, and idle":      {away: 72 * time.Hour},
		"of three days ago, and with pods": {away: 72 * time.Hour, busy: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud := newFakeCloud(spotGroup("asg-1"))
				old := newFixture(t, cloud)
				old.refresh()
				require.NoError(t, old.group(a10InA).AtomicIncreaseSize(4))
				ids := cloud.launch(3, "asg-1", "asa-0", a10, "zone-a")
				cloud.end("asa-0", "OperationDenied.NoStock", ids...)
				time.Sleep(test.away)

				f := newFixture(t, cloud, occupied(ids[:test.busy]...))
				f.refresh()
				for range 2 {
					f.provider.BeginLoop(nodesOf(ids...))
					f.refresh()
					time.Sleep(time.Minute)
				}
				f.refresh()
				assert.Len(t, cloud.instances, 3-test.given)
				assert.Equal(t, 3-test.given, f.target(a10InA), "what stays is capacity")
				for _, id := range ids[:test.busy] {
					assert.Contains(t, cloud.instances, id, "pods run on it")
				}
				assert.Empty(t, f.purchases())
			})
		})
	}
}

func TestNodesAreTakenForOccupiedWhereNobodyKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(spotGroup("asg-1"))
		old := newFixture(t, cloud)
		old.refresh()
		require.NoError(t, old.group(a10InA).AtomicIncreaseSize(4))
		ids := cloud.launch(3, "asg-1", "asa-0", a10, "zone-a")
		cloud.end("asa-0", "OperationDenied.NoStock", ids...)

		f := newFixture(t, cloud)
		f.refresh()
		f.provider.BeginLoop(nodesOf(ids[:2]...)) // the third has not joined, so nothing can run on it
		f.refresh()
		time.Sleep(time.Second)
		f.refresh()
		assert.ElementsMatch(t, ids[:2], sets.KeySet(cloud.instances).UnsortedList())
	})
}

func TestNewProcessCountsWhatCameOfAGangByItsInstancesToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(spotGroup("asg-1"))
		old := newFixture(t, cloud)
		old.refresh()
		require.NoError(t, old.group(a10InA).AtomicIncreaseSize(4))
		ids := cloud.launch(4, "asg-1", "asa-0", a10, "zone-a")
		cloud.end("asa-0", "", ids[:1]...) // the activity names one of the four

		f := newFixture(t, cloud, occupied())
		for range 3 {
			f.provider.BeginLoop(nodesOf(ids...))
			f.refresh()
			time.Sleep(time.Minute)
		}
		assert.Len(t, cloud.instances, 4, "the gang is complete")
		assert.Equal(t, 4, f.target(a10InA))
	})
}

// dropNotes removes the metadata of all activities.
func (f *fakeCloud) dropNotes() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, activity := range f.activities {
		activity.Metadata = ""
		f.activities[id] = activity
	}
}

func TestPurchaseWhoseNoteIsLostIsTakenUpByItsCountAndInstances(t *testing.T) {
	cloud := newFakeCloud(spotGroup("asg-1"))
	old := newFixture(t, cloud)
	old.refresh()
	require.NoError(t, old.group(a10InB).IncreaseSize(3))
	cloud.dropNotes()
	before := metric(t, "gpu_spot_purchase_notes_missing_total", "asg-1")
	for range 2 {
		old.refresh()
	}
	assert.Equal(t, 3, old.target(a10InB), "this process knows what it bought")
	assert.Equal(t, before+1, metric(t, "gpu_spot_purchase_notes_missing_total", "asg-1"), "once for each activity")
	assert.Len(t, old.events.With("SpotPurchaseNoteLost"), 1)

	f := newFixture(t, cloud)
	f.refresh()
	assert.Equal(t, 3, f.target(a10InA), "of the offerings whose price is known it is the cheapest: the likeliest to have been bought")
	assert.Equal(t, 7, f.group(v100InA).MaxSize()-f.target(v100InA), "the three count in the room of the pool, whatever they are")
	ids := cloud.launch(1, "asg-1", "asa-0", a10, "zone-b")
	f.refresh()
	assert.Equal(t, 3, f.target(a10InB), "one that is listed tells what the others are")
	assert.Zero(t, f.target(a10InA))

	cloud.end("asa-0", "OperationDenied.NoStock", ids...)
	f.refresh()
	assert.Equal(t, 1, f.target(a10InB))
	assert.Empty(t, f.failedNodes(a10InB), "whose it was nobody knows, so that nothing is backed off")
	assert.Empty(t, f.purchases())
}

func TestActivitiesOfOthersAreTakenUpOnlyWhileTheyBringSomething(t *testing.T) {
	for name, test := range map[string]struct {
		activity alicloud.Activity
		target   int
	}{
		"one that adds two":              {alicloud.Activity{Status: alicloud.ActivityInProgress, Adding: 2}, 2},
		"one that removes":               {alicloud.Activity{Status: alicloud.ActivityInProgress}, 0},
		"one that added two just now":    {alicloud.Activity{Status: alicloud.ActivitySuccessful, Adding: 2, Ended: time.Now()}, 2},
		"one that added two a while ago": {alicloud.Activity{Status: alicloud.ActivitySuccessful, Adding: 2, Ended: time.Now().Add(-5 * time.Minute)}, 0},
		"one that failed to add two":     {alicloud.Activity{Status: alicloud.ActivityFailed, Adding: 2, Ended: time.Now()}, 0},
		"one with a note of their own":   {alicloud.Activity{Status: alicloud.ActivityInProgress, Adding: 2, Metadata: `{"who":"me"}`}, 2},
		"one with a note that is silly":  {alicloud.Activity{Status: alicloud.ActivityInProgress, Adding: 2, Metadata: `{"token":"t","count":"-1"}`}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := newFakeCloud(spotGroup("asg-1"))
			test.activity.ID, test.activity.ScalingGroupID, test.activity.Started = "asa-foreign", "asg-1", time.Now()
			cloud.activities["asa-foreign"] = test.activity
			f := newFixture(t, cloud)
			f.refresh()
			assert.Equal(t, test.target, f.target(a10InA))
		})
	}
}

func TestNotesHoldStringsOnly(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
	f.refresh()
	require.NoError(t, f.group(a10InA).AtomicIncreaseSize(4))
	note, ours := ledger.NoteOf(f.cloud.activities["asa-0"])
	require.True(t, ours)
	assert.Equal(t, ledger.Note{Token: f.cloud.scaleCalls[0].ClientToken, InstanceType: a10, Zone: "zone-a", PurchaseOption: "spot",
		Targeting: pool.TargetRequest, Configuration: "two-types", Count: 4, Atomic: true}, note)
	assert.Equal(t, `{"token":"`+note.Token+`","type":"`+a10+`","zone":"zone-a","purchase":"spot","targeting":"request","configuration":"two-types","count":"4","atomic":"true"}`,
		f.cloud.scaleCalls[0].Metadata)
}

func TestActivitiesThatCannotBeReadKeepThePoolFromBuying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newFakeCloud(spotGroup("asg-1"), spotGroup("asg-2"))
		cloud.activitiesErr, cloud.unreadable = errLost, "asg-1"
		f := newFixture(t, cloud)
		f.refresh()
		assert.Zero(t, f.group(a10InA).MaxSize())
		other := f.group("asg-2/" + a10 + "/zone-a/spot")
		assert.Zero(t, other.MaxSize(), "what is pending may be what the first pool was bought for")
		said := f.events.With("SpotPoolProblem")
		require.Len(t, said, 1)
		assert.Contains(t, said[0], "asg-1 (activities)")
		time.Sleep(ledger.UnreadFor + time.Second)
		f.refresh()
		assert.Equal(t, 10, other.MaxSize(), "one pool does not stop the others for ever")
		assert.Zero(t, f.group(a10InA).MaxSize())
		cloud.activitiesErr = nil
		f.refresh()
		assert.Equal(t, 10, f.group(a10InA).MaxSize())
	})
}
