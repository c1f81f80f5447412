package scaleup

import (
	goerrors "errors"
	"slices"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/clusterstate"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/estimator"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
	"k8s.io/autoscaler/cluster-autoscaler/utils/errors"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/processors"
	"gpu-spot-autoscaler/cloudprovider/processors/gangplan"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/attempts"
	"gpu-spot-autoscaler/cloudprovider/reasons"
)

// Planner plans for gangs that no single offering has room for. *gangplan.Planner implements it.
type Planner interface {
	Initialize(autoscaling *cacontext.AutoscalingContext, registry *clusterstate.ClusterStateRegistry, estimators estimator.EstimatorBuilder)
	// Plan returns an error of type *gangplan.ImpossibleError if there is no plan.
	Plan(request gangplan.Request) ([]gangplan.Part, error)
}

// Purchases has what core buys bought together. *ess.Purchases implements it.
type Purchases interface {
	// Gather has the purchases that buy makes wait until it returns, or calls send. Those of one offering become one.
	Gather(buy func(send func()))
	// Bundle has the atomic purchases that buy makes wait until it returns. All of them are bought if it returns true, else none.
	Bundle(buy func() bool)
}

// tryGang buys for all pods of a gang, or for its minimum if there is no option for all. Either is bought of one offering if possible,
// else of several. Spot instances for a gang whose deadline is close come last.
func (g *Gangs) tryGang(l *loop, gang podBatch, call scaleUp) (*status.ScaleUpStatus, errors.AutoscalerError) {
	attempt, err := g.tryAllOrMinimum(l, gang, call)
	if err == nil && attempt.Result == status.ScaleUpNoOptionsAvailable {
		g.config.AllowSpot(gang.pods, func() { attempt, err = g.tryAllOrMinimum(l, gang, call) })
	}
	switch {
	case err != nil:
		gangAttempts.WithLabelValues("error").Inc()
	case attempt.Result == status.ScaleUpSuccessful:
		delete(g.told, gang.name)
		gangAttempts.WithLabelValues("bought").Inc()
	default:
		gangAttempts.WithLabelValues("no_options").Inc()
	}
	return attempt, err
}

func (g *Gangs) tryAllOrMinimum(l *loop, gang podBatch, call scaleUp) (*status.ScaleUpStatus, errors.AutoscalerError) {
	attempt, err := g.tryWhole(l, gang.name, gang.pods, call)
	if err == nil && attempt.Result == status.ScaleUpNoOptionsAvailable && gang.minimum < len(gang.pods) {
		klog.V(1).InfoS("No option for all pods of a gang, trying its minimum", "gang", gang.name, "pods", len(gang.pods), "minimum", gang.minimum)
		attempt, err = g.tryWhole(l, gang.name, gang.pods[:gang.minimum], call)
		if attempt != nil {
			attempt.PodsAwaitEvaluation = append(attempt.PodsAwaitEvaluation, gang.pods[gang.minimum:]...)
		}
	}
	return attempt, err
}

// tryWhole buys for all of the pods: of one offering, or of those of a plan if there is no option. For a gang with pods that request no
// GPU a plan comes first, since core would buy nodes with GPUs for them too; and for one of which only some are to be on demand.
func (g *Gangs) tryWhole(l *loop, gang string, pods []*apiv1.Pod, call scaleUp) (*status.ScaleUpStatus, errors.AutoscalerError) {
	var impossible *gangplan.ImpossibleError
	mixed := isMixed(pods) || len(g.apart(pods)) > 1
	if mixed {
		bought, noPlan, err := g.tryPlan(l, gang, pods, 1, call)
		if err != nil || bought != nil {
			return bought, err
		}
		impossible = noPlan
	}
	attempt, err := call(pods, true)
	if err != nil || attempt.Result != status.ScaleUpNoOptionsAvailable {
		return attempt, err
	}
	if !mixed {
		bought, noPlan, err := g.tryPlan(l, gang, pods, 2, call) // core has a reason not to buy of one offering
		if err != nil || bought != nil {
			return bought, err
		}
		impossible = noPlan
	}
	if impossible != nil {
		g.tell(gang, pods, impossible)
	}
	return attempt, nil
}

// isMixed returns whether some of the pods request GPUs and others do not.
func isMixed(pods []*apiv1.Pod) bool {
	requests := processors.RequestsGPU(pods[0])
	return slices.ContainsFunc(pods, func(pod *apiv1.Pod) bool { return processors.RequestsGPU(pod) != requests })
}

// apart returns the pods, those apart for which only on-demand instances may be bought. They come first: the others fill what they leave.
func (g *Gangs) apart(pods []*apiv1.Pod) [][]*apiv1.Pod {
	onDemand, others := g.config.Apart(pods)
	return slices.DeleteFunc([][]*apiv1.Pod{onDemand, others}, func(part []*apiv1.Pod) bool { return len(part) == 0 })
}

// tryPlan buys by a plan of at least so many offerings. It returns nil if nothing is bought, and why if there is no plan.
func (g *Gangs) tryPlan(l *loop, gang string, pods []*apiv1.Pod, offerings int, call scaleUp,
) (bought *status.ScaleUpStatus, impossible *gangplan.ImpossibleError, err errors.AutoscalerError) {
	parts, planErr := g.config.Planner.Plan(gangplan.Request{
		Pods: pods, Apart: g.apart(pods), AnyZone: slices.ContainsFunc(pods, g.config.Members.AnyZone), Nodes: l.nodes, Templates: l.templates,
	})
	switch {
	case goerrors.As(planErr, &impossible):
		return nil, impossible, nil
	case planErr != nil:
		klog.ErrorS(planErr, "Cannot plan for a gang", "gang", gang)
		return nil, nil, nil
	case len(parts) < offerings:
		return nil, nil, nil
	}
	bought, err = g.buyParts(gang, parts, call)
	return bought, nil, err
}

// buyParts has core buy each part of a plan, which reaches the cloud only if it buys all of them. It returns nil if core sees no option
// for one of them, because of a limit for the whole cluster for example.
func (g *Gangs) buyParts(gang string, parts []gangplan.Part, call scaleUp) (*status.ScaleUpStatus, errors.AutoscalerError) {
	var bought, attempt *status.ScaleUpStatus
	var err errors.AutoscalerError
	g.config.Purchases.Bundle(func() bool {
		for _, part := range parts {
			g.config.Only(part.Group.Id(), func() { attempt, err = call(part.Pods, true) })
			if err != nil || attempt.Result != status.ScaleUpSuccessful {
				klog.InfoS("A part of the plan for a gang cannot be bought, so nothing is", "gang", gang, "nodeGroup", part.Group.Id(), "nodes", part.Nodes, "err", err)
				return false
			}
			bought = attempts.Join(bought, attempt)
		}
		return true
	})
	switch {
	case err != nil:
		return attempt, err
	case attempt.Result != status.ScaleUpSuccessful:
		return nil, nil
	}
	klog.InfoS("Bought by a plan for a gang", "gang", gang, "offerings", len(parts))
	return bought, nil
}

// tell records an Event for the pods of a gang for which there is no plan, unless it says what the last one said. Where there is
// room for none, the Events of core say why.
func (g *Gangs) tell(gang string, pods []*apiv1.Pod, impossible *gangplan.ImpossibleError) {
	if g.config.Skipped != nil && impossible.Have > 0 {
		g.config.Skipped.Add(pods, reasons.New(reasons.GangDoesNotFit, "Raise the maximum of a pool, add instance types or zones, or let the gang be smaller; "+
			"the offerings below say what stands in the way of each.", "gang %s is not bought for: %v", gang, impossible))
	}
	if impossible.Have == 0 || g.told[gang] == impossible.Error() {
		return
	}
	g.told[gang] = impossible.Error()
	for _, pod := range pods {
		g.autoscaling.Recorder.Eventf(pod, apiv1.EventTypeWarning, "SpotGangDoesNotFit", "Gang %s is not bought for: %v", gang, impossible)
	}
}
