package scaleup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

// onDemand is an offering of on-demand instances, for which pods wait.
func onDemand(name string, price float64, wait time.Duration) offered {
	o := offer(name, price, "1")
	o.onDemandAfter = &wait
	return o
}

// aged sets the age of the pod.
func aged(age time.Duration) testutil.PodOption {
	return func(pod *apiv1.Pod) { pod.CreationTimestamp.Time = time.Now().Add(-age) }
}

var spotOnly = testutil.Annotated(api.AnnotationOnDemandAfter, api.OnDemandNever)

func TestPodsThatWaitForSpotAreToldWhatTheyWaitFor(t *testing.T) {
	core := newRealCore(t, catalogue{"spot": offer("spot", 5, "1"), "od": onDemand("od", 1, time.Hour)}, missing{}, true)
	core.loop(testutil.NewPods(2, "p", testutil.Replicated, aged(time.Minute)))
	assert.Equal(t, []string{"spot"}, core.expander.of, "though it is dearer")

	core = newRealCore(t, catalogue{"od": onDemand("od", 1, time.Hour)}, missing{}, true)
	_, result := core.loop(testutil.NewPods(1, "p", testutil.Replicated, aged(time.Minute)))
	require.Len(t, result.PodsRemainUnschedulable, 1)
	assert.Equal(t, notNowReason, result.PodsRemainUnschedulable[0].SkippedNodeGroups["od"])
}

func TestNobodyGetsOnDemandBecauseSomebodyElseMay(t *testing.T) {
	core := newRealCore(t, catalogue{"at-once": onDemand("at-once", 1, 0), "later": onDemand("later", 1, time.Hour)}, missing{}, true)
	ordinary, never := testutil.NewPod("ordinary", aged(time.Minute)), testutil.NewPods(5, "never", spotOnly, aged(2*time.Minute))
	_, result := core.loop(append(never, ordinary))
	assert.Equal(t, map[string]int{"at-once": 1}, core.bought)
	assert.Equal(t, []string{"ordinary"}, testutil.Names(result.PodsTriggeredScaleUp))
	assert.Len(t, result.PodsRemainUnschedulable, 5)
}

func TestAGangOfWhichOnePodTakesSpotOnlyGetsNoOnDemandInstances(t *testing.T) {
	core := newRealCore(t, catalogue{"od": onDemand("od", 1, 0)}, missing{"ml/train": 3}, true)
	workers := testutil.NewPods(2, "worker", testutil.InGang("train", 3), spotOnly, aged(time.Hour))
	core.loop(append(workers, testutil.NewPod("master", testutil.InGang("train", 3), aged(time.Hour))))
	assert.Empty(t, core.bought)
}

func TestAGangThatHasWaitedIsBoughtOfSpotAndOnDemandTogether(t *testing.T) {
	spot, od := offer("spot", 1, "1").in("a", "A10", 2), onDemand("od", 5, 10*time.Minute).in("a", "A10", 2)
	core := newRealCore(t, catalogue{"spot": spot, "od": od}, missing{"ml/train": 4}, true)
	young := testutil.NewPods(3, "young", testutil.InGang("train", 4), aged(time.Minute))
	gang := append(young, testutil.NewPod("first", testutil.InGang("train", 4), aged(time.Hour)))
	core.loop(gang)
	assert.Equal(t, map[string]int{"spot": 2, "od": 2}, core.bought)
	assert.Equal(t, 1, core.bundles.committed)

	core = newRealCore(t, catalogue{"spot": spot, "od": od}, missing{"ml/train": 4}, true)
	core.loop(testutil.NewPods(4, "young", testutil.InGang("train", 4), aged(time.Minute)))
	assert.Empty(t, core.bought, "none of it has waited")
}

// late makes the pod's job one whose deadline is close.
func late(pod *apiv1.Pod) {
	pod.Annotations[api.AnnotationDeadline] = time.Now().Add(time.Hour).Format(time.RFC3339)
	pod.Annotations[api.AnnotationWork] = "1h"
}

func TestAGangWhoseDeadlineIsCloseTakesSpotOnlyIfNoPlanForOnDemandHasRoom(t *testing.T) {
	od, otherOD := onDemand("od", 5, 0).in("a", "A10", 2), onDemand("other-od", 5, 0).in("a", "A10", 2)
	spot, otherSpot := offer("spot", 1, "1").in("a", "A10", 4), offer("other-spot", 1, "1").in("a", "A10", 2)
	gang := testutil.NewPods(4, "p", testutil.InGang("train", 4), late)
	core := newRealCore(t, catalogue{"spot": spot, "od": od, "other-od": otherOD}, missing{"ml/train": 4}, true)
	core.loop(gang)
	assert.Equal(t, map[string]int{"od": 2, "other-od": 2}, core.bought)

	spot.max = 2
	core = newRealCore(t, catalogue{"spot": spot, "other-spot": otherSpot}, missing{"ml/train": 4}, true)
	core.loop(gang)
	assert.Equal(t, map[string]int{"spot": 2, "other-spot": 2}, core.bought, "by a plan, since there is nothing else")
}

func TestAnOnDemandInstanceThatIsOnItsWayIsForThePodForWhichItWasBought(t *testing.T) {
	core := newRealCore(t, catalogue{"od": onDemand("od", 1, 10*time.Minute)}, missing{}, true)
	pods := append(testutil.NewPods(2, "never", spotOnly, aged(time.Hour)), testutil.NewPod("waiting", aged(time.Minute)), testutil.NewPod("waited", aged(time.Hour)))
	for range 4 {
		core.loop(pods)
	}
	assert.Equal(t, map[string]int{"od": 1}, core.bought)
}
