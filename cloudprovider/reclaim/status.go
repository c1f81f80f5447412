package reclaim

import (
	"cmp"
	"slices"

	"gpu-spot-autoscaler/cloudprovider/status"
)

// Reclaims are the Nodes with a notice, those of the earliest deadline first. It may be called once the informers have
// synced.
func (c *Controller) Reclaims() []status.Reclaim {
	reclaims := []status.Reclaim{}
	for instance := range c.Doomed() {
		for _, node := range c.nodesOf(instance) {
			notice, doomed := c.noticeOf(node)
			if !doomed {
				continue
			}
			pods := len(drainable(c.podsOn(node.Name)))
			phase := status.PhaseDraining
			switch {
			case !isMarked(node):
				phase = status.PhaseNoticed
			case pods == 0:
				phase = status.PhaseDrained
			}
			reclaims = append(reclaims, status.Reclaim{
				Node: node.Name, Instance: instance, Phase: phase, Source: string(notice.Source), Noticed: notice.FirstSeen.UTC(),
				Deadline: notice.Deadline, Stated: notice.Stated, DeletedFrom: notice.DeleteFrom(), Pods: pods,
			})
		}
	}
	slices.SortFunc(reclaims, func(a, b status.Reclaim) int {
		return cmp.Or(a.Deadline.Compare(b.Deadline), cmp.Compare(a.Node, b.Node))
	})
	return reclaims
}

// JobReclaims are the jobs that lose Nodes, those of the earliest deadline first. The ids of their requests are not told.
func (c *Controller) JobReclaims() []status.JobReclaim {
	h := &c.handshakes
	h.mu.Lock()
	defer h.mu.Unlock()
	said := make([]status.JobReclaim, 0, len(h.rounds))
	for ref, r := range h.rounds {
		said = append(said, status.JobReclaim{
			System: ref.System, Namespace: ref.Namespace, Name: ref.Name, Phase: r.phase(), Acknowledged: r.word,
			Requested: r.requested.UTC(), Deadline: r.deadline.UTC(), Pods: r.doomed.Len(),
		})
	}
	slices.SortFunc(said, func(a, b status.JobReclaim) int {
		return cmp.Or(a.Deadline.Compare(b.Deadline), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.System, b.System))
	})
	return said
}

func (r *round) phase() string {
	switch {
	case r.decided:
		return status.JobPhaseLeaving
	case r.deciding:
		return status.JobPhaseDeciding
	case r.told:
		return status.JobPhaseWaiting
	}
	return status.JobPhaseWarning
}
