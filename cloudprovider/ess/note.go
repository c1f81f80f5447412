package ess

import (
	"encoding/json"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// purchaseNote is what an activity's metadata says about the purchase behind it. Its values are strings: neither the
// length nor the kinds of values of ActivityMetadata are documented, and the one example, {"key":"value"}, has strings
// (doc comments of ScaleWithAdjustment, ESS 2022-02-22, alibabacloud-csharp-sdk).
type purchaseNote struct {
	Token        string    `json:"token"`
	InstanceType string    `json:"type"`
	Zone         string    `json:"zone"`
	Purchase     Purchase  `json:"purchase"`
	Targeting    targeting `json:"targeting"`
	// Configuration is the scaling configuration of the pool at the time.
	Configuration string `json:"configuration,omitempty"`
	// Owner is Config.Owner of the buyer.
	Owner  string `json:"owner,omitempty"`
	Count  int    `json:"count,string"`
	Atomic bool   `json:"atomic,string,omitempty"`
}

func (b *purchase) note() purchaseNote {
	return purchaseNote{
		Token: b.request.ClientToken, InstanceType: b.offering.InstanceType, Zone: b.offering.Zone,
		Purchase: b.offering.Purchase, Targeting: b.targeting, Configuration: b.configuration, Owner: b.owner, Count: b.request.Delta, Atomic: b.atomic,
	}
}

func (n purchaseNote) encode() (string, error) {
	text, err := json.Marshal(n)
	return string(text), err
}

// noteOf is false for an activity that is none of ours, or came back without its note.
func noteOf(activity alicloud.Activity) (purchaseNote, bool) {
	var note purchaseNote
	if json.Unmarshal([]byte(activity.Metadata), &note) != nil || note.Token == "" || note.Count <= 0 {
		return purchaseNote{}, false
	}
	return note, true
}

// readNote notices, once for each activity, that one came back without a note. Where those of ours do, a later process has
// to go by times, counts and instances.
func (p *Provider) readNote(bought *purchase, activity alicloud.Activity) {
	if _, noted := noteOf(activity); noted || bought.noteMissed {
		return
	}
	bought.noteMissed = true
	missedNotes.WithLabelValues(bought.poolID).Inc()
	if bought.recalled.isBlind() {
		klog.Warningf("Activity %s of pool %s adds %d instances and has no note: they count for the likeliest offering until they are listed",
			activity.ID, bought.poolID, activity.Adding)
		return
	}
	klog.Warningf("Activity %s of pool %s came back without its note (metadata %q)", activity.ID, bought.poolID, activity.Metadata)
	p.reports.once("notes/"+bought.poolID, func() {
		p.Events.Eventf(apiv1.EventTypeWarning, "SpotPurchaseNoteLost", "Activity %s of pool %s came back without the note that says what it is for: "+
			"after a restart purchases under way are told by their times, counts and instances", activity.ID, bought.poolID)
	})
}
