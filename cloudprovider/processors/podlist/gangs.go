package podlist

import (
	"fmt"
	"math"
	"strconv"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

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

// NativeGangs knows the gangs of pods that declare none themselves. It must not block, and is asked in each loop.
type NativeGangs interface {
	// Find returns the gang of a pending pod. It has no name if the pod is in none.
	Find(pod *apiv1.Pod) NativeGang
	// NameOf returns the name that Find returns for the pod, or "" if it was not called for a pod of that gang yet.
	NameOf(pod *apiv1.Pod) string
}

// NativeGang is a gang as its scheduler or its job system knows it.
type NativeGang struct {
	// Name is unique in the cluster. It begins with the namespace of the pods, so that no tenant's pods count for another's gang.
	Name string
	// Size is how many pods have to run at least, UnknownSize as long as it has yet to be read.
	Size int
	// IsAssumed is whether nobody has said that the pods are a gang: their job needs them all, but their scheduler knows no gangs.
	IsAssumed bool
}

// UnknownSize is that of a gang of which pods have to wait until it is known. No gang has so many.
const UnknownSize = math.MaxInt32

// assumedTime is for how long an assumed gang may be incomplete. Then its pods are bought for as those of no gang: what keeps the others
// from being made, such as a quota, need not keep the job from running.
const assumedTime = time.Minute

// gangs is what the loops know of gangs.
type gangs struct {
	natives NativeGangs // may be nil
	clock   clock.PassiveClock
	// names are the gangs of the pending pods as this loop found them, "" for none: what is read of a gang meanwhile may give it another name.
	names map[types.UID]string
	// missing is how many pods of each complete gang have yet to be bought for, all at once, as of the last loop.
	missing map[string]int
	// incomplete is since when assumed gangs are.
	incomplete map[string]time.Time
	// reported are the pods that a malformed declaration was reported for.
	reported sets.Set[types.UID]
}

func newGangs(natives NativeGangs, clk clock.PassiveClock) *gangs {
	return &gangs{natives: natives, clock: clk, reported: sets.New[types.UID](), incomplete: map[string]time.Time{}}
}

// nameOf returns the gang of the pod, or "".
func (g *gangs) nameOf(pod *apiv1.Pod) string {
	if name, known := g.names[pod.UID]; known {
		return name
	}
	name, _, err := gangOf(pod)
	if name != "" || err != nil || !g.mayBeNative(pod) {
		return name
	}
	if size, err := sizeOverride(pod); err == nil && size == 1 {
		return ""
	}
	return g.natives.NameOf(pod)
}

func (g *gangs) mayBeNative(pod *apiv1.Pod) bool {
	return g.natives != nil && !IsStandIn(pod) && !processors.IsProvisioningRequest(pod)
}

// find returns the gang of a pending pod. The error is about what the pod says of it, and does not keep the pod from being in a gang.
func (g *gangs) find(pod *apiv1.Pod) (NativeGang, error) {
	name, size, err := gangOf(pod)
	if name != "" || err != nil || !g.mayBeNative(pod) {
		return NativeGang{Name: name, Size: size}, err
	}
	wanted, err := sizeOverride(pod)
	if wanted == 1 {
		return NativeGang{}, nil
	}
	native := g.natives.Find(pod)
	if native.Name != "" && native.Size != UnknownSize && wanted > 1 {
		native.Size = wanted
	}
	return native, err
}

// sizeOverride returns the size that the pod gives to a gang that something else declares; zero if it gives none. The error is a
// *MalformedGangError.
func sizeOverride(pod *apiv1.Pod) (int, error) {
	value := declared(pod, api.AnnotationGangSize)
	if value == "" {
		return 0, nil
	}
	size, err := strconv.Atoi(value)
	if err != nil || size < 1 {
		return 0, &MalformedGangError{Gang: pod.Name, Key: api.AnnotationGangSize, Value: value}
	}
	return size, nil
}

func (g *gangs) missingFor(pod *apiv1.Pod) (gang string, count int) {
	if gang = g.nameOf(pod); g.missing[gang] == 0 {
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
	g.names = map[types.UID]string{}
	for _, pod := range pending {
		if processors.IsProvisioningRequest(pod) {
			continue
		}
		gang, err := g.find(pod)
		g.names[pod.UID] = gang.Name
		switch {
		case err != nil && gang.Name == "":
			g.report(ctx, pod, "Treated as an ordinary pod: %v", err)
		case err != nil:
			g.report(ctx, pod, "Treated as one of its gang as declared elsewhere: %v", err)
		}
		if gang.Name == "" {
			continue
		}
		if _, err := anyZone(pod); err != nil {
			g.report(ctx, pod, "%v", err)
		}
		count := counts[gang.Name]
		if count == nil {
			count = &gangCount{namespace: pod.Namespace, isAssumed: true}
			counts[gang.Name] = count
		}
		count.pending++
		count.size, count.isAssumed = max(count.size, gang.Size), count.isAssumed && gang.IsAssumed
	}
	return counts
}

// dropAssumed drops the assumed gangs that have been incomplete for too long.
func (g *gangs) dropAssumed(counts gangCounts) {
	now, incomplete := g.clock.Now(), map[string]time.Time{}
	for name, count := range counts {
		if !count.isAssumed || count.complete() {
			continue
		}
		since, known := g.incomplete[name]
		if !known {
			since = now
		}
		incomplete[name] = since
		if now.Sub(since) >= assumedTime {
			klog.V(2).InfoS("Buying for the pods of a job one by one, because some have yet to be made", "gang", name,
				"pods", count.running+count.pending, "size", count.size)
			delete(counts, name)
		}
	}
	g.incomplete = incomplete
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
	namespace string
	size      int
	isAssumed bool
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
func (g *gangs) of(counts gangCounts, pod *apiv1.Pod) *gangCount {
	if len(counts) == 0 {
		return nil
	}
	return counts[g.nameOf(pod)]
}

// addRunning counts the pods that have a node, of all pods in the cluster that have not ended.
func (g *gangs) addRunning(ctx *cacontext.AutoscalingContext, counts gangCounts) error {
	if len(counts) == 0 {
		return nil
	}
	all, err := ctx.AllPodLister().List()
	if err != nil {
		return err
	}
	namespaces := sets.New[string]() // to find the gang of a pod takes a microsecond, and there may be 150,000
	for _, count := range counts {
		namespaces.Insert(count.namespace)
	}
	for _, pod := range all {
		if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || !namespaces.Has(pod.Namespace) {
			continue
		}
		if count := g.of(counts, pod); count != nil {
			count.running++
		}
	}
	return nil
}

// addUnplaced counts the pending pods that are left without a place.
func (g *gangs) addUnplaced(counts gangCounts, pending sets.Set[types.UID], left []*apiv1.Pod) {
	for _, pod := range left {
		if count := g.of(counts, pod); count != nil && pending.Has(pod.UID) {
			count.unplaced++
		}
	}
}
