package scaleup

import (
	"errors"
	"fmt"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
	"k8s.io/autoscaler/cluster-autoscaler/simulator"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/scheduling"
)

// boughtNodes are the nodes that were bought in this loop, with the pods that they were bought for. They stand in core's snapshot
// of the cluster, as the upcoming nodes of earlier loops do, so that nothing more is bought for pods that fit them. Core builds
// its snapshot anew in each loop, and does nothing more with it in a loop that has bought something. Source: RunOnce in
// core/static_autoscaler.go of cluster-autoscaler 1.33, which returns after a successful scale-up.
type boughtNodes struct {
	snapshot  clustersnapshot.ClusterSnapshot
	templates map[string]*framework.NodeInfo
	simulator *scheduling.HintingSimulator
	places    Places
	// groups are the ids of the node groups by bought node.
	groups map[string]string
}

func newBoughtNodes(snapshot clustersnapshot.ClusterSnapshot, templates map[string]*framework.NodeInfo, places Places) *boughtNodes {
	return &boughtNodes{
		snapshot: snapshot, templates: templates, simulator: scheduling.NewHintingSimulator(), places: places, groups: map[string]string{},
	}
}

// add adds what the attempt has bought. If it returns an error, the snapshot lacks some of that.
func (b *boughtNodes) add(attempt *status.ScaleUpStatus) error {
	if len(attempt.ScaleUpInfos) == 0 {
		return errors.New("a scale-up does not tell which nodes it brings")
	}
	for _, info := range attempt.ScaleUpInfos {
		template := b.templates[info.Group.Id()]
		if template == nil {
			return fmt.Errorf("node group %s has no template", info.Group.Id())
		}
		for range info.NewSize - info.CurrentSize {
			node, err := simulator.SanitizedNodeInfo(template, fmt.Sprintf("bought-%d", len(b.groups)))
			if err != nil {
				return fmt.Errorf("make a node of node group %s: %w", info.Group.Id(), err)
			}
			if err := b.snapshot.AddNodeInfo(node); err != nil {
				return fmt.Errorf("add a node of node group %s to the snapshot: %w", info.Group.Id(), err)
			}
			b.groups[node.Node().Name] = info.Group.Id()
		}
	}
	placed, err := b.schedule(attempt.PodsTriggeredScaleUp, false)
	b.remember(placed)
	return err
}

// place returns the pods of the batch that do not fit the bought nodes, and places the others there. A gang of which only some pods
// fit is not placed; then fits is false, and nothing should be bought for it before the next loop: core places those pods first
// then, and the gang lacks so many less.
func (b *boughtNodes) place(batch podBatch) (left []*apiv1.Pod, fits bool, err error) {
	if len(b.groups) == 0 {
		return batch.pods, true, nil
	}
	b.snapshot.Fork()
	placed, err := b.schedule(batch.pods, batch.isGang())
	if err != nil || batch.isGang() && len(placed) < len(batch.pods) {
		b.snapshot.Revert()
		return batch.pods, len(placed) == 0, err
	}
	if err := b.snapshot.Commit(); err != nil {
		return nil, false, fmt.Errorf("commit the snapshot: %w", err)
	}
	b.remember(placed)
	return without(batch.pods, podsIn(placed)), true, nil
}

// remember has the next loops place the pods where they were placed now.
func (b *boughtNodes) remember(placed []scheduling.Status) {
	for _, at := range placed {
		b.places.Remember(at.Pod, b.groups[at.NodeName])
	}
}

func podsIn(placed []scheduling.Status) (pods []*apiv1.Pod) {
	for _, at := range placed {
		pods = append(pods, at.Pod)
	}
	return pods
}

// schedule places pods on the bought nodes, and returns where.
func (b *boughtNodes) schedule(pods []*apiv1.Pod, allOrNothing bool) ([]scheduling.Status, error) {
	isBought := func(node *framework.NodeInfo) bool { return b.groups[node.Node().Name] != "" }
	placed, _, err := b.simulator.TrySchedulePods(b.snapshot, pods, isBought, allOrNothing)
	if err != nil {
		return nil, fmt.Errorf("place pods on the nodes that were bought: %w", err)
	}
	return placed, nil
}
