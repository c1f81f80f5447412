// Package poll is the source of notices that asks ECS: it lists the instances that are locked as recycling, and looks after the
// reclaiming ones that are no longer listed.
package poll

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/problems"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

// DefaultInterval is how often ECS is asked for instances that are being recycled, on an ordinary day.
const DefaultInterval = 2 * time.Second

// pollTimeout bounds one poll, the client's own retries included. An ECS that does not answer is asked again soon.
const pollTimeout = 10 * time.Second

// Cloud is what a Poller asks of Alibaba Cloud. It is implemented by *client.Client of package alicloud/client.
type Cloud interface {
	// RecyclingInstances lists the instances of the region that are about to be released.
	RecyclingInstances(ctx context.Context) ([]alicloud.Instance, error)
	// Instances leaves out the ids that no longer exist.
	Instances(ctx context.Context, ids []string) ([]alicloud.Instance, error)
}

// Pools are what ESS lists. It is implemented by *ess.Provider.
type Pools interface {
	// FirstRead returns a channel that is closed once the pools have been read. Until then, false from Lists means nothing.
	FirstRead() <-chan struct{}
	// Lists returns whether the instance was in a scaling group when that was last read.
	Lists(instanceID string) bool
}

// Listener is told what a Poller learns.
type Listener interface {
	// Announce enters announcements.
	Announce(ctx context.Context, announcements ...notice.Announcement)
	// Judged is called when the verdict counts that the instance was released or its notice withdrawn.
	Judged(instanceID string)
	// Listed is called each time ECS has answered which instances are recycling.
	Listed()
}

// Config is what a Poller is made of. All but Problems is required.
type Config struct {
	Cloud    Cloud
	Cluster  *cluster.Cluster
	Notices  *notice.Store
	Removals *notice.Removals
	Listener Listener
	Events   *events.Recorder
	Clock    clock.WithTicker
	// Interval is how often ECS is asked on an ordinary day; see pause.
	Interval time.Duration
	Pools    Pools
	// Faults knows which notices of faults stand. ECS knows nothing of them.
	Faults interface {
		Stands(node *corev1.Node, n notice.Notice) bool
	}
	// Problems is told whether ECS can be asked. Optional.
	Problems *problems.Board
}

// Poller is not safe for concurrent use: only one goroutine may run it.
type Poller struct {
	config Config
	// reportedStopped and reportedUnlisted are the instances for which that was already reported.
	reportedStopped, reportedUnlisted sets.Set[string]
	// wereInESS are the instances on their way out that ESS listed at an earlier poll.
	wereInESS sets.Set[string]
}

// New returns a Poller that has not asked yet.
func New(config Config) *Poller {
	return &Poller{config: config, reportedStopped: sets.New[string](), reportedUnlisted: sets.New[string](), wereInESS: sets.New[string]()}
}

// Run polls at once, then after every pause, until ctx ends.
func (p *Poller) Run(ctx context.Context) {
	for {
		requests, err := p.poll(ctx)
		if err != nil && ctx.Err() == nil {
			failures.Inc()
			klog.FromContext(ctx).Error(err, "Could not poll for notices; those that are known stand")
		}
		p.report(ctx, err)
		pause := p.config.Clock.NewTimer(p.pause(requests))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C():
		}
	}
}

// report enters on the board of problems whether ECS could be asked.
func (p *Poller) report(ctx context.Context, err error) {
	switch {
	case p.config.Problems == nil || ctx.Err() != nil:
	case err == nil:
		p.config.Problems.Update(problems.Poll)
	case errors.Is(err, errNotShown):
		fix := alicloud.Remedies[alicloud.NotAllowed].Fix
		p.config.Problems.Update(problems.Poll, problems.Problem{Reason: string(alicloud.NotAllowed), Cause: err.Error(), Fix: fix, Transient: true})
	default:
		p.config.Problems.Update(problems.Poll, problems.Of(err))
	}
}

// poll announces what ECS lists, then judges the reclaiming instances that it does not list. It returns how many requests that took.
func (p *Poller) poll(ctx context.Context) (requests int, err error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	instances, err := p.config.Cloud.RecyclingInstances(ctx)
	if err != nil {
		return 1, fmt.Errorf("list recycling instances: %w", err)
	}
	listed := sets.New[string]()
	announcements := make([]notice.Announcement, 0, len(instances))
	for _, instance := range instances {
		if instance.SpotStrategy == alicloud.NoSpot {
			continue
		}
		listed.Insert(instance.ID)
		p.noteStopped(instance)
		announcements = append(announcements, notice.Announcement{InstanceID: instance.ID, Source: notice.SourcePoll})
	}
	p.config.Listener.Announce(ctx, announcements...)
	lastPoll.Set(float64(p.config.Clock.Now().Unix()))
	p.config.Listener.Listed()
	asked, err := p.judge(ctx, listed)
	return listRequests(len(instances)) + pages(asked), err
}

// listRequests is how many requests a list takes. For an empty one, ECS may have been asked in two spellings of the lock.
func listRequests(listed int) int {
	if listed == 0 {
		return 2
	}
	return pages(listed)
}
