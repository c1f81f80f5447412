package reclaim

import (
	"cmp"
	"slices"

	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/status"
)

// Reclaims returns the Nodes that have a notice, those of the earliest deadline first. It may be called once the informers have
// synced.
func (c *Controller) Reclaims() []status.Reclaim {
	reclaims := []status.Reclaim{}
	for instance := range c.notices.Reclaiming() {
		for _, node := range c.cluster.NodesOf(instance) {
			n, reclaiming := c.notices.Of(node)
			if !reclaiming {
				continue
			}
			pods := len(cluster.Drainable(c.cluster.PodsOn(node.Name)))
			phase := status.PhaseDraining
			switch {
			case !cluster.IsMarked(node):
				phase = status.PhaseNoticed
			case pods == 0:
				phase = status.PhaseDrained
			}
			reclaims = append(reclaims, status.Reclaim{
				Node: node.Name, Instance: instance, Phase: phase, Source: string(n.Source), Noticed: n.FirstSeen.UTC(),
				Deadline: n.Deadline, Stated: n.Stated, DeletedFrom: n.DeleteFrom(), Pods: pods,
			})
		}
	}
	slices.SortFunc(reclaims, func(a, b status.Reclaim) int {
		return cmp.Or(a.Deadline.Compare(b.Deadline), cmp.Compare(a.Node, b.Node))
	})
	return reclaims
}

// JobReclaims returns the jobs that lose Nodes, those of the earliest deadline first.
func (c *Controller) JobReclaims() []status.JobReclaim { return c.handshakes.Status() }
