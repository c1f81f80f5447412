// Package reasons has the reasons for which nothing is bought for a pod: a code that programs can rely on, a sentence for people, and
// the step that would mend it. The provider and the processors give them; the Events of pods and the command explain show them.
package reasons

import "fmt"

// Code identifies the kind of a reason. Codes are part of the JSON of the command explain: they are added, but never changed.
type Code string

// Reasons that concern one offering.
const (
	// PriceCap: the price is above the cap.
	PriceCap Code = "price-cap"
	// NoPrice: there is a cap, and no recent price to compare with it.
	NoPrice Code = "no-price"
	// SpendCap: the instances of the pool cost as much in an hour as they may.
	SpendCap Code = "spend-cap"
	// NoStock: a purchase came short lately, and it is not tried again yet.
	NoStock Code = "no-stock"
	// PoolMaximum: the pool has its maximum of instances.
	PoolMaximum Code = "pool-maximum"
	// GroupMaximum: the scaling group has its maximum, with instances that are no capacity of the pool.
	GroupMaximum Code = "scaling-group-maximum"
	// OutOfOrder: the scaling group takes no purchases.
	OutOfOrder Code = "pool-out-of-order"
	// Retired: the scaling group does not launch the offering any more.
	Retired Code = "retired"
	// DoesNotFit: the simulated scheduler does not place the pod on a node of the offering.
	DoesNotFit Code = "does-not-fit"
	// GPUPodsOnly: the offering is bought only for pods that request a GPU.
	GPUPodsOnly Code = "gpu-pods-only"
	// WaitsForSpot: the pod waits for spot instances before on-demand ones are bought for it.
	WaitsForSpot Code = "waits-for-spot"
	// WaitsToLast: spot instances have just come back, and the job of the pod has time to wait until they have lasted.
	WaitsToLast Code = "waits-for-spot-to-last"
	// SpotOnly: the pod never gets on-demand instances.
	SpotOnly Code = "spot-only"
	// OnDemandOnly: the pod gets no spot instances.
	OnDemandOnly Code = "on-demand-only"
	// DeadlineClose: the deadline of the pod is too close for a spot instance, or spot would cost more until then, counting what its time is said
	// to be worth.
	DeadlineClose Code = "deadline-close"
	// Backoff: the last purchase failed, and Cluster Autoscaler waits before the next.
	Backoff Code = "backoff"
	// ClusterLimit: a limit of Cluster Autoscaler for the whole cluster is reached.
	ClusterLimit Code = "cluster-limit"
	// NotAtOnce: a node group has no room for all pods that are bought for together.
	NotAtOnce Code = "not-all-at-once"
	// Other: a reason of Cluster Autoscaler, in its words.
	Other Code = "other"
)

// Reasons that concern the pod, whatever the offering.
const (
	// NotFound: there is no such pod, as far as the leader knows.
	NotFound Code = "not-found"
	// HasNode: the pod is not pending.
	HasNode Code = "has-node"
	// Ended: the pod has ended, or is being deleted.
	Ended Code = "ended"
	// Gated: scheduling gates hold the pod.
	Gated Code = "scheduling-gated"
	// LowPriority: Cluster Autoscaler buys nothing for pods of this priority.
	LowPriority Code = "low-priority"
	// DaemonSetPod: nothing is bought for pods of DaemonSets.
	DaemonSetPod Code = "daemonset-pod"
	// ResourceClaims: the pod claims devices by Dynamic Resource Allocation.
	ResourceClaims Code = "resource-claims"
	// HasPlace: the pod fits a node that there is or that is on its way.
	HasPlace Code = "has-place"
	// Bought: an instance was bought for the pod in the last loop.
	Bought Code = "bought"
	// Settling: more pods of the same kind may arrive within moments.
	Settling Code = "settling"
	// GangIncomplete: not all pods of the gang exist.
	GangIncomplete Code = "gang-incomplete"
	// GangDoesNotFit: the offerings together have no room for the gang.
	GangDoesNotFit Code = "gang-does-not-fit"
	// MaximumWaitOver: the job has waited for its maximum wait.
	MaximumWaitOver Code = "maximum-wait-over"
	// PoolProblem: a pool cannot be used at all.
	PoolProblem Code = "pool-problem"
	// NoPools: there is nothing to buy from.
	NoPools Code = "no-pools"
	// NotJudged: no loop has looked at the pod yet.
	NotJudged Code = "not-judged"
)

// Reason is why nothing is bought for a pod. It is immutable.
type Reason struct {
	Code Code `json:"code"`
	// Message says what is so, without a full stop.
	Message string `json:"message"`
	// Mend is a sentence that says what would change it, empty where nobody can.
	Mend string `json:"mend,omitempty"`
	// Excess orders reasons of one code: that with the least is the easiest to mend.
	Excess float64 `json:"-"`
}

// Obstructed is a node group that can say why no more instances can be bought, nil if some can.
type Obstructed interface{ Obstacle() *Reason }

// New returns a reason. The message and its arguments are those of fmt.Sprintf.
func New(code Code, mend, format string, args ...any) *Reason {
	return &Reason{Code: code, Mend: mend, Message: fmt.Sprintf(format, args...)}
}

// String returns the message, or "" for no reason.
func (r *Reason) String() string {
	if r == nil {
		return ""
	}
	return r.Message
}

// Reasons returns the message: a Reason is a status.Reasons of Cluster Autoscaler.
func (r *Reason) Reasons() []string { return []string{r.Message} }

// effort orders the codes by what it takes to mend them: to wait, to change a tag, to change the pod. Codes that are not listed come
// after tags and before what nobody can mend.
var effort = map[Code]int{
	Settling: 1, HasPlace: 1, Bought: 1, NotJudged: 1, WaitsForSpot: 2, WaitsToLast: 2, NoStock: 2, Backoff: 2, NoPrice: 3,
	PriceCap: 4, SpendCap: 5, PoolMaximum: 5, GroupMaximum: 5, GPUPodsOnly: 5, SpotOnly: 6, OnDemandOnly: 6, ClusterLimit: 6, OutOfOrder: 7, GangIncomplete: 7,
	NotAtOnce: 8, GangDoesNotFit: 8, DeadlineClose: 8, MaximumWaitOver: 8, DoesNotFit: 20, ResourceClaims: 20, Retired: 30,
}

const otherEffort = 10

// Effort returns how hard the reason is to mend, compared with others. It is 0 for no reason.
func (r *Reason) Effort() int {
	if r == nil {
		return 0
	}
	if known, ok := effort[r.Code]; ok {
		return known
	}
	return otherEffort
}

// Easier returns a negative number if a is easier to mend than b, and a positive one if b is.
func Easier(a, b *Reason) int {
	if by := a.Effort() - b.Effort(); by != 0 {
		return by
	}
	switch {
	case a == nil || b == nil || a.Excess == b.Excess:
		return 0
	case a.Excess < b.Excess:
		return -1
	}
	return 1
}
