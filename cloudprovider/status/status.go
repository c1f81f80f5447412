// Package status has the types of the autoscaler's status, which it serves as JSON: the pools and what can be bought in them,
// purchases under way, reclaims, and problems.
//
// Within a version fields are added, never changed or removed, so readers have to ignore fields that they do not know. Times
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
	// Path is where the status is served, and the nonResourceURL that a reader needs permission to get. It must not begin with
	// /api, which system:discovery allows to everybody who is authenticated.
	Path = "/gpu-spot/v1/status"
)

// Status is the answer of a replica. A replica that does not lead fills in only the fields down to Undescribed.
type Status struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Time is when the status was made.
	Time time.Time `json:"time"`
	// Replica is the pod that answers. Leader is the pod that leads, empty where none does. Outside of a cluster both are
	// identities in the leader election.
	Replica string `json:"replica"`
	Leader  string `json:"leader"`
	// Undescribed says that the replica holds the lease, and yet fills in nothing further: it has not listed the objects of the cluster yet, or is
	// about to end.
	Undescribed bool `json:"undescribed,omitempty"`
	// Refreshed is when the pools were last read; null before the first time.
	Refreshed *time.Time `json:"refreshed"`
	// Currency is that of all money, empty while it is not known.
	Currency string `json:"currency,omitempty"`
	Pools    []Pool `json:"pools"`
	// Pending are pods for which nothing is bought yet, those that wait the longest first. PendingTotal is how many there are: of many, the list
	// has only the first.
	Pending      []PendingPod `json:"pending"`
	PendingTotal int          `json:"pendingTotal"`
	// PendingUnknown says why it is not known which pods wait, so that none are listed; empty if it is known.
	PendingUnknown string `json:"pendingUnknown,omitempty"`
	// Spend is null before anything is accounted for.
	Spend    *Spend       `json:"spend"`
	Reclaims []Reclaim    `json:"reclaims"`
	Jobs     []JobReclaim `json:"jobs"`
	Problems []Problem    `json:"problems"`
	// DryRun is null unless the autoscaler only says what it would do.
	DryRun *DryRun `json:"dryRun,omitempty"`
}

// Pool is a scaling group.
type Pool struct {
	// ID is that of the scaling group.
	ID string `json:"id"`
	// Targeting is how the pool is made to deliver one offering: single, request or whole.
	Targeting string `json:"targeting"`
	MinSize   int    `json:"minSize"`
	MaxSize   int    `json:"maxSize"`
	// The following are numbers of instances. No instance counts twice.

	Live       int `json:"live"`
	Purchased  int `json:"purchased"` // and not delivered yet
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
	// Live, Purchased and Failed add up to the target size of the node group. Failed instances were not delivered, and Cluster
	// Autoscaler has not deleted them yet.
	Live      int `json:"live"`
	Purchased int `json:"purchased"`
	Failed    int `json:"failed"`
	// Room is how many more instances could be bought now. BlockedBy says why none can; empty if some can.
	Room      int    `json:"room"`
	BlockedBy string `json:"blockedBy,omitempty"`
	// Price is null while it is unknown, PriceCap where there is none.
	Price    *float64 `json:"price"`
	PriceCap *float64 `json:"priceCap"`
	// UsefulCost is what an hour of useful work is expected to cost, by which offerings are compared; null while it is unknown. It comes from
	// LifeHours, for how long a spot instance is expected to be kept, and Refusal, the probability that there is none to buy.
	UsefulCost *float64 `json:"usefulCost"`
	LifeHours  *float64 `json:"lifeHours"`
	Refusal    *float64 `json:"refusal"`
	// Shortage is null unless a purchase came short lately, of any pool.
	Shortage *Shortage `json:"shortage,omitempty"`
}

// Shortage is what a purchase that came short has shown of the stock of an offering.
type Shortage struct {
	// Pool asked for Asked instances and got Delivered.
	Pool      string `json:"pool"`
	Asked     int    `json:"asked"`
	Delivered int    `json:"delivered"`
	// Left is how many more there may be. Held is how many of the offering all pools had then.
	Left int `json:"left"`
	Held int `json:"held"`
	// Since is when the purchase was found to have come short, Until is how long that counts.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
}

// Reasons why nothing can be bought of an offering.
const (
	BlockedOutOfOrder = "out-of-order" // the scaling group takes no purchases
	BlockedRetired    = "retired"      // the scaling group does not launch it any more, but instances of it are left
	BlockedPrice      = "price"        // the price is above the cap, or too old to be compared with it
	BlockedSpend      = "spend"        // the instances of the pool cost as much in an hour as they may, or a price is unknown
	BlockedStock      = "stock"        // a purchase of any pool came short lately because the instance type is out of stock in the zone
	BlockedSize       = "size"         // the pool or the scaling group is at its maximum
)

// Purchase is a purchase of which instances are not delivered yet.
type Purchase struct {
	Offering string `json:"offering"`
	Count    int    `json:"count"`
	// Missing is how many of them are not delivered yet.
	Missing   int       `json:"missing"`
	Requested time.Time `json:"requested"`
	// Accepted is when the scaling group accepted it; null while it waits for its turn.
	Accepted *time.Time `json:"accepted"`
	// Activity is the scaling activity, where the scaling group named one.
	Activity string `json:"activity,omitempty"`
}

// Reclaim is the reclaim of one Node.
type Reclaim struct {
	Node     string `json:"node"`
	Instance string `json:"instance"`
	// Phase is how far it has got.
	Phase string `json:"phase"`
	// Source is the source of the first notice, Noticed is when it was made.
	Source  string    `json:"source"`
	Noticed time.Time `json:"noticed"`
	// Deadline is when the instance is released. It is an estimate unless a source has Stated it.
	Deadline time.Time `json:"deadline"`
	Stated   bool      `json:"stated"`
	// DeletedFrom is when pods are deleted that could not be evicted.
	DeletedFrom time.Time `json:"deletedFrom"`
	// Pods is how many pods have to leave the Node.
	Pods int `json:"pods"`
}

// Phases of a Reclaim.
const (
	PhaseNoticed  = "noticed"  // the Node is not marked yet
	PhaseDraining = "draining" // the Node is marked, and has pods that wait for their job or are being evicted
	PhaseDrained  = "drained"  // the Node has no pods any more
)

// JobReclaim is what all reclaims together do to one job, or to one of its units where those are reclaimed on their own: a job has several
// entries then.
type JobReclaim struct {
	System    string `json:"system"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Phase is how far it has got. Acknowledged says whether the job has answered that its checkpoint is saved.
	Phase        string    `json:"phase"`
	Acknowledged bool      `json:"acknowledged"`
	Requested    time.Time `json:"requested"`
	// Deadline is when the first of the job's Nodes is released.
	Deadline time.Time `json:"deadline"`
	// Pods is how many pods of the job, or of the unit, lose their Node.
	Pods int `json:"pods"`
}

// Phases of a JobReclaim.
const (
	JobPhaseWarning  = "warning"  // its pods are being told
	JobPhaseWaiting  = "waiting"  // for its acknowledgement, its replacement or the end of the wait
	JobPhaseDeciding = "deciding" // its job system is asked to shrink or suspend it
	JobPhaseLeaving  = "leaving"  // its pods leave
)

// Reasons why it is not known which pods wait.
const (
	PendingUnknownServed = "served" // the Cluster Autoscaler that is served knows, as it decides for which pods to buy
	PendingUnknownFailed = "failed" // the pods could not be listed
)

// PendingPod is a pod that waits for an instance.
type PendingPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Since is when the pod was created.
	Since time.Time `json:"since"`
	// Reason is the code of the reason that is the easiest to mend, as in the answer of the command explain, and Message says it in words.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Spend is what instances cost.
type Spend struct {
	// PerHour is what the instances that are in service cost in an hour, as far as their prices are known.
	PerHour float64 `json:"perHour"`
	// Cost is what was paid since Since, OnDemand what the same instances would have cost on demand.
	Since    time.Time `json:"since"`
	Cost     float64   `json:"cost"`
	OnDemand float64   `json:"onDemand"`
}

// DryRun is what an autoscaler would have done that changes nothing.
type DryRun struct {
	// Decisions are the last hundred, the oldest first.
	Decisions []Decision `json:"decisions"`
}

// Decision is a purchase or a removal that was not made.
type Decision struct {
	Time time.Time `json:"time"`
	// Action is the API action that was not sent: ScaleWithAdjustment and RunInstances buy, RemoveInstances and DeleteInstances remove.
	Action string `json:"action"`
	Pool   string `json:"pool,omitempty"`
	Count  int    `json:"count"`
	// InstanceType, Zone and SpotStrategy are of what would have been bought, Instances are those that would have been removed.
	InstanceType string   `json:"instanceType,omitempty"`
	Zone         string   `json:"zone,omitempty"`
	SpotStrategy string   `json:"spotStrategy,omitempty"`
	Instances    []string `json:"instances,omitempty"`
}

// Problem keeps the autoscaler from its work until somebody fixes it, or until it passes.
type Problem struct {
	// Source is the work in which the problem was found: refresh, poll, pools or cluster.
	Source string `json:"source"`
	// Pool is the scaling group; empty for a problem of no particular pool.
	Pool   string `json:"pool,omitempty"`
	Reason string `json:"reason"`
	// Message says what is wrong and what to do about it.
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
}
