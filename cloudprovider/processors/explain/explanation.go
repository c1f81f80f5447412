package explain

import (
	"time"

	"gpu-spot-autoscaler/cloudprovider/reasons"
	"gpu-spot-autoscaler/cloudprovider/status"
)

const (
	// Path is where the leader serves explanations, and the nonResourceURL that a reader needs permission to get. The query names
	// the pod: namespace and name.
	Path = "/gpu-spot/v1/explain"
	// APIVersion and Kind are those of an Explanation.
	APIVersion = status.APIVersion
	Kind       = "PodExplanation"
)

// Explanation says why nothing is bought for a pod, offering by offering. Fields may be added, but are not changed or removed. Lists are
// never null.
type Explanation struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Time       time.Time `json:"time"`
	Namespace  string    `json:"namespace"`
	Name       string    `json:"name"`
	// Summary says in a sentence what the pod waits for, Step what the easiest step is that would mend it; Step is empty if there is
	// none.
	Summary string `json:"summary"`
	Step    string `json:"step,omitempty"`
	// Reasons concern the pod whatever the offering.
	Reasons []*reasons.Reason `json:"reasons"`
	// Offerings are all that there are, those that are the easiest to have first.
	Offerings []Offering `json:"offerings"`
	// Problems are those of pools.
	Problems []*reasons.Reason `json:"problems"`
	Currency string            `json:"currency,omitempty"`
}

// Offering is what stands in the way of one offering, or of a pool that is one node group.
type Offering struct {
	ID string `json:"id"`
	// Fits is whether the pod would fit a new node of it.
	Fits bool `json:"fits"`
	// Price is per instance-hour, null while it is not known.
	Price *float64 `json:"price"`
	// Reasons is empty if an instance could be bought for the pod now.
	Reasons []*reasons.Reason `json:"reasons"`
}

// hardest returns the reason that is the hardest to mend, nil if there is none.
func (o *Offering) hardest() *reasons.Reason {
	var hardest *reasons.Reason
	for _, reason := range o.Reasons {
		if hardest == nil || reasons.Easier(reason, hardest) > 0 {
			hardest = reason
		}
	}
	return hardest
}
