package ledger

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	clocktesting "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/snapshot"
)

func TestWhatBecomesOfAnInstanceThatIsNotListed(t *testing.T) {
	for name, test := range map[string]struct {
		// status is that of the activity, which ended the given time ago. The instance is missing since then.
		status string
		ago    time.Duration
		// listed: it was listed before. served: it was in service.
		listed, served bool

		delivered, rolledBack, unlisted bool
	}{
		"its activity goes on":                           {alicloud.ActivityInProgress, time.Hour, false, false, false, false, true},
		"its activity succeeded a moment ago":            {alicloud.ActivitySuccessful, DeliveryLag, false, false, false, false, true},
		"its activity succeeded long ago":                {alicloud.ActivitySuccessful, DeliveryLag + 1, false, false, true, false, false},
		"its activity came short a moment ago":           {alicloud.ActivityWarning, DeliveryLag, false, false, false, false, true},
		"its activity came short long ago":               {alicloud.ActivityWarning, DeliveryLag + 1, false, false, false, true, false},
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
			assert.Equal(t, test.delivered, d.delivered.Has("i-1"), "delivered")
			assert.Equal(t, test.rolledBack, d.rolledBack.Has("i-1"), "rolled back")
			_, unlisted := d.unlisted["i-1"]
			assert.Equal(t, test.unlisted, unlisted, "still unlisted")
		})
	}
}

// splitPurchase returns a book with a purchase of five instances that was split, and both its parts.
func splitPurchase() (purchases book, one, rest *Purchase) {
	purchases = book{}
	one = &Purchase{poolID: "asg-1", request: alicloud.ScaleRequest{Delta: 5}, delivery: newDelivery()}
	one.sign()
	purchases.add(one)
	purchases.split(one)
	return purchases, one, purchases[one.rest]
}

func TestAPurchaseIsSplitAndRejoinedWithoutLosingAnInstance(t *testing.T) {
	purchases, one, rest := splitPurchase()
	assert.Len(t, purchases, 2)
	assert.Equal(t, 1, one.missing())
	assert.Equal(t, 4, rest.missing())
	assert.NotEqual(t, one.request.ClientToken, rest.request.ClientToken, "each is a request of its own")

	purchases.rejoin(one)
	assert.Len(t, purchases, 1)
	assert.Equal(t, 5, one.missing())
}

func TestARestThatMayHaveBeenBoughtIsNotRejoined(t *testing.T) {
	for name, sent := range map[string]func(*Purchase){
		"it is being sent":          func(rest *Purchase) { rest.sending = true },
		"the answer to it was lost": func(rest *Purchase) { rest.attempts.uncertain = true },
		"it was accepted":           func(rest *Purchase) { rest.accepted = time.Now() },
	} {
		t.Run(name, func(t *testing.T) {
			purchases, one, rest := splitPurchase()
			sent(rest)
			purchases.rejoin(one)
			assert.Len(t, purchases, 2)
			assert.Equal(t, 1, one.missing())
		})
	}
}

// A refresh sends purchases side by side: one may be answered with a plan while another waits for its goroutine.
func TestARejoinedRestIsNotSentByWhoeverStillHoldsIt(t *testing.T) {
	l := New(Config{Clock: clocktesting.NewFakePassiveClock(time.Now()), Store: &snapshot.Store{}})
	purchases, one, rest := splitPurchase()
	maps.Copy(l.state.account("asg-1").book, purchases)
	l.state.account("asg-1").book.rejoin(one)
	_, taken := l.Purchases.Take(rest)
	assert.False(t, taken, "its instances would be bought twice")
	attempt, taken := l.Purchases.Take(one)
	assert.True(t, taken)
	assert.Equal(t, 5, attempt.Request.Delta)
}
