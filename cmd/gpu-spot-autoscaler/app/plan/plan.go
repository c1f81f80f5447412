// Package plan is what the command "plan" reads and says: the pods that the objects of a file would have in the cluster, and what the autoscaler
// would buy for them.
//
// It decides nothing. Package app runs the autoscaler itself with what is read here, in a dry run, and reads the purchases back.
package plan

import (
	"time"

	"gpu-spot-autoscaler/cloudprovider/status"
	"gpu-spot-autoscaler/pricing"
)

const (
	// APIVersion and Kind are those of a Plan.
	APIVersion = status.APIVersion
	Kind       = "PurchasePlan"
)

// Plan is what would be bought. Fields may be added, but are not changed or removed. Lists are never null.
type Plan struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Time       time.Time `json:"time"`
	// Currency is that of all money, empty while it is not known.
	Currency string `json:"currency,omitempty"`
	// Purchase is what would be bought for all jobs together. RunnerUp is what would be bought if nothing of that could be, null if that is
	// nothing too, or if nothing would be bought at all.
	Purchase Purchase  `json:"purchase"`
	RunnerUp *Purchase `json:"runnerUp"`
	Jobs     []Outcome `json:"jobs"`
	Notes    []string  `json:"notes"`
}

// Purchase is instances that are bought for the same jobs.
type Purchase struct {
	Items []Item `json:"items"`
	// PricePerHour is that of all instances together, null if one of them has no known price.
	PricePerHour *float64 `json:"pricePerHour"`
	// CostToFinish is what is expected to be paid until the job is over, null unless the file has one job and that states its work.
	CostToFinish *float64 `json:"costToFinish"`
}

// Item is instances of one offering.
type Item struct {
	// Offering is the id of the node group.
	Offering       string `json:"offering"`
	Pool           string `json:"pool"`
	InstanceType   string `json:"instanceType"`
	Zone           string `json:"zone"`
	PurchaseOption string `json:"purchaseOption"`
	Count          int    `json:"count"`
	// Price is per instance and hour, null while it is unknown.
	Price *float64 `json:"price"`
	// LifeHours is for how long a spot instance is expected to be kept, null for others.
	LifeHours *float64 `json:"lifeHours"`
}

// Outcome is what becomes of the pods of one job.
type Outcome struct {
	File      string `json:"file"`
	Document  int    `json:"document"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Pods is how many there would be. HavePlace of them fit nodes that there are or that are on their way, NewNodes get nodes of the purchase.
	Pods      int `json:"pods"`
	HavePlace int `json:"havePlace"`
	NewNodes  int `json:"newNodes"`
	// Waiting are the others.
	Waiting []Waiting `json:"waiting"`
	// Work is how much useful time the job states that it needs, empty if it does not.
	Work string `json:"work,omitempty"`
}

// Waiting is pods for which nothing would be bought now.
type Waiting struct {
	Pods int `json:"pods"`
	// Pod is one of them. Summary says what it would wait for, Step the easiest step that would mend it, in the words of the command explain.
	Pod     string `json:"pod,omitempty"`
	Summary string `json:"summary"`
	Step    string `json:"step,omitempty"`
}

// NewPurchase adds up the items. The work is that of the job, and inGang is whether the job can do nothing without all of them.
func NewPurchase(items []Item, work time.Duration, inGang bool, terms pricing.Terms) Purchase {
	p := Purchase{Items: items, PricePerHour: new(float64), CostToFinish: new(float64)}
	spot := 0
	for _, item := range items {
		if item.LifeHours != nil {
			spot += item.Count
		}
	}
	for _, item := range items {
		if item.Price == nil {
			p.PricePerHour, p.CostToFinish = nil, nil
			return p
		}
		var kept time.Duration
		if item.LifeHours != nil {
			kept = time.Duration(*item.LifeHours * float64(time.Hour))
			if inGang {
				kept /= time.Duration(spot)
			}
		}
		*p.PricePerHour += float64(item.Count) * *item.Price
		*p.CostToFinish += float64(item.Count) * pricing.CostToFinish(*item.Price, kept, work, terms)
	}
	if work <= 0 {
		p.CostToFinish = nil
	}
	return p
}
