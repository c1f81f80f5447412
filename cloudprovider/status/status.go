// Package status is what the autoscaler says of itself as JSON: the pools and what can be bought in them, purchases under
// way, reclaims, and what is wrong. It is types alone, for those who write it and those who read it.
//
// Within a version fields are added, never changed or taken away, so readers have to pass over what they do not know. Times
// are RFC 3339 in UTC; prices are per instance and hour, in the currency of the account.
package status

import (
	"time"

	"gpu-spot-autoscaler/cloudprovider/api"
)

const (
	// APIVersion and Kind are those of a Status.
	APIVersion = api.Prefix + "v1"
	Kind       = "Status"
	// Path is where it is served, and the nonResourceURL that a reader has to be allowed to get. It must not begin with
	// /api, which system:discovery allows everybody who is known.
	Path = "/gpu-spot/v1/status"
)

// Status is the answer of a replica. One that does not lead says nothing but who does.
type Status struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Time is when it was so.
	Time time.Time `json:"time"`
	// Replica is the pod that answers, Leader the one that leads; empty where none does. Outside of a cluster they are
	// identities in the election.
	Replica string `json:"replica"`
	Leader  string `json:"leader"`
	// Refreshed is when the pools were last read; null before the first time.
	Refreshed *time.Time   `json:"refreshed"`
	Pools     []Pool       `json:"pools"`
	Reclaims  []Reclaim    `json:"reclaims"`
	Jobs      []JobReclaim `json:"jobs"`
	Problems  []Problem    `json:"problems"`
}

// Pool is a scaling group.
type Pool struct {
	// ID is the scaling group.
	ID string `json:"id"`
	// Targeting is how it is made to deliver one offering: single, request or whole.
	Targeting string `json:"targeting"`
	MinSize   int    `json:"minSize"`
	MaxSize   int    `json:"maxSize"`
	// Instances that serve, and those that do not, none of which is counted twice.
	Live       int `json:"live"`
	Purchased  int `json:"purchased"` // and not there yet
	Reclaiming int `json:"reclaiming"`
	Removing   int `json:"removing"`
	Standby    int `json:"standby"`
	Stopped    int `json:"stopped"`

	Offerings []Offering `json:"offerings"`
	Purchases []Purchase `json:"purchases"`
}

// Offering is one way to buy in a pool, and a node group of Cluster Autoscaler.
type Offering struct {
	// ID is that of the node group.
	ID             string `json:"id"`
	InstanceType   string `json:"instanceType"`
	Zone           string `json:"zone"`
	PurchaseOption string `json:"purchaseOption"` // spot or on-demand
	// Live, Purchased and Failed add up to the node group's target. Failed ones did not come, and Cluster Autoscaler has not
	// taken note of that yet.
	Live      int `json:"live"`
	Purchased int `json:"purchased"`
	Failed    int `json:"failed"`
	// Room is how many more could be bought now; Hindrance is why none, empty where some could: out-of-order, retired, price
	// or size.
	Room      int    `json:"room"`
	Hindrance string `json:"hindrance,omitempty"`
	// Price is null while it is unknown, PriceCap where there is none.
	Price    *float64 `json:"price"`
	PriceCap *float64 `json:"priceCap"`
}

// What an offering cannot be bought for.
const (
	HindranceOutOfOrder = "out-of-order" // the scaling group takes no purchases
	HindranceRetired    = "retired"      // the scaling group launches it no more, instances of it are left
	HindrancePrice      = "price"        // it is above its cap, or too old to tell
	HindranceSize       = "size"         // the pool or the scaling group is at its maximum
)

// Purchase is one that has not all come.
type Purchase struct {
	Offering string `json:"offering"`
	Count    int    `json:"count"`
	// Missing is how many of them are still to come.
	Missing   int       `json:"missing"`
	Requested time.Time `json:"requested"`
	// Accepted is when the scaling group took it; null while it waits for its turn.
	Accepted *time.Time `json:"accepted"`
	// Activity is the scaling activity, where the scaling group named one.
	Activity string `json:"activity,omitempty"`
}

// Reclaim is that of one Node.
type Reclaim struct {
	Node     string `json:"node"`
	Instance string `json:"instance"`
	// Phase is where it has got to.
	Phase string `json:"phase"`
	// Source is which of the sources spoke first, and Noticed when it did.
	Source  string    `json:"source"`
	Noticed time.Time `json:"noticed"`
	// Deadline is when the instance is released; it is an estimate unless it is Stated by a source.
	Deadline time.Time `json:"deadline"`
	Stated   bool      `json:"stated"`
	// DeletedFrom is when pods that no eviction has moved are deleted.
	DeletedFrom time.Time `json:"deletedFrom"`
	// Pods is how many are still to leave.
	Pods int `json:"pods"`
}

// Phases of a Reclaim.
const (
	PhaseNoticed  = "noticed"  // the Node is not marked yet
	PhaseDraining = "draining" // it is marked, and pods are on it that wait for their job or are being evicted
	PhaseDrained  = "drained"  // it is without pods
)

// JobReclaim is what all reclaims together mean for one job.
type JobReclaim struct {
	System    string `json:"system"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Phase is where it has got to, Acknowledged whether it has said that its work is saved.
	Phase        string    `json:"phase"`
	Acknowledged bool      `json:"acknowledged"`
	Requested    time.Time `json:"requested"`
	// Deadline is when the first of its Nodes is released.
	Deadline time.Time `json:"deadline"`
	// Pods is how many lose their Node.
	Pods int `json:"pods"`
}

// Phases of a JobReclaim.
const (
	JobPhaseWarning  = "warning"  // it is being told
	JobPhaseWaiting  = "waiting"  // for its acknowledgement, its replacement or the end of the wait
	JobPhaseDeciding = "deciding" // its system is asked to shrink or suspend it
	JobPhaseLeaving  = "leaving"  // its pods leave
)

// Problem is something that stands between the autoscaler and its work until somebody, or time, mends it.
type Problem struct {
	// Source is what it was met in: refresh, poll or pools.
	Source string `json:"source"`
	// Pool is the scaling group that it is about, empty where it is about no pool.
	Pool   string `json:"pool,omitempty"`
	Reason string `json:"reason"`
	// Message is the cause and what to do about it.
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
}
