package supervisor

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	quota "k8s.io/apiserver/pkg/quota/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	quotacore "k8s.io/kubernetes/pkg/quota/v1/evaluator/core"

	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// What a job asks for is its owner's to write: 300,000 workers, or more than its namespace may have. Pods of a job that is
// held are nobody's, so that nothing bounds them but what is here.

// Reasons of Events on jobs that stay held.
const (
	// ReasonTooLarge: there could be no place for all its pods, whatever were bought.
	ReasonTooLarge = "SpotJobTooLarge"
	// ReasonOverQuota: its namespace may not have all its pods.
	ReasonOverQuota = "SpotJobOverQuota"
)

// room bounds how many pods like this one there can be a place for: on nodes of pools, all of which may yet be bought, and on
// nodes of others; or on all nodes as they are, which may hold more than a pool knows of, where GPUs are shared by time.
func (s *Supervisor) room(pod *corev1.Pod) int {
	room := s.Pools.Room(pod)
	nodes, err := s.nodes.List(labels.Everything())
	if err != nil {
		return room
	}
	requests, onAll := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}), 0
	for _, node := range nodes {
		onThis := ess.RoomOn(node, requests)
		onAll += onThis
		if !s.Pools.Releasable(node) {
			room += onThis
		}
	}
	return max(room, onAll)
}

// roomyGang is the job's gang with so many workers, or with as many as there is room for where the job comes back with what
// it can get.
func (s *Supervisor) roomyGang(p *probe, workers int) (pods []*corev1.Pod, of int, err error) {
	pods, err = s.Jobs.Gang(p.job, workers, s.room)
	large := (*jobs.TooManyPodsError)(nil)
	if errors.As(err, &large) && large.Workers && p.isDynamic() && p.least() <= large.Most && large.Most < workers {
		workers = large.Most
		pods, err = s.Jobs.Gang(p.job, workers, s.room)
	}
	return pods, workers, err
}

// boundedGang is a roomyGang that is also within the quota of its namespace. Needs s.mu.
func (s *Supervisor) boundedGang(p *probe, workers int) ([]*corev1.Pod, error) {
	pods, workers, err := s.roomyGang(p, workers)
	if err != nil {
		return nil, err
	}
	fit, err := s.withinQuota(p, pods)
	if workers -= len(pods) - fit; err == nil || !p.isDynamic() || workers < p.least() {
		return pods, err
	}
	if pods, err = s.Jobs.Gang(p.job, workers, s.room); err == nil {
		_, err = s.withinQuota(p, pods)
	}
	return pods, err
}

func (p *probe) isDynamic() bool { return p.job.Recovery == jobs.RecoverDynamic }

// least is with how many workers a job comes back that is dynamic.
func (p *probe) least() int { return max(1, p.job.Min) }

// quotaError says that a namespace may not have all pods of a job.
type quotaError struct {
	quota, namespace string
	fit, pods        int
}

func (e *quotaError) Error() string {
	return fmt.Sprintf("ResourceQuota %s of namespace %s leaves room for %d of %d pods", e.quota, e.namespace, e.fit, e.pods)
}

// withinQuota says how many of the pods the ResourceQuotas of their namespace let in, one after the other, beside what is
// there and what is offered to other jobs of the namespace. The error is a quotaError where not all are. They are counted as
// the API server would count them. Needs s.mu.
func (s *Supervisor) withinQuota(p *probe, pods []*corev1.Pod) (fit int, err error) {
	quotas, err := s.quotas.ResourceQuotas(p.job.Namespace).List(labels.Everything())
	if err != nil || len(quotas) == 0 {
		return len(pods), err
	}
	var offered []*corev1.Pod
	for _, other := range s.probes {
		if other != p && other.gang != nil && other.job.Namespace == p.job.Namespace {
			offered = append(offered, other.gang.pods...)
		}
	}
	fit = len(pods)
	for _, bound := range quotas {
		in, countErr := s.letIn(bound, offered, pods)
		if countErr != nil {
			return 0, countErr
		}
		if in < fit {
			fit, err = in, &quotaError{quota: bound.Name, namespace: bound.Namespace, fit: in, pods: len(pods)}
		}
	}
	return fit, err
}

// letIn is how many of the pods the quota lets in after those that are offered.
func (s *Supervisor) letIn(bound *corev1.ResourceQuota, offered, pods []*corev1.Pod) (in int, err error) {
	evaluator := quotacore.NewPodEvaluator(nil, s.Clock)
	used, limited := bound.Status.Used.DeepCopy(), quota.ResourceNames(bound.Status.Hard)
	for i, pod := range append(offered[:len(offered):len(offered)], pods...) {
		matches, err := evaluator.Matches(bound, pod)
		if err != nil {
			return 0, fmt.Errorf("ResourceQuota %s: %w", bound.Name, err)
		}
		usage, err := evaluator.Usage(pod)
		if err != nil {
			return 0, fmt.Errorf("ResourceQuota %s: %w", bound.Name, err)
		}
		usage = quota.RemoveZeros(quota.Mask(usage, limited))
		if !matches || len(usage) == 0 {
			continue
		}
		used = quota.Add(used, usage)
		allowed, _ := quota.LessThanOrEqual(quota.Mask(used, quota.ResourceNames(usage)), bound.Status.Hard)
		if !allowed && i >= len(offered) {
			return i - len(offered), nil
		}
	}
	return len(pods), nil
}

// stay has the job rest, and its owner told where it is for a bound. It is said once for each time that the job is held.
func (s *Supervisor) stay(p *probe, now time.Time, why string, err error) {
	p.rest(now, why, err)
	reason := ""
	if large := (*jobs.TooManyPodsError)(nil); errors.As(err, &large) {
		reason = ReasonTooLarge
	}
	if over := (*quotaError)(nil); errors.As(err, &over) {
		reason = ReasonOverQuota
	}
	if reason == "" || p.told == reason {
		return
	}
	p.told = reason
	s.Recorder.Eventf(p.job.Object, corev1.EventTypeWarning, reason, "Stays held, and nothing is bought for it: %v", err)
}
