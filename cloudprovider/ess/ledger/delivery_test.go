package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

func TestWhatBecomesOfAnInstanceThatIsNotListed(t *testing.T) {
	for name, test := range map[string]struct {
		// status is that of the activity, which ended the given time ago. The instance is missing since then.
		status string
		ago    time.Duration
		// listed: it was listed before. served: it was in service.
		listed, served bool

		arrived, rolledBack, unlisted bool
	}{
		"its activity goes on":                           {alicloud.ActivityInProgress, time.Hour, false, false, false, false, true},
		"its activity succeeded a moment ago":            {alicloud.ActivitySuccessful, arrivalLag, false, false, false, false, true},
		"its activity succeeded long ago":                {alicloud.ActivitySuccessful, arrivalLag + 1, false, false, true, false, false},
		"its activity came short a moment ago":           {alicloud.ActivityWarning, arrivalLag, false, false, false, false, true},
		"its activity came short long ago":               {alicloud.ActivityWarning, arrivalLag + 1, false, false, false, true, false},
		"its activity failed":                            {alicloud.ActivityFailed, 0, false, false, false, true, false},
		"it was listed, and its activity succeeded":      {alicloud.ActivitySuccessful, 0, true, false, true, false, false},
		"it was listed, and its activity came short":     {alicloud.ActivityWarning, 0, true, false, false, true, false},
		"it was in service, and its activity came short": {alicloud.ActivityWarning, 0, true, true, true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			d := newDelivery()
			d.setActivity(alicloud.Activity{ID: "asa-1", Status: test.status}, now.Add(-test.ago))
			d.see("i-1", test.listed, test.served, now.Add(-test.ago))
			d.checkMissing(func(string) bool { return false }, now)
			assert.Equal(t, test.arrived, d.arrived.Has("i-1"), "arrived")
			assert.Equal(t, test.rolledBack, d.rolledBack.Has("i-1"), "rolled back")
			_, unlisted := d.unlisted["i-1"]
			assert.Equal(t, test.unlisted, unlisted, "still unlisted")
		})
	}
}

func TestAPurchaseIsSplitAndRejoinedWithoutLosingAnInstance(t *testing.T) {
	purchases := book{}
	whole := &Purchase{request: alicloud.ScaleRequest{Delta: 5}, delivery: newDelivery()}
	whole.sign()
	purchases.add(whole)
	tokens := sets.New(whole.request.ClientToken)

	purchases.split(whole)
	assert.Len(t, purchases, 2)
	assert.Equal(t, 1, whole.outstanding())
	assert.Equal(t, 4, purchases[whole.rest].outstanding())
	tokens.Insert(whole.request.ClientToken, whole.rest)
	assert.Len(t, tokens, 3, "each is a request of its own")

	purchases.rejoin(whole)
	assert.Len(t, purchases, 1)
	assert.Equal(t, 5, whole.outstanding())
}

func TestAPurchaseThatWasSentIsNotRejoined(t *testing.T) {
	purchases := book{}
	whole := &Purchase{request: alicloud.ScaleRequest{Delta: 5}, delivery: newDelivery()}
	whole.sign()
	purchases.add(whole)
	purchases.split(whole)
	purchases[whole.rest].sending = true
	purchases.rejoin(whole)
	assert.Len(t, purchases, 2)
	assert.Equal(t, 1, whole.outstanding())
}
