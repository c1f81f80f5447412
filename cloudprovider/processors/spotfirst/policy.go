// Package spotfirst has pods wait for spot capacity before on-demand instances are bought for them: as long as the tag
// gpu-spot.autoscaling/on-demand-after of a pool of on-demand instances says, or the annotation of the same name on the pod, and no longer than
// the deadline of its job allows. What a job with a deadline waits for is decided by what is expected to cost least until it is over, if enough is
// known of the market ([Deadlines]).
//
// A pod waits from its creation on. What replaces a reclaiming node, or lets a suspended job go on, is bought at once, unless its
// deadline has it wait, or it is never to be on-demand.
//
// It is a scaleup.Orchestrator around the Search of package scaleup, whose Gangs call it in each loop with the pods that have no place.
package spotfirst

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors"
	"gpu-spot-autoscaler/pricing/deadline"
)

const (
	// Never is longer than any pod waits.
	Never = time.Duration(math.MaxInt64)
	// restarts are how often a job may have to start again before it is over: on the spot instance that it loses, and on demand.
	restarts = 2
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
	Clock     clock.PassiveClock
}

// NewPolicy returns a policy.
func NewPolicy(config Config) *Policy {
	if config.HasRun == nil {
		config.HasRun = func(*apiv1.Pod) bool { return false }
	}
	return &Policy{config: config}
}

// MalformedError is why an annotation of a pod is ignored.
type MalformedError struct{ Key, Value, Want string }

func (e *MalformedError) Error() string {
	return fmt.Sprintf("annotation %s=%q is ignored: it is not %s", e.Key, e.Value, e.Want)
}

// settings are what the annotations of a pod ask for. Durations are negative, and the time is zero, if it does not say.
type settings struct {
	wait     time.Duration
	deadline time.Time
	work     time.Duration
	// move is whether the pod is to move from an on-demand instance to a spot one, nil if it does not say.
	move *bool
}

// settingsOf returns the settings of the pod, without the annotations that cannot be read. The error joins one *MalformedError for each of them.
func settingsOf(pod *apiv1.Pod) (settings, error) {
	s := settings{wait: -1, work: -1}
	if len(pod.Annotations) == 0 {
		return s, nil
	}
	var errs []error
	read := func(key, want string, parse func(value string) bool) {
		if value, ok := pod.Annotations[key]; ok && !parse(value) {
			errs = append(errs, &MalformedError{key, value, want})
		}
	}
	duration := func(to *time.Duration) func(string) bool {
		return func(value string) bool {
			parsed, err := time.ParseDuration(value)
			if err != nil || parsed < 0 {
				return false
			}
			*to = parsed
			return true
		}
	}
	read(api.AnnotationOnDemandAfter, "a duration such as 10m, or "+api.OnDemandNever, func(value string) bool {
		if strings.EqualFold(value, api.OnDemandNever) {
			s.wait = Never
			return true
		}
		return duration(&s.wait)(value)
	})
	read(api.AnnotationDeadline, "a time such as 2026-12-31T18:00:00Z", func(value string) bool {
		parsed, err := time.Parse(time.RFC3339, value)
		if err == nil {
			s.deadline = parsed
		}
		return err == nil
	})
	read(api.AnnotationWork, "a duration such as 24h", duration(&s.work))
	read(api.AnnotationMoveToSpot, "true or false", func(value string) bool {
		parsed, err := strconv.ParseBool(value)
		if err == nil {
			s.move = &parsed
		}
		return err == nil
	})
	return s, errors.Join(errs...)
}

// WorkOf returns how much useful time the job of the pod needs, and false if the pod does not say so.
func WorkOf(pod *apiv1.Pod) (time.Duration, bool) {
	s, _ := settingsOf(pod)
	return s.work, s.work >= 0
}

// slack returns how much longer than the work the time is that is left until the deadline; false if the pod states none.
func (s settings) slack(now time.Time) (time.Duration, bool) {
	return s.deadline.Sub(now) - s.work, !s.deadline.IsZero() && s.work >= 0
}

// Wait returns how long the pod has yet to wait before the node group may be bought for it: 0 if it may be bought now. For on-demand instances a
// pod waits until it has waited long enough, or its deadline allows no more, or until that costs more than it saves if that is known. Spot instances
// are bought at once, and, once a reclaim would make the job late or if they would cost more, never.
func (p *Policy) Wait(groupID string, pod *apiv1.Pod) time.Duration {
	now := p.config.Clock.Now()
	s, _ := settingsOf(pod)
	slack, hasDeadline := s.slack(now)
	wait, onDemand := p.config.Offerings.OnDemandAfter(groupID)
	safe := slack - restarts*p.config.Restart
	choice := p.choose(pod, s, now)
	switch {
	case !onDemand && !p.spotAnyway && p.isLate([]*apiv1.Pod{pod}):
		return Never
	case !onDemand:
		return 0
	case s.wait == Never:
		return Never
	case choice == deadline.OnDemand, choice == deadline.Any:
		return 0
	case choice == deadline.Spot && s.wait < 0:
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

// Allows returns whether the node group may be bought for the pods: as soon as it may for one of them, since a gang has waited as long as its
// first pod. If one of them must never have it, none has.
func (p *Policy) Allows(groupID string, pods []*apiv1.Pod) bool {
	is := len(pods) == 0
	for _, pod := range pods {
		switch p.Wait(groupID, pod) {
		case 0:
			is = true
		case Never:
			return false
		}
	}
	return is
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

// choose returns what may be bought for the pod by what is known of the market. Undecided are pods without a deadline, and those with no time to
// spare, which are to be on demand whatever it costs.
func (p *Policy) choose(pod *apiv1.Pod, s settings, now time.Time) deadline.Choice {
	slack, hasDeadline := s.slack(now)
	if !hasDeadline || s.wait == Never || slack < restarts*p.config.Restart {
		return deadline.Undecided
	}
	return p.config.Deadlines.choose(pod, s.work, slack)
}

// isLate returns whether one of the pods is to have no spot instances: because its deadline is close, or because they would cost more until then.
func (p *Policy) isLate(pods []*apiv1.Pod) bool {
	now := p.config.Clock.Now()
	return slices.ContainsFunc(pods, func(pod *apiv1.Pod) bool {
		s, _ := settingsOf(pod)
		slack, hasDeadline := s.slack(now)
		isClose := hasDeadline && slack < restarts*p.config.Restart && s.wait != Never
		return isClose || p.choose(pod, s, now) == deadline.OnDemand
	})
}

// split divides the pods into those for which the same groups may be bought: first those with the least choice, which would find nothing left of
// it otherwise. Pods that are bought for together would wait for each other, or get what they do not want.
func (p *Policy) split(groups []cloudprovider.NodeGroup, pods []*apiv1.Pod) (parts [][]*apiv1.Pod) {
	alike := p.differing(groups)
	index := map[string]int{}
	for _, pod := range pods {
		key := p.allowedOf(alike, pod)
		at, known := index[key]
		if !known {
			at = len(parts)
			index[key] = at
			parts = append(parts, nil)
		}
		parts[at] = append(parts[at], pod)
	}
	choices := p.Choices(groups)
	slices.SortStableFunc(parts, func(a, b []*apiv1.Pod) int { return cmp.Compare(choices(a[0]), choices(b[0])) })
	return parts
}

// Choices returns a function that counts of how many kinds of the groups instances may be bought for a pod now.
func (p *Policy) Choices(groups []cloudprovider.NodeGroup) func(*apiv1.Pod) int {
	alike := p.differing(groups)
	known := map[*apiv1.Pod]int{} // it is asked in every comparison
	return func(pod *apiv1.Pod) int {
		count, counted := known[pod]
		if !counted {
			count = strings.Count(p.allowedOf(alike, pod), allowed)
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

// The digits of allowedOf.
const allowed, notAllowed = "1", "0"

// allowedOf returns which of the groups may be bought for the pod, as a text of a digit for each.
func (p *Policy) allowedOf(groups []string, pod *apiv1.Pod) string {
	var key strings.Builder
	for _, id := range groups {
		if p.Wait(id, pod) == 0 {
			key.WriteString(allowed)
		} else {
			key.WriteString(notAllowed)
		}
	}
	return key.String()
}
