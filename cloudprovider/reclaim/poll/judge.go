package poll

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

const (
	// pushPatience is how long a pushed notice stands that ECS does not know of.
	pushPatience = time.Minute

	statusRunning = "Running"
	statusStopped = "Stopped"
)

// errNotShown says that ECS does not show an instance that must exist.
var errNotShown = errors.New("ECS does not show an instance that exists; does the RAM policy allow ecs:DescribeInstances?")

// judge asks ECS about the reclaiming instances that it does not list as recycling, and about those that are being given back and
// are no longer in ESS. It returns about how many. That one does not exist is believed only if a witness is shown; see mayExist
// for when there is no witness.
func (p *Poller) judge(ctx context.Context, listed sets.Set[string]) (asked int, err error) {
	reclaiming := p.config.Notices.Reclaiming()
	p.reportedStopped, p.reportedUnlisted = p.reportedStopped.Intersection(reclaiming), p.reportedUnlisted.Intersection(reclaiming)
	unlisted := reclaiming.Difference(listed)
	for id := range unlisted {
		if p.config.Notices.OnlyPolled(id) {
			p.forget(id)
			unlisted.Delete(id)
		}
	}
	p.noteInESS(reclaiming.Union(p.config.Removals.All()))
	unlisted = unlisted.Union(p.removedFromESS())
	p.config.Notices.Verdicts.ForgetOthers(reclaiming, unlisted)
	if unlisted.Len() == 0 {
		return 0, nil
	}
	ids, witness := sets.List(unlisted), p.witness(unlisted)
	if witness != "" {
		ids = append(ids, witness)
	}
	instances, err := p.config.Cloud.Instances(ctx, ids)
	existing := make(map[string]alicloud.Instance, len(instances))
	for _, instance := range instances {
		existing[instance.ID] = instance
	}
	if _, shown := existing[witness]; err == nil && witness != "" && !shown {
		err = fmt.Errorf("%w: not %s, whose Node is ready", errNotShown, witness)
	}
	if err != nil {
		return len(ids), fmt.Errorf("ask about %d instances on their way out: %w", unlisted.Len(), err)
	}
	for id := range unlisted {
		instance, exists := existing[id]
		if exists {
			p.noteUnlisted(ctx, instance)
			p.noteStopped(instance)
			p.compare(ctx, instance)
		}
		p.conclude(id, p.verdictOn(id, instance, exists || witness == "" && p.mayExist(id)))
	}
	return len(ids), nil
}

// poolsAreRead returns whether it is known what ESS lists.
func (p *Poller) poolsAreRead() bool {
	select {
	case <-p.config.Pools.FirstRead():
		return true
	default:
		return false
	}
}

// mayExist returns whether an instance that ECS does not show may exist all the same. Without a witness it does as long as ESS
// may list it; and if ESS never did, as long as one of its Nodes is ready.
func (p *Poller) mayExist(id string) bool {
	return !p.poolsAreRead() || p.config.Pools.Lists(id) || !p.wereInESS.Has(id) && slices.ContainsFunc(p.config.Cluster.NodesOf(id), cluster.IsReady)
}

// noteInESS notes which of the instances on their way out ESS lists. It forgets all others.
func (p *Poller) noteInESS(ids sets.Set[string]) {
	p.wereInESS = p.wereInESS.Intersection(ids)
	for id := range ids {
		if p.config.Pools.Lists(id) {
			p.wereInESS.Insert(id)
		}
	}
}

// removedFromESS returns the instances that are being given back and that ESS no longer lists. Their Nodes may still exist.
func (p *Poller) removedFromESS() sets.Set[string] {
	if !p.poolsAreRead() {
		return sets.New[string]()
	}
	removed := p.config.Removals.All()
	for id := range removed {
		if p.config.Pools.Lists(id) {
			removed.Delete(id)
		}
	}
	return removed
}

// compare enters what ECS says about a reclaiming instance that its list of recycling instances left out.
func (p *Poller) compare(ctx context.Context, instance alicloud.Instance) {
	switch n, reclaiming := p.config.Notices.Get(instance.ID); {
	case !reclaiming:
	case instance.Recycling() && (!n.Confirmed || n.Yields()):
		p.config.Listener.Announce(ctx, notice.Announcement{InstanceID: instance.ID, Source: notice.SourcePoll})
	case instance.Status == statusRunning && !instance.Recycling():
		p.config.Notices.Verdicts.Contradict(instance.ID)
	}
}

// verdictOn judges an instance that is not listed as recycling. One that is Stopped is not released: an instance under Recycling
// may be shown so, and one whose SpotInterruptionBehavior is Stop stays so.
func (p *Poller) verdictOn(id string, instance alicloud.Instance, exists bool) notice.Verdict {
	if !exists {
		return notice.Released
	}
	n, reclaiming := p.config.Notices.Get(id)
	if reclaiming && n.Yields() {
		return notice.Pending // ECS knows nothing of it, and packages drill and move say when it is over
	}
	if reclaiming && n.Source == notice.SourceFault {
		return p.verdictOnFault(n, instance)
	}
	if reclaiming && instance.SpotStrategy == alicloud.NoSpot {
		return notice.Withdrawn
	}
	if !reclaiming || instance.Status != statusRunning || instance.Recycling() {
		return notice.Pending
	}
	late := p.config.Clock.Since(n.Deadline)
	switch {
	case late >= notice.ReleaseGrace:
		return notice.Withdrawn // a false alarm, whoever still says otherwise
	case late >= 0 || p.stands(n):
		return notice.Pending
	}
	return notice.Withdrawn
}

// verdictOnFault judges an instance whose Node is or was faulty, spot or not. It lives on until it is given back, which is no false alarm.
func (p *Poller) verdictOnFault(n notice.Notice, instance alicloud.Instance) notice.Verdict {
	nodes := p.config.Cluster.NodesOf(n.InstanceID)
	stands := func(node *corev1.Node) bool { return p.config.Faults.Stands(node, n) }
	if len(nodes) == 0 || slices.ContainsFunc(nodes, stands) || instance.Status != statusRunning || instance.Recycling() || p.stands(n) {
		return notice.Pending
	}
	return notice.Withdrawn
}

// stands returns whether a source other than the poll still announces the notice: ECS may be behind the metadata service and the
// event bus. What is written on the Node stands until it is removed. An event is never taken back, so it stands until ECS has
// caught up: it knew of the notice, or had the time to.
func (p *Poller) stands(n notice.Notice) bool {
	for _, node := range p.config.Cluster.NodesOf(n.InstanceID) {
		for _, a := range p.config.Notices.Announcements(node) {
			if !a.Source.NeedsConfirmation() && a.Source != notice.SourceDrill {
				return true
			}
		}
	}
	announced := p.config.Notices.Announced(n)
	if _, polled := announced[notice.SourcePoll]; polled {
		return false
	}
	for source, at := range announced {
		if source.NeedsConfirmation() && p.config.Clock.Since(at) < pushPatience {
			return true
		}
	}
	return false
}

// conclude enters the verdict, and has the Nodes dealt with once it counts.
func (p *Poller) conclude(id string, v notice.Verdict) {
	if p.config.Notices.Verdicts.Judge(id, v) == notice.Pending {
		return
	}
	p.config.Listener.Judged(id)
	if len(p.config.Cluster.NodesOf(id)) == 0 {
		p.forget(id)
	}
}

func (p *Poller) forget(id string) {
	p.config.Notices.Forget(id)
	p.config.Removals.Forget(id)
}

// witness returns an instance that exists beyond doubt, apart from the given ones: ESS lists it, if that is known, and its Node is ready, the
// oldest of all such. It is empty if there is none.
//
// An empty answer alone does not say that an instance is gone. Until December 2025 DescribeInstances also gave it, without an
// error, to a RAM user who may not call it; Forbidden.RAM has been announced in its place. Source: "Announcement of changes to
// the authentication mechanism for Alibaba Cloud ECS query-type APIs", ECS documentation.
func (p *Poller) witness(others sets.Set[string]) (instanceID string) {
	var oldest *corev1.Node
	areRead := p.poolsAreRead()
	for _, node := range p.config.Cluster.Nodes() {
		id := p.config.Cluster.InstanceID(node)
		if id == "" || others.Has(id) || !cluster.IsReady(node) || cluster.IsMarked(node) || p.config.Removals.Has(node) || areRead && !p.config.Pools.Lists(id) {
			continue
		}
		if oldest == nil || node.CreationTimestamp.Before(&oldest.CreationTimestamp) {
			oldest, instanceID = node, id
		}
	}
	return instanceID
}
