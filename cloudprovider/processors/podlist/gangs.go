package podlist

import (
	"fmt"
	"strconv"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors"
)

// A gang is a set of pods of which a minimum must run at the same time.
//
// gangDeclarations are the ways to declare one, in the order of precedence, each as labels or as annotations of its pods.
var gangDeclarations = []struct{ name, size string }{
	// Ours, for jobs whose scheduler has no gangs.
	{api.AnnotationGangName, api.AnnotationGangSize},
	// Coscheduling, which is ACK's gang scheduling and what `arena submit --gang` writes.
	{api.AnnotationPodGroupName, api.AnnotationPodGroupMinAvailable},
	// Koordinator.
	{api.AnnotationKoordinatorGangName, api.AnnotationKoordinatorGangMinAvailable},
}

// MalformedGangError is returned for a pod that declares a gang whose size cannot be read.
type MalformedGangError struct{ Gang, Key, Value string }

func (e *MalformedGangError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("gang %q is declared without its size in %s", e.Gang, e.Key)
	}
	return fmt.Sprintf("gang %q: %s=%q is not a number of pods", e.Gang, e.Key, e.Value)
}

// gangOf returns the gang that a pod belongs to, unique in the cluster, and how many of its pods must run together. The gang
// is "" for a pod that belongs to none. The error is a *MalformedGangError.
func gangOf(pod *apiv1.Pod) (gang string, size int, err error) {
	for _, declaration := range gangDeclarations {
		name := declared(pod, declaration.name)
		if name == "" {
			continue
		}
		value := declared(pod, declaration.size)
		size, err := strconv.Atoi(value)
		if err != nil || size < 1 {
			return "", 0, &MalformedGangError{Gang: name, Key: declaration.size, Value: value}
		}
		return pod.Namespace + "/" + name, size, nil
	}
	return "", 0, nil
}

// InvalidGangZonesError is returned for a pod that says neither that its gang may be in one zone only nor in any.
type InvalidGangZonesError struct{ Value string }

func (e *InvalidGangZonesError) Error() string {
	return fmt.Sprintf("%s=%q is neither %s nor %s, so the gang is bought in one zone", api.AnnotationGangZones, e.Value, api.GangZonesOne, api.GangZonesAny)
}

// anyZone returns whether the gang of the pod may be in several zones. The error is an *InvalidGangZonesError.
func anyZone(pod *apiv1.Pod) (bool, error) {
	switch value := declared(pod, api.AnnotationGangZones); value {
	case api.GangZonesAny:
		return true, nil
	case "", api.GangZonesOne:
		return false, nil
	default:
		return false, &InvalidGangZonesError{value}
	}
}

func declared(pod *apiv1.Pod, key string) string {
	if value, ok := pod.Labels[key]; ok {
		return value
	}
	return pod.Annotations[key]
}

// gangs is what the loops know of gangs.
type gangs struct {
	// missing is how many pods of each complete gang have yet to be bought for, all at once, as of the last loop.
	missing map[string]int
	// reported are the pods that a malformed declaration was reported for.
	reported sets.Set[types.UID]
}

func newGangs() *gangs { return &gangs{reported: sets.New[types.UID]()} }

func (g *gangs) missingFor(pod *apiv1.Pod) (gang string, count int) {
	gang, _, err := gangOf(pod)
	if err != nil || g.missing[gang] == 0 {
		return "", 0
	}
	return gang, g.missing[gang]
}

// update records what the gangs miss in this loop.
func (g *gangs) update(counts gangCounts) {
	g.missing = map[string]int{}
	for name, count := range counts {
		g.missing[name] = count.missing()
	}
}

// forgetOthers drops the pods that are not pending any more.
func (g *gangs) forgetOthers(pending sets.Set[types.UID]) {
	g.reported = g.reported.Intersection(pending)
}

// countPending returns the gangs of the pending pods. For a pod with a malformed declaration it records an Event once.
func (g *gangs) countPending(ctx *cacontext.AutoscalingContext, pending []*apiv1.Pod) gangCounts {
	counts := gangCounts{}
	for _, pod := range pending {
		if processors.IsProvisioningRequest(pod) {
			continue
		}
		name, size, err := gangOf(pod)
		if err != nil {
			g.report(ctx, pod, "Treated as an ordinary pod: %v", err)
		}
		if name == "" {
			continue
		}
		if _, err := anyZone(pod); err != nil {
			g.report(ctx, pod, "%v", err)
		}
		count := counts[name]
		if count == nil {
			count = &gangCount{}
			counts[name] = count
		}
		count.pending++
		count.size = max(count.size, size)
	}
	return counts
}

// report records an Event about a malformed declaration, once for each pod.
func (g *gangs) report(ctx *cacontext.AutoscalingContext, pod *apiv1.Pod, format string, err error) {
	if g.reported.Has(pod.UID) {
		return
	}
	g.reported.Insert(pod.UID)
	malformedGangs.Inc()
	ctx.Recorder.Eventf(pod, apiv1.EventTypeWarning, "SpotGangMalformed", format, err)
}

// gangCount counts the pods of one gang.
type gangCount struct {
	size int
	// running counts the pods that have a node, pending those that have none, and unplaced the pending ones that fit no
	// existing or upcoming node.
	running, pending, unplaced int
}

func (c gangCount) complete() bool { return c.running+c.pending >= c.size }

// missing returns how many of the unplaced pods the gang needs to reach its size.
func (c gangCount) missing() int {
	placed := c.running + c.pending - c.unplaced
	return min(max(0, c.size-placed), c.unplaced)
}

// gangCounts are the gangs of a loop by name.
type gangCounts map[string]*gangCount

// of returns the count of the pod's gang, or nil if it has none.
func (c gangCounts) of(pod *apiv1.Pod) *gangCount {
	name, _, _ := gangOf(pod)
	return c[name]
}

// addRunning counts the pods that have a node, of all pods in the cluster that have not ended.
func (c gangCounts) addRunning(ctx *cacontext.AutoscalingContext) error {
	if len(c) == 0 {
		return nil
	}
	all, err := ctx.AllPodLister().List()
	if err != nil {
		return err
	}
	for _, pod := range all {
		if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil {
			continue
		}
		if count := c.of(pod); count != nil {
			count.running++
		}
	}
	return nil
}

// addUnplaced counts the pending pods that are left without a place.
func (c gangCounts) addUnplaced(pending sets.Set[types.UID], left []*apiv1.Pod) {
	for _, pod := range left {
		if count := c.of(pod); count != nil && pending.Has(pod.UID) {
			count.unplaced++
		}
	}
}
