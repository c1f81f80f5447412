package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/reasons"
)

const (
	// mostChecks bounds how many simulations of the scheduler one status may take, about a tenth of a millisecond each.
	mostChecks = 256
	// mostText is how long the message of an Event may be: longer ones are refused in events.k8s.io/v1, though not in the core API, by which
	// these are recorded.
	mostText = 1000
)

// Events records the Event NotTriggerScaleUp for pods for which nothing was bought, in place of core's
// EventingScaleUpStatusProcessor, to which it leaves all other Events. It says what stands in the way, and which step would mend it. It
// belongs to core's loop.
type Events struct {
	next       status.ScaleUpStatusProcessor
	template   func(groupID string) *framework.NodeInfo
	judgements *Judgements
}

var _ status.ScaleUpStatusProcessor = (*Events)(nil)

// NewEvents returns a processor that calls next for all pods but those for which nothing was bought. The template is that which the last
// scale-up took the node group to bring, nil if none is known. Judgements take what core found.
func NewEvents(next status.ScaleUpStatusProcessor, template func(groupID string) *framework.NodeInfo, judgements *Judgements) *Events {
	return &Events{next, template, judgements}
}

// Process records the Events.
func (e *Events) Process(ctx *cacontext.AutoscalingContext, result *status.ScaleUpStatus) {
	groups := map[string]cloudprovider.NodeGroup{}
	for _, group := range result.ConsideredNodeGroups {
		groups[group.Id()] = group
	}
	checks := mostChecks
	tried := result.Result != status.ScaleUpSuccessful && result.Result != status.ScaleUpError
	for _, info := range result.PodsRemainUnschedulable {
		found := foundBy(info, groups)
		if result.Result == status.ScaleUpLimitedByMaxNodesTotal {
			found = map[string]*reasons.Reason{"": reasons.New(reasons.ClusterLimit, "Raise --max-nodes-total.", "max total nodes in cluster reached")}
		}
		e.judgements.set(info.Pod, found)
		if tried {
			ctx.Recorder.Event(info.Pod, apiv1.EventTypeNormal, "NotTriggerScaleUp", e.message(ctx.ClusterSnapshot, info.Pod, found, &checks))
		}
	}
	e.judgements.bought(result.PodsTriggeredScaleUp, result.ScaleUpInfos)
	others := *result
	others.PodsRemainUnschedulable = nil
	e.next.Process(ctx, &others)
}

// CleanUp cleans up the next processor.
func (e *Events) CleanUp() { e.next.CleanUp() }

// foundBy returns what core found of each node group for the pod.
func foundBy(info status.NoScaleUpInfo, groups map[string]cloudprovider.NodeGroup) map[string]*reasons.Reason {
	found := map[string]*reasons.Reason{}
	for _, part := range []map[string]status.Reasons{info.RejectedNodeGroups, info.SkippedNodeGroups} {
		for id, reason := range part {
			if group := groups[id]; group != nil && group.Exist() {
				found[id] = fromCore(group, reason)
			}
		}
	}
	return found
}

// message returns the text of the Event.
func (e *Events) message(snapshot clustersnapshot.ClusterSnapshot, pod *apiv1.Pod, found map[string]*reasons.Reason, checks *int) string {
	message := "pod didn't trigger scale-up: " + inALine(found)
	if mend := e.mend(snapshot, pod, found, checks); mend != "" {
		message += ". " + mend
	}
	if len(message) > mostText {
		message = strings.ToValidUTF8(message[:mostText], "") + "..."
	}
	return message
}

// inALine counts the node groups by reason, with the price cap that is missed by the least in place of all others.
func inALine(found map[string]*reasons.Reason) string {
	if len(found) == 0 {
		return "there is no offering that could be bought"
	}
	type line struct {
		count, texts int
		nearest      *reasons.Reason
	}
	lines := map[string]*line{}
	for _, reason := range found {
		key := string(reason.Code)
		if reason.Code != reasons.PriceCap {
			key += reason.Message
		}
		known := lines[key]
		if known == nil {
			lines[key] = &line{1, 1, reason}
			continue
		}
		known.count++
		if reason.Message != known.nearest.Message {
			known.texts++
		}
		if reasons.Easier(reason, known.nearest) < 0 {
			known.nearest = reason
		}
	}
	sorted := make([]*line, 0, len(lines))
	for _, each := range lines {
		sorted = append(sorted, each)
	}
	slices.SortFunc(sorted, func(a, b *line) int {
		return cmp.Or(reasons.Easier(a.nearest, b.nearest), cmp.Compare(b.count, a.count), strings.Compare(a.nearest.Message, b.nearest.Message))
	})
	texts := make([]string, 0, len(sorted))
	for _, each := range sorted {
		said := fmt.Sprintf("%d %s", each.count, each.nearest)
		if each.texts > 1 {
			said += " (the nearest of them)"
		}
		texts = append(texts, said)
	}
	return strings.Join(texts, ", ")
}

// mend returns the easiest step after which an instance could be bought that the pod fits, empty if there is none or it takes too many
// checks to find.
func (e *Events) mend(snapshot clustersnapshot.ClusterSnapshot, pod *apiv1.Pod, found map[string]*reasons.Reason, checks *int) string {
	ids := make([]string, 0, len(found))
	for id, reason := range found {
		if reason.Code != reasons.DoesNotFit && reason.Mend != "" {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Or(reasons.Easier(found[a], found[b]), strings.Compare(a, b)) })
	for _, id := range ids {
		if id == "" {
			return found[id].Mend
		}
		template := e.template(id)
		if template == nil {
			continue
		}
		if *checks--; *checks < 0 {
			return ""
		}
		if why, err := check(snapshot, template, pod); err != nil {
			klog.ErrorS(err, "Cannot tell what would mend a pending pod", "pod", klog.KObj(pod), "nodeGroup", id)
			return ""
		} else if why == nil {
			return found[id].Mend
		}
	}
	return ""
}

// check returns why the pod does not fit a new node of the template, nil if it does. The snapshot stays as it is.
func check(snapshot clustersnapshot.ClusterSnapshot, template *framework.NodeInfo, pod *apiv1.Pod) (why *reasons.Reason, err error) {
	snapshot.Fork()
	defer snapshot.Revert()
	if _, lookErr := snapshot.GetNodeInfo(template.Node().Name); lookErr != nil {
		if err := snapshot.AddNodeInfo(template); err != nil {
			return nil, fmt.Errorf("add a node of the offering to the simulation: %w", err)
		}
	}
	refused := snapshot.CheckPredicates(pod, template.Node().Name)
	switch {
	case refused == nil:
		return nil, nil
	case refused.Type() == clustersnapshot.SchedulingInternalError:
		return nil, fmt.Errorf("simulate the scheduler: %w", refused)
	}
	return doesNotFit(refused), nil
}
