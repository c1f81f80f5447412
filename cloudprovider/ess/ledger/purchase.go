package ledger

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/ess/snapshot"
	"gpu-spot-autoscaler/pricing"
)

// Purchase is one request for instances. It lasts from before the request is sent until every instance is delivered or has failed.
// The note in the metadata of its scaling activity lets it survive the process. Outside of this package it is a handle.
type Purchase struct {
	// request is what is sent. Once it may have been carried out it never changes: only the same request under the same token
	// is sure to buy once.
	request   alicloud.ScaleRequest
	poolID    string
	offering  pricing.Offering
	targeting pool.Targeting
	// atomic: all or nothing was asked for.
	atomic bool
	// gangs are the sizes of the gangs, if the purchase is for several. It is not atomic then: what comes of it makes some of them
	// whole, nobody knows which, and pods of any may run on any instance. So nothing is given back, and scale-down finds what is idle.
	gangs []int
	// alone: no other purchase becomes a part of it.
	alone bool
	// bundle is shared by the purchases of several offerings that are made for one gang; empty if one offering is bought for it.
	// uncommitted: it is not sent before all of them are entered. abandoned: it was given up, or another of them came short.
	bundle                 string
	uncommitted, abandoned bool
	// configuration is the scaling configuration of the pool when it was bought, owner is Config.Owner of the buyer.
	configuration string
	owner         string
	requested     time.Time
	// launch is how the purchase is made by RunInstances; nil if the scaling group is asked.
	launch *launch
	// plan: ESS is asked to plan the purchase before it is sent. rest is the token of the purchase that was split off for that.
	plan bool
	rest string

	sending  bool
	attempts attempts
	// accepted is when the cloud accepted it; zero before that.
	accepted time.Time
	// activityID is empty until the purchase is accepted, and after that where the answer named no activity.
	activityID string
	delivery   delivery
	// noteMissing: it was reported that the activity has no note.
	noteMissing bool

	// cancelled is how many instances core does not wait for any more, lost how many will not be delivered.
	cancelled, lost int
	failure         *cloudprovider.InstanceErrorInfo
	// placeholders stand for lost instances in the node group until core has deleted them.
	placeholders []string
	// inspected are the instances whose Nodes were looked at since the last refresh. Only those are given back, if no pods run there. kept
	// are those that stay because of their pods.
	inspected, kept sets.Set[string]
	// restored is nil for a purchase of this process.
	restored *restored
}

// order is what is bought: delta instances, all or nothing if it is atomic, and together with those of the bundle if it has one.
type order struct {
	delta  int
	atomic bool
	bundle string
}

// attempts are the tries to send a purchase.
type attempts struct {
	last time.Time
	// uncertain: an attempt got no answer, so it may have been carried out.
	uncertain bool
	// refusal is the answer to an attempt after an uncertain one. The scaling activities of the pool decide which of the two
	// holds.
	refusal error
	// trouble is why the last attempt failed.
	trouble error
	// instancesBefore are the instances that the pool had before the first attempt.
	instancesBefore sets.Set[string]
}

// missing is how many instances are still expected and not delivered, that is not in the list of instances yet.
func (p *Purchase) missing() int {
	return max(0, p.request.Delta-p.cancelled-p.lost-p.delivery.delivered.Len())
}

// queued returns whether the cloud has yet to accept the purchase.
func (p *Purchase) queued() bool { return p.accepted.IsZero() && p.missing() > 0 }

// unconfirmed returns whether only the pool's scaling activities can tell what became of the purchase: an attempt got no answer,
// or the answer named no activity.
func (p *Purchase) unconfirmed() bool {
	return p.missing() > 0 && p.activityID == "" && (p.attempts.uncertain || !p.accepted.IsZero())
}

// lose turns missing instances into failed ones, which core sees. An atomic purchase fails as a whole.
func (p *Purchase) lose(missing int, failure cloudprovider.InstanceErrorInfo) {
	if p.atomic {
		missing = max(0, p.request.Delta-p.cancelled-p.lost)
	}
	p.failure = &failure
	for n := range missing {
		p.placeholders = append(p.placeholders, snapshot.Placeholder(p.request.ClientToken, p.lost+n))
	}
	p.lost += missing
}

// acknowledge drops the placeholders that core has deleted, and lowers the target size by that.
func (p *Purchase) acknowledge(placeholders sets.Set[string]) {
	kept := p.placeholders[:0:0]
	for _, id := range p.placeholders {
		if !placeholders.Has(id) {
			kept = append(kept, id)
		}
	}
	p.placeholders = kept
}

// forGangs returns whether the purchase is for one gang or for several.
func (p *Purchase) forGangs() bool { return p.atomic || len(p.gangs) > 0 }

// hasRoomForGang returns whether another gang may become a part of the purchase. One that will be given up soon would take it along, and
// RunInstances has no turns, and is atomic by itself.
func (p *Purchase) hasRoomForGang(now time.Time) bool {
	return !p.alone && len(p.gangs) < maxGangs && p.targeting != pool.TargetLaunch && now.Sub(p.requested) <= Overdue &&
		!alicloud.NeedsOperator(p.attempts.trouble)
}

// broken returns whether an atomic purchase came short, so that the instances that were delivered have to be given back.
func (p *Purchase) broken() bool { return p.atomic && (p.failure != nil || p.abandoned) }

// looksFirst returns whether instances are given back only after a look at their Nodes. Pods may have been placed there since: this process
// was not there, or another purchase of the bundle took its time.
func (p *Purchase) looksFirst() bool { return p.restored != nil || p.bundle != "" }

// expected is how many instances the purchase still takes from the stock, or has taken to keep.
func (p *Purchase) expected() int {
	if p.broken() {
		return 0
	}
	return p.request.Delta - p.cancelled - p.lost
}

// sign gives the request a new token and the note that describes the purchase.
func (p *Purchase) sign() {
	p.request.ClientToken = uuid.NewString()
	p.request.Metadata = p.note().encode()
}

func (p *Purchase) note() Note {
	return Note{
		Token: p.request.ClientToken, InstanceType: p.offering.InstanceType, Zone: p.offering.Zone,
		PurchaseOption: p.offering.PurchaseOption(), Targeting: p.targeting, Configuration: p.configuration, Owner: p.owner,
		Count: p.request.Delta, Atomic: p.atomic, Bundle: p.bundle,
	}
}

// sendFor is how long attempts to send the purchase go on.
func (p *Purchase) sendFor() time.Duration {
	if alicloud.NeedsOperator(p.attempts.trouble) {
		return sendRefusedFor
	}
	return sendFor
}

// trouble says why the purchase could not be sent.
func (p *Purchase) trouble() string {
	if p.attempts.trouble != nil {
		return p.attempts.trouble.Error()
	}
	return "the scaling group was not done with what it had to do before"
}

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
	// Bundle is shared by the purchases that are made for one gang.
	Bundle string `json:"bundle,omitempty"`
}

// NoteOf returns the note of a scaling activity. It is false for an activity of anyone else, and for one without its note.
func NoteOf(activity alicloud.Activity) (Note, bool) {
	var note Note
	if json.Unmarshal([]byte(activity.Metadata), &note) != nil || note.Token == "" || note.Count <= 0 {
		return Note{}, false
	}
	return note, true
}

// IsOfAnother returns whether another installation than this owner wrote the note. An empty owner is unknown.
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
