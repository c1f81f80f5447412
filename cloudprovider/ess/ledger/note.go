package ledger

import (
	"encoding/json"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/pricing"
)

// Note describes a purchase in the metadata of its scaling activity, so that a new process knows what the activity is for.
// All values are strings: neither the length nor the types of values of ActivityMetadata are documented, and the one
// example, {"key":"value"}, has strings (doc comments of ScaleWithAdjustment, ESS 2022-02-22, alibabacloud-csharp-sdk).
type Note struct {
	Token          string         `json:"token"`
	InstanceType   string         `json:"type"`
	Zone           string         `json:"zone"`
	PurchaseOption string         `json:"purchase"`
	Targeting      pool.Targeting `json:"targeting"`
	// Configuration is the scaling configuration of the pool at the time.
	Configuration string `json:"configuration,omitempty"`
	// Owner is Config.Owner of the buyer.
	Owner  string `json:"owner,omitempty"`
	Count  int    `json:"count,string"`
	Atomic bool   `json:"atomic,string,omitempty"`
}

// NoteOf returns the note of a scaling activity. It is false for an activity of anyone else, and for one without its note.
func NoteOf(activity alicloud.Activity) (Note, bool) {
	var note Note
	if json.Unmarshal([]byte(activity.Metadata), &note) != nil || note.Token == "" || note.Count <= 0 {
		return Note{}, false
	}
	return note, true
}

// IsOfAnother says whether another installation than this owner wrote the note. An empty owner is unknown.
func (n Note) IsOfAnother(owner string) bool {
	return owner != "" && n.Owner != "" && n.Owner != owner
}

func (n Note) offering() pricing.Offering {
	return pricing.Offering{InstanceType: n.InstanceType, Zone: n.Zone, Spot: n.PurchaseOption == (pricing.Offering{Spot: true}).PurchaseOption()}
}

func (n Note) encode() string {
	text, _ := json.Marshal(n) // strings and numbers always marshal
	return string(text)
}
