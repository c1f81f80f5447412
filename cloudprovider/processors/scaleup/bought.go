package scaleup

import (
	"errors"
	"fmt"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
	"k8s.io/autoscaler/cluster-autoscaler/simulator"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/scheduling"
)

// boughtNodes are the nodes that were bought in this loop, with the pods that they were bought for. They stand in core's snapshot
// of the cluster, as the upcoming nodes of earlier loops do, so that nothing more is bought for pods that fit them. Core builds
// its snapshot anew in each loop, and does nothing more with it in a loop that has bought something.
type boughtNodes struct {
	snapshot  clustersnapshot.ClusterSnapshot
	templates map[string]*framework.NodeInfo
	simulator *scheduling.HintingSimulator
	names     sets.Set[string]
}

func newBoughtNodes(snapshot clustersnapshot.ClusterSnapshot, templates map[string]*framework.NodeInfo) *boughtNodes {
	return &boughtNodes{snapshot: snapshot, templates: templates, simulator: scheduling.NewHintingSimulator(), names: sets.New[string]()}
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
			node, err := simulator.SanitizedNodeInfo(template, fmt.Sprintf("bought-%d", b.names.Len()))
			if err != nil {
				return fmt.Errorf("make a node of node group %s: %w", info.Group.Id(), err)
			}
			if err := b.snapshot.AddNodeInfo(node); err != nil {
				return fmt.Errorf("add a node of node group %s to the snapshot: %w", info.Group.Id(), err)
			}
			b.names.Insert(node.Node().Name)
		}
	}
	_, err := b.schedule(attempt.PodsTriggeredScaleUp, false)
	return err
}

// place returns the pods of the unit that do not fit the bought nodes, and places the others there. A gang of which only some pods
// fit is not placed; then fits is false, and nothing should be bought for it before the next loop: core places those pods first
// then, and the gang lacks so many less.
func (b *boughtNodes) place(u unit) (left []*apiv1.Pod, fits bool, err error) {
	if b.names.Len() == 0 {
		return u.pods, true, nil
	}
	b.snapshot.Fork()
	placed, err := b.schedule(u.pods, u.isGang())
	if err != nil || u.isGang() && placed.Len() < len(u.pods) {
		b.snapshot.Revert()
		return u.pods, placed.Len() == 0, err
	}
	if err := b.snapshot.Commit(); err != nil {
		return nil, false, fmt.Errorf("commit the snapshot: %w", err)
	}
	for _, pod := range u.pods {
		if !placed.Has(pod.UID) {
			left = append(left, pod)
		}
	}
	return left, true, nil
}

// schedule places pods on the bought nodes, and returns the UIDs of those that it has placed.
func (b *boughtNodes) schedule(pods []*apiv1.Pod, allOrNothing bool) (sets.Set[types.UID], error) {
	isBought := func(node *framework.NodeInfo) bool { return b.names.Has(node.Node().Name) }
	statuses, _, err := b.simulator.TrySchedulePods(b.snapshot, pods, isBought, allOrNothing)
	if err != nil {
		return nil, fmt.Errorf("place pods on the nodes that were bought: %w", err)
	}
	placed := sets.New[types.UID]()
	for _, s := range statuses {
		placed.Insert(s.Pod.UID)
	}
	return placed, nil
}
