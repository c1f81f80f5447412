package processors

import (
	"fmt"
	"strconv"

	apiv1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// A gang is a set of pods that is worth nothing until a minimum of them can run at the same time.
//
// The ways to declare one, in the order of precedence, each as labels or as annotations of its pods.
var gangDeclarations = []struct{ name, size string }{
	// Ours, for jobs whose scheduler knows nothing of gangs.
	{api.AnnotationGangName, api.AnnotationGangSize},
	// Coscheduling, which is ACK's gang scheduling and what `arena submit --gang` writes.
	{api.AnnotationPodGroupName, api.AnnotationPodGroupMinAvailable},
	// Koordinator.
	{api.AnnotationKoordinatorGangName, api.AnnotationKoordinatorGangMinAvailable},
}

// MalformedGangError says that a pod declares a gang whose size cannot be read.
type MalformedGangError struct{ Gang, Key, Value string }

func (e *MalformedGangError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("gang %q is declared without its size in %s", e.Gang, e.Key)
	}
	return fmt.Sprintf("gang %q: %s=%q is not a number of pods", e.Gang, e.Key, e.Value)
}

// gangOf returns the gang that a pod belongs to, unique in the cluster, and how many of its pods must run together.
// The gang is "" for a pod that belongs to none. The error is a *MalformedGangError.
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

func declared(pod *apiv1.Pod, key string) string {
	if value, ok := pod.Labels[key]; ok {
		return value
	}
	return pod.Annotations[key]
}

// Gangs is what the loop under way knows of gangs: [Hold] finds it out, [GangOrchestrator] acts on it.
type Gangs struct {
	// missing is how many pods of each complete gang have yet to be bought for, all at once.
	missing map[string]int
}

// Missing returns the gang of a pod and how many of its pods have to be bought for at once, for the gang to run at its
// minimum. The gang is "" for a pod that may be bought for on its own: one of no gang, or of one that has its minimum.
func (g *Gangs) Missing(pod *apiv1.Pod) (gang string, count int) {
	gang, _, err := gangOf(pod)
	if err != nil || g.missing[gang] == 0 {
		return "", 0
	}
	return gang, g.missing[gang]
}

// census counts the pods of one gang.
type census struct {
	size int
	// running counts pods that have a node, pending those that want one, unplaced the pending ones for which no
	// existing or upcoming node would do.
	running, pending, unplaced int
}

// censusOf returns that of the pod's gang, nil where it has none.
func censusOf(gangs map[string]*census, pod *apiv1.Pod) *census {
	name, _, _ := gangOf(pod)
	return gangs[name]
}

func (c census) complete() bool { return c.running+c.pending >= c.size }

// missing is how many of the unplaced pods it takes to reach the gang's size.
func (c census) missing() int {
	placed := c.running + c.pending - c.unplaced
	return min(max(0, c.size-placed), c.unplaced)
}
