// Package spotfirst has pods wait for spot capacity before on-demand instances are bought for them: as long as the tag
// gpu-spot.autoscaling/on-demand-after of a pool of on-demand instances says, or the annotation of the same name on the pod, and no longer than
// the deadline of its job allows. What a job with a deadline waits for is decided by what is expected to cost least until it is over, if enough is
// known of the market ([Deadlines]). A pod may also have on-demand instances only (gpu-spot.autoscaling/capacity), or some of the pods of a job
// (gpu-spot.autoscaling/on-demand-floor, see [Floors]), at once.
//
// A pod waits from its creation on. What replaces a reclaiming node, or lets a suspended job go on, is bought at once, unless its
// deadline has it wait, or it is never to be on-demand.
//
// It is a scaleup.Orchestrator around the Search of package scaleup, whose Gangs call it in each loop with the pods that have no place.
package spotfirst

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/processors"
	"gpu-spot-autoscaler/pricing/deadline"
)

const (
	// Never is longer than any pod waits.
	Never = time.Duration(math.MaxInt64)
	// restarts are how often a job may have to start again before it is over: on the spot instance that it loses, and on demand.
	restarts = 2
	// UntilLearnt is what Wait returns while it is read how much work is left, or computed what costs least. That is decided anew in the next loop.
	UntilLearnt = 10 * time.Second
	// untilLasting is what Wait returns while a pod waits for spot to last, which each loop decides anew.
	untilLasting = 10 * time.Minute
)

// Offerings knows the offerings, by the ids of their node groups.
type Offerings interface {
	// OnDemandAfter returns how long pods wait before instances of the offering are bought for them, and whether it is of on-demand instances.
	OnDemandAfter(groupID string) (wait time.Duration, onDemand bool)
}

// Policy says which offerings may be bought for which pods. It belongs to core's loop, and is not safe for concurrent use.
type Policy struct {
	config Config
	// spotAnyway allows spot instances for pods that should be on demand by now: there is nothing else.
	spotAnyway bool
	// done is what the jobs of pods have done, until a time: each is asked for each offering.
	done      map[types.UID]done
	doneUntil time.Time
}

// done is how much of its work a job has done, if that is known.
type done struct {
	work  time.Duration
	known bool
}

// Config is what a Policy needs. Offerings and Clock are required.
type Config struct {
	Offerings Offerings
	// Restart is how much useful time a job loses when it loses its instance.
	Restart time.Duration
	// HasRun returns whether the pod stands for one that has run already: it is on a reclaiming node, or its job is suspended. It may be nil.
	HasRun func(*apiv1.Pod) bool
	// Deadlines decides for pods whose jobs have to be over in time, while there is time to spare. It may be nil.
	Deadlines *Deadlines
	// Floors know which pods are to be on demand because of the on-demand floor of their job. It may be nil.
	Floors *Floors
	// Progress knows how much of the work that a pod states is saved. It may be nil.
	Progress Progress
	// Idle knows which pods may wait for spot that has just come back to last. It may be nil: then none does.
	Idle  *Idle
	Clock clock.PassiveClock
}

// NewPolicy returns a policy.
func NewPolicy(config Config) *Policy {
	if config.HasRun == nil {
		config.HasRun = func(*apiv1.Pod) bool { return false }
	}
	return &Policy{config: config}
}

// Wait returns how long the pod has yet to wait before the node group may be bought for it: 0 if it may be bought now. For on-demand instances a
// pod waits until it has waited long enough, or its deadline allows no more, or until that costs more than it saves if that is known. Spot instances
// are bought at once, except where it pays to wait until those that have just come back have lasted, and, once a reclaim would make the job late or
// if they would cost more, never. For a pod that is to be on demand only it is the reverse.
func (p *Policy) Wait(groupID string, pod *apiv1.Pod) time.Duration {
	now := p.config.Clock.Now()
	s := p.settingsOf(pod, now)
	slack, hasDeadline := s.slack(now)
	wait, onDemand := p.config.Offerings.OnDemandAfter(groupID)
	safe := slack - restarts*p.config.Restart
	choice := p.choose(pod, s, now)
	switch only := p.isOnDemandOnly(pod, s); {
	case choice == deadline.Learning:
		return UntilLearnt
	case only && onDemand:
		return 0
	case only:
		return Never
	case !onDemand && !p.spotAnyway && p.isLate([]*apiv1.Pod{pod}):
		return Never
	case !onDemand && choice == deadline.Wait:
		return untilLasting
	case !onDemand:
		return 0
	case s.wait == Never:
		return Never
	case choice == deadline.OnDemand, choice == deadline.Any:
		return 0
	case choice == deadline.Spot && s.wait < 0, choice == deadline.Wait:
		return max(0, safe)
	case p.config.HasRun(pod):
		return 0
	case s.wait >= 0:
		wait = s.wait
	}
	wait -= now.Sub(pod.CreationTimestamp.Time)
	if hasDeadline {
		wait = min(wait, safe)
	}
	return max(0, wait)
}

// Allows returns whether the node group may be bought for the pods: as soon as it may for one of them, of a gang with GPUs one that requests some, since a
// gang has waited as long as its first pod. If one of them must never have it, none has. Those that are on demand from the first do not count for the others, which have not waited.
func (p *Policy) Allows(groupID string, pods []*apiv1.Pod) bool {
	is := len(pods) == 0
	onDemand, others := p.Apart(pods)
	needGPUs := slices.ContainsFunc(others, processors.RequestsGPU)
	for _, pod := range others {
		switch p.Wait(groupID, pod) {
		case 0:
			is = is || !needGPUs || processors.RequestsGPU(pod) // a launcher that waits for nothing starts nothing
		case Never:
			return false
		}
	}
	for _, pod := range onDemand {
		if p.Wait(groupID, pod) == Never {
			return false
		}
	}
	return is || len(others) == 0
}

// Apart returns those of the pods for which only on-demand instances may be bought, and those for which spot instances may.
func (p *Policy) Apart(pods []*apiv1.Pod) (onDemand, others []*apiv1.Pod) {
	for _, pod := range pods {
		if p.OnDemandOnly(pod) {
			onDemand = append(onDemand, pod)
		} else {
			others = append(others, pod)
		}
	}
	return onDemand, others
}

// OnDemandOnly returns whether only on-demand instances may be bought for the pod, because it says so or for the on-demand floor of its job.
func (p *Policy) OnDemandOnly(pod *apiv1.Pod) bool {
	s, _ := settingsOf(pod)
	return p.isOnDemandOnly(pod, s)
}

func (p *Policy) isOnDemandOnly(pod *apiv1.Pod, s settings) bool {
	return s.onDemand || p.config.Floors.Has(pod)
}

// SpotOnly returns whether the pod must never be on demand.
func (p *Policy) SpotOnly(pod *apiv1.Pod) bool {
	s, _ := settingsOf(pod)
	return s.wait == Never
}

// AllowSpot calls buy with spot instances allowed for those of the pods that are to have none because of their deadline. It does not call it if
// there are no such pods. Those of ProvisioningRequests are none: core enters in a request what came of it, so it is tried once in a loop.
func (p *Policy) AllowSpot(pods []*apiv1.Pod, buy func()) {
	if !p.isLate(slices.DeleteFunc(slices.Clone(pods), processors.IsProvisioningRequest)) {
		return
	}
	p.spotAnyway = true
	defer func() { p.spotAnyway = false }()
	buy()
}

// settingsOf returns the settings of the pod, with the work that is left of its job. What the job of a pod that runs has done by now counts as saved: the
// pod is to be replaced, and its job is asked for that.
func (p *Policy) settingsOf(pod *apiv1.Pod, now time.Time) settings {
	s, _ := settingsOf(pod)
	if p.config.Progress == nil || s.work <= 0 || s.deadline.IsZero() || saysDone(pod) {
		return s
	}
	if !now.Before(p.doneUntil) {
		p.doneUntil, p.done = now.Add(choiceFor), map[types.UID]done{}
	}
	d, asked := p.done[pod.UID]
	if !asked {
		d.work, d.known = p.config.Progress.Done(pod)
		p.done[pod.UID] = d
	}
	s.work, s.isUnread = max(0, s.work-d.work), !d.known
	return s
}

// choose returns what may be bought for the pod by what is known of the market. Undecided are pods without a deadline, and those with no time to
// spare, which are to be on demand whatever it costs.
func (p *Policy) choose(pod *apiv1.Pod, s settings, now time.Time) deadline.Choice {
	slack, hasDeadline := s.slack(now)
	isRequest := processors.IsProvisioningRequest(pod) // core enters in a request what came of it, so that it does not wait for what is being learnt
	switch {
	case !hasDeadline, s.wait == Never, p.isOnDemandOnly(pod, s):
		return deadline.Undecided
	case s.isUnread && !isRequest:
		return deadline.Learning
	case slack < restarts*p.config.Restart:
		return deadline.Undecided
	}
	// Whoever says for how long to wait before on-demand is bought wants it no later, nor in place of spot that is there.
	return p.config.Deadlines.choose(pod, s, slack, s.wait < 0 && p.config.Idle.Has(pod))
}

// isLate returns whether one of the pods is to have no spot instances: because its deadline is close, or because they would cost more until then.
func (p *Policy) isLate(pods []*apiv1.Pod) bool {
	now := p.config.Clock.Now()
	return slices.ContainsFunc(pods, func(pod *apiv1.Pod) bool {
		s := p.settingsOf(pod, now)
		slack, hasDeadline := s.slack(now)
		isClose := hasDeadline && !s.isUnread && slack < restarts*p.config.Restart && s.wait != Never && !p.isOnDemandOnly(pod, s)
		return isClose || p.choose(pod, s, now) == deadline.OnDemand
	})
}

// split divides the pods into those for which the same groups may be bought. First come those that may only be on demand, since the others fill what
// they leave, and the reverse would have them on spot; then those with the least choice, which would find nothing left of it otherwise. Pods that are
// bought for together would wait for each other, or get what they do not want.
func (p *Policy) split(groups []cloudprovider.NodeGroup, pods []*apiv1.Pod) (parts [][]*apiv1.Pod) {
	alike := p.differing(groups)
	index := map[choices]int{}
	kinds := map[*apiv1.Pod]choices{} // of the first pod of each part
	for _, pod := range pods {
		has := p.choicesOf(alike, pod)
		at, known := index[has]
		if !known {
			at = len(parts)
			index[has], kinds[pod] = at, has
			parts = append(parts, nil)
		}
		parts[at] = append(parts[at], pod)
	}
	slices.SortStableFunc(parts, func(a, b []*apiv1.Pod) int {
		first, second := kinds[a[0]], kinds[b[0]]
		return cmp.Or(cmp.Compare(first.spot, second.spot), cmp.Compare(first.onDemand, second.onDemand))
	})
	return parts
}

// Choices returns a function that counts of how many kinds of the groups instances may be bought for a pod now. Those of on-demand instances count
// for more than spot, so that a pod for which one of these may be bought counts for more than one that has to wait for spot.
func (p *Policy) Choices(groups []cloudprovider.NodeGroup) func(*apiv1.Pod) int {
	alike := p.differing(groups)
	known := map[*apiv1.Pod]int{} // it is asked in every comparison
	return func(pod *apiv1.Pod) int {
		count, counted := known[pod]
		if !counted {
			has := p.choicesOf(alike, pod)
			count = 2*has.onDemand + has.spot
			known[pod] = count
		}
		return count
	}
}

// differing returns one group of each kind that the policy tells apart.
func (p *Policy) differing(groups []cloudprovider.NodeGroup) (ids []string) {
	type kind struct {
		wait     time.Duration
		onDemand bool
	}
	seen := sets.New[kind]()
	for _, group := range groups {
		wait, onDemand := p.config.Offerings.OnDemandAfter(group.Id())
		if k := (kind{wait, onDemand}); !seen.Has(k) {
			seen.Insert(k)
			ids = append(ids, group.Id())
		}
	}
	return ids
}

// choices are which of the groups may be bought for a pod, as a text of a digit for each, and how many of those are of spot and of on-demand instances.
type choices struct {
	allowed        string
	spot, onDemand int
}

func (p *Policy) choicesOf(groups []string, pod *apiv1.Pod) (has choices) {
	var digits strings.Builder
	for _, id := range groups {
		_, isOnDemand := p.config.Offerings.OnDemandAfter(id)
		switch {
		case p.Wait(id, pod) > 0:
			digits.WriteByte('0')
			continue
		case isOnDemand:
			has.onDemand++
		default:
			has.spot++
		}
		digits.WriteByte('1')
	}
	has.allowed = digits.String()
	return has
}
