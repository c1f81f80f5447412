package ess

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// ours sets the owner of the purchases.
func ours(c *Config) { c.Owner = "11111111/kube-system/gpu-spot-autoscaler" }

// bought launches an instance by an activity of another autoscaler with this metadata.
func (f *fakeCloud) bought(metadata string) {
	f.activities["asa-theirs"] = alicloud.Activity{
		ID: "asa-theirs", ScalingGroupID: "asg-1", Status: alicloud.ActivitySuccessful, Metadata: metadata, Adding: 1, Started: time.Now(), Ended: time.Now(),
	}
	f.launch(1, "asg-1", "asa-theirs", a10, "zone-a")
}

func TestAnotherAutoscalerIsToldByWhatItBuys(t *testing.T) {
	for name, test := range map[string]struct {
		metadata string
		want     string
	}{
		"another installation": {`{"token":"t","type":"` + a10 + `","zone":"zone-a","count":"1","owner":"22222222/kube-system/gpu-spot-autoscaler"}`,
			"(other_autoscaler): the gpu-spot-autoscaler 22222222/kube-system/gpu-spot-autoscaler buys in the scaling group too"},
		"Cluster Autoscaler's own provider": {`{"cluster-autoscaler/alicloud/managed":"true"}`, "(ack_autoscaler): Cluster Autoscaler's own provider"},
		"a former process of this one":      {`{"token":"t","type":"` + a10 + `","zone":"zone-a","count":"1","owner":"11111111/kube-system/gpu-spot-autoscaler"}`, ""},
		"a process of an older version":     {`{"token":"t","type":"` + a10 + `","zone":"zone-a","count":"1"}`, ""},
		"somebody by hand":                  {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for when, before := range map[string]bool{"before the start": true, "while it runs": false} {
				t.Run(when, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						f := newFixture(t, newFakeCloud(spotGroup("asg-1")), ours)
						if before {
							f.cloud.bought(test.metadata)
							f.refresh()
						} else {
							f.refresh()
							f.cloud.bought(test.metadata)
						}
						f.refresh()
						said := f.events.With("SpotPoolProblem")
						if test.want == "" {
							assert.Empty(t, said)
							return
						}
						require.Len(t, said, 1)
						assert.Contains(t, said[0], test.want)
						time.Sleep(11 * time.Minute)
						f.refresh()
						assert.Len(t, f.events.With("SpotProblemOver"), 1, "once it has not bought for a while")
					})
				})
			}
		})
	}
}

func TestAStrangersActivityIsLookedUpOnce(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")), ours)
	f.refresh()
	f.cloud.bought("")
	f.refresh()
	before := f.cloud.calls
	f.refresh()
	known := f.cloud.calls - before
	f.refresh()
	assert.Equal(t, known, f.cloud.calls-before-known)
	assert.Equal(t, 2, known, "groups and instances alone")
}

func TestAGangOfAnotherIsNotGivenBack(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")), ours)
	f.cloud.activities["asa-theirs"] = alicloud.Activity{
		ID: "asa-theirs", ScalingGroupID: "asg-1", Status: alicloud.ActivityFailed, ErrorCode: "OperationDenied.NoStock", Started: time.Now(), Ended: time.Now(),
		Metadata: `{"token":"t","type":"` + a10 + `","zone":"zone-a","purchase":"spot","targeting":"request","count":"4","atomic":"true","owner":"22222222/kube-system/gpu-spot-autoscaler"}`,
	}
	ids := f.cloud.launch(2, "asg-1", "asa-theirs", a10, "zone-a")
	for range 3 {
		f.loop()
	}
	require.NoError(t, f.provider.Cleanup())
	assert.Empty(t, f.cloud.removeCalls)
	assert.Len(t, ids, 2)
}

func TestAScalingGroupThatIsTaggedForTwoClustersIsTold(t *testing.T) {
	group := spotGroup("asg-1")
	group.Tags["k8s.io/cluster-autoscaler/other"] = "owned"
	group.Tags["k8s.io/cluster-autoscaler/node-template/label/a"] = "b"
	f := newFixture(t, newFakeCloud(group))
	f.refresh()
	said := f.events.With("SpotPoolProblem")
	require.Len(t, said, 1)
	assert.Contains(t, said[0], "(other_clusters): the scaling group is tagged for other too, not for test alone. Leave the tag of one cluster only")
	delete(group.Tags, "k8s.io/cluster-autoscaler/other")
	f.refresh()
	assert.Len(t, f.events.With("SpotProblemOver"), 1)
}

func TestWhatACKManagesTooIsTold(t *testing.T) {
	managed := true
	f := newFixture(t, newFakeCloud(spotGroup("asg-1")), func(c *Config) {
		c.OtherAutoscaler = func(poolID string) string {
			if managed {
				return "ACK manages " + poolID
			}
			return ""
		}
	})
	f.refresh()
	assert.Contains(t, f.events.With("SpotPoolProblem")[0], "(ack_autoscaler): ACK manages asg-1. Turn off auto scaling")
	managed = false
	f.refresh()
	assert.Len(t, f.events.With("SpotProblemOver"), 1)
}

var errForbidden = &alicloud.Error{Service: "ess", Action: "ScaleWithAdjustment", Code: "Forbidden.RAM", Class: alicloud.Unauthorized}

func TestAPurchaseThatRAMForbidsIsToldAndCarriedOutOnceItIsAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		f.refresh()
		f.cloud.scaleErrs = []error{errForbidden, errForbidden}
		require.NoError(t, f.group(a10InA).IncreaseSize(1))
		f.refresh()
		said := f.events.With("SpotPoolProblem")
		require.Len(t, said, 1)
		assert.Contains(t, said[0], "(not_allowed): RAM does not allow the call (ess ScaleWithAdjustment: Forbidden.RAM). Allow it")
		time.Sleep(10 * time.Second)
		f.refresh()
		f.refresh()
		assert.Len(t, f.cloud.activities, 1, "it was asked for again")
		assert.Empty(t, f.events.With("SpotPurchaseFailed"), "no offering is to blame")
		assert.Len(t, f.events.With("SpotProblemOver"), 1)
	})
}

func TestAPurchaseThatRAMForbidsIsGivenUpSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeCloud(spotGroup("asg-1")))
		f.refresh()
		f.cloud.refuses = func(alicloud.ScaleRequest) error { return errForbidden }
		require.NoError(t, f.group(a10InA).IncreaseSize(1))
		for range 3 {
			time.Sleep(10 * time.Second)
			f.refresh()
		}
		assert.Len(t, f.events.With("SpotPurchaseGivenUp"), 1, "in time for a replacement from another pool")
		assert.Zero(t, f.target(a10InA))
	})
}
