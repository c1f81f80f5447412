package ess

import (
	"encoding/json"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// purchaseNote is what an activity's metadata says about the purchase behind it.
type purchaseNote struct {
	Token        string    `json:"token"`
	InstanceType string    `json:"type"`
	Zone         string    `json:"zone"`
	Purchase     Purchase  `json:"purchase"`
	Targeting    targeting `json:"targeting"`
	Count        int       `json:"count"`
	Atomic       bool      `json:"atomic,omitempty"`
}

// noteOf is false for an activity that is none of ours.
func noteOf(activity alicloud.Activity) (purchaseNote, bool) {
	var note purchaseNote
	if json.Unmarshal([]byte(activity.Metadata), &note) != nil || note.Token == "" || note.Count <= 0 {
		return purchaseNote{}, false
	}
	return note, true
}
