package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/ess/ledger"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/fault"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/reclaim/poll"
)

const (
	deviceLost = "NvidiaDeviceLost"
	heldFaults = "gpu_spot_node_faults_held"
)

// fakePools are the pools that the label "pool" of Nodes names. What is given back is gone at once, unless it lingers.
type fakePools struct {
	w *world

	mu       sync.Mutex
	released []string
	err      error
	lingers  bool
	// unread is closed once the pools have been read; nil if they have been all along.
	unread chan struct{}
	// takes is how long the cloud takes to accept a release.
	takes time.Duration
}

func (p *fakePools) FirstRead() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unread != nil {
		return p.unread
	}
	return noPools{}.FirstRead()
}

func (p *fakePools) areRead() bool {
	select {
	case <-p.FirstRead():
		return true
	default:
		return false
	}
}

func (p *fakePools) Lists(string) bool { return false }

func (p *fakePools) PoolID(node *corev1.Node) (string, bool) {
	if !p.areRead() || node.Labels["pool"] == "" {
		return "", false
	}
	return node.Labels["pool"], true
}

func (p *fakePools) GiveBack(node *corev1.Node) error {
	p.mu.Lock()
	takes := p.takes
	p.mu.Unlock()
	time.Sleep(takes)
	if _, ours := p.PoolID(node); !ours {
		return ess.ErrNoPool
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released = append(p.released, node.Name)
	if p.err != nil {
		return p.err
	}
	p.w.removals.Note([]string{"i-" + node.Name})
	if !p.lingers {
		p.w.cloud.release(node.Name)
	}
	return nil
}

func (p *fakePools) refuse(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// forget has the pools not be read yet, as for a new leader, until the function is called that it returns.
func (p *fakePools) forget() (read func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	unread := make(chan struct{})
	p.unread = unread
	return func() { close(unread) }
}

func (p *fakePools) linger() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lingers = true
}

// gone are the Nodes whose instances were given back, sorted, with repetitions.
func (p *fakePools) gone() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(slices.Values(p.released))
}

// watchFaults has the controller look for lost devices.
func (p *fakePools) watchFaults(c *settings) {
	c.Pools, c.Faults.Conditions = p, fault.Conditions{deviceLost: fault.DefaultPeriod}
}

// pollRarely is for tests of hours.
func pollRarely(c *settings) { c.PollInterval = 20 * time.Second }

// lost has the condition on the Node as the node-problem-detector writes it.
func lost(status corev1.ConditionStatus) func(*corev1.Node) { return broken(deviceLost, status, "") }

func broken(kind corev1.NodeConditionType, status corev1.ConditionStatus, message string) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.Status.Conditions = []corev1.NodeCondition{{Type: kind, Status: status, Reason: "NodeHasGPUFault", Message: message}}
	}
}

func TestAFaultyNodeIsDrainedAndItsInstanceGivenBack(t *testing.T) {
	inBubble(t, func(w *world) {
		pools := &fakePools{w: w}
		w.addNode("a")
		w.addNode("b")
		w.addPod("p", "a")
		w.addPod("other", "b")
		before := value(t, "gpu_spot_node_faults_total", deviceLost)
		w.start(pools.watchFaults, unreplaced)
		w.updateNode("a", lost("True"))
		w.pass(fault.Persistence - time.Second)
		requireUnmarked(t, w.node("a"))
		w.pass(2 * time.Second)
		requireMarked(t, w.node("a"), cluster.TimeOf(w.node("a"), api.AnnotationReclaimDeadline))
		assert.WithinDuration(t, time.Now().Add(fault.DefaultPeriod), cluster.TimeOf(w.node("a"), api.AnnotationReclaimDeadline), 3*time.Second)
		assert.Equal(t, "fault", w.node("a").Annotations[api.AnnotationReclaimSource])
		assert.EqualValues(t, 1, w.notified.Load(), "core is to buy the replacement")
		assert.Equal(t, before+1, value(t, "gpu_spot_node_faults_total", deviceLost))

		w.pass(10 * time.Second)
		assert.Equal(t, []string{"other", "p"}, w.pods(), "there is no place elsewhere yet")
		assert.Empty(t, pools.gone())
		w.pass(time.Minute)
		assert.Equal(t, []string{"other"}, w.pods())
		assert.Equal(t, []string{"a"}, pools.gone())
		assert.Nil(t, w.node("a"))
		requireUnmarked(t, w.node("b"))
		assert.Equal(t, []string{"SpotNodeFault a", "SpotReclaimDrained a", "SpotReclaimEvicted p", "SpotReclaimNotice a", "SpotReclaimReleased a"},
			without(w.seen(), "SpotReclaimWarned p"))
	})
}

// without returns the texts without this one.
func without(texts []string, text string) (left []string) {
	for _, t := range texts {
		if t != text {
			left = append(left, t)
		}
	}
	return left
}

func TestAnErrorOfAProgramTakesNoNodeAway(t *testing.T) {
	inBubble(t, func(w *world) {
		pools := &fakePools{w: w}
		w.addNode("a", broken("GPUError", "True", "NVRM: Xid (PCI:0000:03:00): 31, pid=1, MMU Fault"))
		w.start(func(c *settings) { c.Pools, c.Faults.Conditions = pools, fault.Conditions{"GPUError": time.Minute} })
		w.pass(10 * time.Minute)
		requireUnmarked(t, w.node("a"))
		w.updateNode("a", broken("GPUError", "True", "NVRM: Xid (PCI:0000:03:00): 79, pid=1, GPU has fallen off the bus"))
		w.pass(time.Minute)
		assert.Equal(t, []string{"a"}, pools.gone())
	})
}

func TestWhatIsNoFaultTouchesNothing(t *testing.T) {
	for name, change := range map[string]func(*corev1.Node){
		"the condition is False":   lost("False"),
		"the condition is Unknown": lost("Unknown"),
		"another condition":        broken("KernelDeadlock", "True", ""),
		"a Node of no pool":        func(node *corev1.Node) { lost("True")(node); delete(node.Labels, "pool") },
		"a Node of another cloud":  func(node *corev1.Node) { lost("True")(node); node.Spec.ProviderID = "kind://a" },
		"one that is being given back": func(node *corev1.Node) {
			lost("True")(node)
			node.Annotations = map[string]string{api.AnnotationRemoved: "2000-01-01T00:00:00Z"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				pools := &fakePools{w: w}
				w.addNode("a", change)
				w.start(pools.watchFaults)
				w.pass(15 * time.Minute)
				requireUnmarked(t, w.node("a"))
				assert.Empty(t, pools.gone())
				assert.Empty(t, w.seen())
			})
		})
	}
}

func TestAConditionThatComesAndGoesIsNoFault(t *testing.T) {
	inBubble(t, func(w *world) {
		pools := &fakePools{w: w}
		w.addNode("a")
		w.start(pools.watchFaults)
		for range 10 {
			w.updateNode("a", lost("True"))
			w.pass(fault.Persistence - 2*time.Second)
			w.updateNode("a", lost("False"))
			w.pass(2 * time.Second)
		}
		requireUnmarked(t, w.node("a"))
		assert.Empty(t, w.seen())
	})
}

func TestAFaultThatIsOverBeforeTheNodeIsDrainedIsTakenBack(t *testing.T) {
	inBubble(t, func(w *world) {
		pools := &fakePools{w: w}
		w.addNode("a", withTaint)
		w.addPod("guarded", "a")
		w.protect("guarded")
		w.start(pools.watchFaults)
		w.updateNode("a", lost("True"))
		w.pass(5 * time.Minute)
		require.True(t, cluster.IsMarked(w.node("a")), "ECS knows nothing of it, and does not contradict it either")
		w.seen()
		w.updateNode("a", lost("False"))
		w.pass(2 * poll.DefaultInterval)
		requireUnmarked(t, w.node("a"))
		assert.False(t, w.node("a").Spec.Unschedulable)
		assert.Equal(t, []corev1.Taint{spotTaint}, w.node("a").Spec.Taints)
		assert.Equal(t, []string{"SpotReclaimCancelled a"}, w.seen())
		w.pass(20 * time.Minute)
		assert.Empty(t, pools.gone())
		assert.Equal(t, []string{"guarded"}, w.pods())

		w.updateNode("a", lost("True"))
		w.pass(fault.Persistence + time.Second)
		assert.True(t, cluster.IsMarked(w.node("a")), "the next fault counts")
	})
}

func TestADrainedFaultyNodeGoesWhateverItsConditionsSayAfterwards(t *testing.T) {
	inBubble(t, func(w *world) {
		pools := &fakePools{w: w}
		pools.linger()
		w.addNode("a")
		w.start(pools.watchFaults)
		w.updateNode("a", lost("True"))
		w.pass(fault.Persistence + 2*time.Second)
		require.Equal(t, []string{"a"}, pools.gone(), "it has no pods")
		w.updateNode("a", lost("False"))
		w.pass(time.Minute)
		assert.True(t, cluster.IsMarked(w.node("a")))
		w.cloud.release("a")
		w.pass(time.Minute)
		assert.Nil(t, w.node("a"))
	})
}

func TestADrainedFaultyNodeTakesNoPodsAgainWhileTheCloudHasNotAnswered(t *testing.T) {
	inBubble(t, func(w *world) {
		pools := &fakePools{w: w, takes: time.Minute}
		w.addNode("a")
		w.start(pools.watchFaults)
		w.updateNode("a", lost("True"))
		w.pass(fault.Persistence + 2*time.Second)
		require.True(t, cluster.IsDrained(w.node("a")))
		w.updateNode("a", lost("False"))
		w.pass(45 * time.Second)
		assert.True(t, cluster.IsMarked(w.node("a")))
		assert.Empty(t, pools.gone())
		w.pass(time.Minute)
		assert.Equal(t, []string{"a"}, pools.gone())
		assert.Nil(t, w.node("a"))
	})
}

func TestAFaultyNodeTakesNoPodsAgainWhileItsInstanceIsGivenBackAfterARefusal(t *testing.T) {
	inBubble(t, func(w *world) {
		pools := &fakePools{w: w}
		pools.refuse(fmt.Errorf("node group: remove instance i-a: %w", ess.ErrKept))
		w.addNode("a", lost("True"))
		w.start(pools.watchFaults)
		w.pass(time.Minute)
		require.NotEmpty(t, pools.gone())
		pools.refuse(nil) // somebody has ended the protection
		pools.mu.Lock()
		pools.takes = time.Minute
		pools.mu.Unlock()
		w.pass(40 * time.Second) // the next attempt is under way
		w.updateNode("a", lost("False"))
		w.pass(15 * time.Second)
		assert.True(t, cluster.IsMarked(w.node("a")))
		w.pass(2 * time.Minute)
		assert.Nil(t, w.node("a"))
	})
}

func TestAFaultyInstanceThatWasNotRemovedIsGivenBackAgain(t *testing.T) {
	inBubble(t, func(w *world) {
		pools := &fakePools{w: w}
		pools.linger() // ESS accepts the removal, and its activity fails
		w.addNode("a", lost("True"))
		w.start(pools.watchFaults)
		w.pass(time.Minute)
		require.Equal(t, []string{"a"}, pools.gone())
		first := w.node("a").Annotations[api.AnnotationRemoved]
		w.pass(15 * time.Minute)
		require.Equal(t, []string{"a"}, pools.gone(), "it may still be removed")
		w.stop()
		w.start(pools.watchFaults)
		w.pass(5 * time.Minute)
		assert.Equal(t, []string{"a", "a"}, pools.gone())
		assert.Greater(t, w.node("a").Annotations[api.AnnotationRemoved], first, "the next leader counts from there")
		w.cloud.release("a")
		w.pass(time.Minute)
		assert.Nil(t, w.node("a"))
	})
}

func TestANodeCountsAsOnItsWayOutForLongerThanESSMayTake(t *testing.T) {
	assert.Greater(t, notice.RemovalTime, ledger.RemovalTimeout)
}

func TestANodeWhoseRemovalCameToNothingMayBeFaultyLater(t *testing.T) {
	inBubble(t, func(w *world) {
		pools := &fakePools{w: w}
		w.addNode("a", func(node *corev1.Node) {
			node.Annotations = map[string]string{api.AnnotationRemoved: time.Now().Add(-time.Hour).Format(time.RFC3339)}
		})
		w.start(pools.watchFaults)
		w.updateNode("a", lost("True"))
		w.pass(time.Minute)
		assert.Equal(t, []string{"a"}, pools.gone())
	})
}

func TestAtTheDeadlineAFaultyInstanceIsGivenBackWithThePodsThatAreLeft(t *testing.T) {
	inBubble(t, func(w *world) {
		pools := &fakePools{w: w}
		w.client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewInternalError(errors.New("a process that hangs in the driver cannot be killed"))
		})
		w.addNode("a")
		w.addPod("stuck", "a")
		w.protect("stuck")
		w.start(pools.watchFaults)
		w.updateNode("a", lost("True"))
		w.pass(fault.Persistence + fault.DefaultPeriod - 5*time.Second)
		assert.Empty(t, pools.gone())
		w.pass(10 * time.Second)
		assert.Equal(t, []string{"a"}, pools.gone())
		w.pass(time.Minute)
		assert.Nil(t, w.node("a"))
	})
}

// An operator's plugin of the node-problem-detector may say that ECS is about to maintain the machine (docs/reclaim.md, "of your own"). The
// period that goes with its condition is the time until then.
func TestAConditionForMaintenanceOfECSGivesItsNodeUntilThePeriodOfItsOwn(t *testing.T) {
	const maintenance, period = "ECSSystemMaintenance", 45 * time.Minute
	inBubble(t, func(w *world) {
		pools := &fakePools{w: w}
		w.client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewInternalError(errors.New("it saves its work to the end"))
		})
		for _, name := range []string{"maintained", "lost"} {
			w.addNode(name)
			w.addPod("on-"+name, name)
			w.protect("on-" + name)
		}
		w.start(pools.watchFaults, pollRarely, func(c *settings) {
			conditions, err := fault.ParseConditions([]string{deviceLost, maintenance + "=" + period.String()})
			require.NoError(t, err)
			c.Faults.Conditions, c.Faults.MaxNodes = conditions, ptr.To(intstr.FromString("100%"))
		})
		w.updateNode("maintained", broken(maintenance, "True", "SystemMaintenance.Redeploy of i-maintained, not before 2026-05-01T10:00:00Z"))
		w.updateNode("lost", lost("True"))
		w.pass(fault.Persistence + 2*time.Second)
		for name, want := range map[string]time.Duration{"maintained": period, "lost": fault.DefaultPeriod} {
			requireMarked(t, w.node(name), cluster.TimeOf(w.node(name), api.AnnotationReclaimDeadline))
			assert.WithinDuration(t, time.Now().Add(want), cluster.TimeOf(w.node(name), api.AnnotationReclaimDeadline), 3*time.Second, name)
		}
		w.pass(period - time.Minute)
		assert.Equal(t, []string{"lost"}, pools.gone())
		assert.Contains(t, w.pods(), "on-maintained")
		w.pass(2 * time.Minute)
		assert.Equal(t, []string{"lost", "maintained"}, pools.gone(), "before the maintenance begins")
		assert.Nil(t, w.node("maintained"))
	})
}

func TestAFaultyOnDemandNodeIsGivenBackToo(t *testing.T) {
	for label, change := range map[string]func(*corev1.Node){
		"ACK's label": labelled(api.LabelSpotStrategy, alicloud.NoSpot), "our label": labelled(api.LabelPurchaseOption, "on-demand"),
	} {
		t.Run(label, func(t *testing.T) {
			inBubble(t, func(w *world) {
				pools := &fakePools{w: w}
				w.addNode("a", change)
				w.cloud.buyOnDemand("a")
				w.addPod("p", "a")
				w.start(pools.watchFaults, unreplaced)
				w.updateNode("a", lost("True"))
				w.pass(20 * time.Second)
				assert.True(t, cluster.IsMarked(w.node("a")))
				assert.Equal(t, []string{"i-a"}, w.notices.Reclaiming().UnsortedList())
				assert.Empty(t, w.notices.Lost(), "the market is not to blame")
				w.pass(time.Minute)
				assert.Equal(t, []string{"a"}, pools.gone())
				assert.Nil(t, w.node("a"))
			})
		})
	}
}

func TestAFaultyNodeThatIsReclaimedKeepsTheEarlierDeadline(t *testing.T) {
	inBubble(t, func(w *world) {
		pools := &fakePools{w: w}
		w.addNode("a")
		w.addPod("guarded", "a")
		w.protect("guarded")
		w.start(pools.watchFaults)
		w.updateNode("a", lost("True"))
		w.pass(time.Minute)
		w.cloud.reclaim("a")
		w.poll()
		assert.WithinDuration(t, time.Now().Add(notice.DefaultPeriod), cluster.TimeOf(w.node("a"), api.AnnotationReclaimDeadline), 2*poll.DefaultInterval)
	})
}

func TestAReclaimThatIsWithdrawnLeavesTheFault(t *testing.T) {
	inBubble(t, func(w *world) {
		pools := &fakePools{w: w}
		w.addNode("a", lost("True"))
		w.addPod("guarded", "a")
		w.protect("guarded")
		w.cloud.reclaim("a")
		w.start(pools.watchFaults)
		w.pass(time.Minute)
		require.Equal(t, "ecs-poll", w.node("a").Annotations[api.AnnotationReclaimSource])
		w.cloud.withdraw("a")
		w.pass(10 * time.Second)
		assert.Equal(t, "fault", w.node("a").Annotations[api.AnnotationReclaimSource])
	})
}

func TestFaultsOfManyNodesAreHeld(t *testing.T) {
	inBubble(t, func(w *world) {
		pools := &fakePools{w: w}
		const nodes = 30
		for i := range nodes {
			w.addNode(fmt.Sprintf("n%02d", i), lost("True"))
		}
		w.start(pools.watchFaults, pollRarely)
		w.pass(30 * time.Minute)
		assert.Equal(t, []string{"n00", "n01", "n02"}, pools.gone(), "a tenth")
		assert.EqualValues(t, nodes-3, value(t, heldFaults))
		assert.Equal(t, nodes-3, strings.Count(strings.Join(w.seen(), "\n"), "SpotNodeFaultHeld"), "each is told once")
		w.pass(29 * time.Minute)
		assert.Len(t, pools.gone(), 3, "what is gone counts for an hour")
		for i := 3; i < nodes; i++ {
			w.updateNode(fmt.Sprintf("n%02d", i), lost("False"))
		}
		w.pass(2 * time.Second)
		assert.Zero(t, value(t, heldFaults))
		w.pass(10 * time.Minute)
		w.updateNode("n10", lost("True"))
		w.pass(time.Minute)
		assert.Equal(t, []string{"n00", "n01", "n02", "n10"}, pools.gone())
	})
}

func TestFaultsOfManySmallPoolsAreHeld(t *testing.T) {
	inBubble(t, func(w *world) {
		pools := &fakePools{w: w}
		for i := range 20 {
			w.addNode(fmt.Sprintf("n%02d", i), lost("True"), labelled("pool", fmt.Sprint("pool-", i)))
		}
		w.start(pools.watchFaults, pollRarely)
		w.pass(30 * time.Minute)
		assert.Equal(t, []string{"n00", "n01"}, pools.gone(), "a tenth of all, although each is all of its pool")
	})
}

func TestTheBoundOfFaultsMayBeANumberOrNone(t *testing.T) {
	for most, want := range map[intstr.IntOrString]int{intstr.FromInt32(0): 0, intstr.FromInt32(4): 4, intstr.FromString("0%"): 0, intstr.FromString("100%"): 6} {
		t.Run(most.String(), func(t *testing.T) {
			inBubble(t, func(w *world) {
				pools := &fakePools{w: w}
				for i := range 6 {
					w.addNode(fmt.Sprint("n", i), lost("True"), labelled("pool", fmt.Sprint("pool-", i%2)))
				}
				w.start(pools.watchFaults, pollRarely, func(c *settings) { c.Faults.MaxNodes = ptr.To(most) })
				w.pass(30 * time.Minute)
				assert.Len(t, pools.gone(), want)
			})
		})
	}
}

func TestANewLeaderGoesOnWithAFault(t *testing.T) {
	// The leader is killed after each of these times, which lie in all phases: before the mark, while pods are there, when the
	// Node is drained, and while the instance is being released.
	for _, after := range []time.Duration{2 * time.Second, 10 * time.Second, 12 * time.Second, 20 * time.Second, 45 * time.Second, 90 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			inBubble(t, func(w *world) {
				pools := &fakePools{w: w}
				pools.linger()
				w.addNode("a")
				w.addNode("b")
				w.addPod("p", "a")
				w.start(pools.watchFaults, unreplaced)
				w.updateNode("a", lost("True"))
				w.pass(after)
				deadline := w.node("a").Annotations[api.AnnotationReclaimDeadline]
				w.stop()
				w.start(pools.watchFaults, unreplaced)
				w.pass(2 * time.Minute)
				assert.Empty(t, w.pods())
				assert.Equal(t, []string{"a"}, pools.gone(), "once")
				assert.NotEmpty(t, w.node("a").Annotations[api.AnnotationRemoved])
				if deadline != "" {
					assert.Equal(t, deadline, w.node("a").Annotations[api.AnnotationReclaimDeadline])
				}
				w.cloud.release("a")
				w.pass(time.Minute)
				assert.Nil(t, w.node("a"))
				requireUnmarked(t, w.node("b"))
			})
		})
	}
}

func TestANewLeaderThatIsToLookForNoFaultsTakesTheMarksOff(t *testing.T) {
	inBubble(t, func(w *world) {
		pools := &fakePools{w: w}
		w.addNode("a", lost("True"))
		w.addPod("guarded", "a")
		w.protect("guarded")
		w.start(pools.watchFaults)
		w.pass(time.Minute)
		require.True(t, cluster.IsMarked(w.node("a")))
		w.stop()
		w.start(func(c *settings) { c.Pools = pools })
		w.pass(time.Minute)
		requireUnmarked(t, w.node("a"))
		assert.Equal(t, []string{"guarded"}, w.pods())
	})
}

func TestAnInstanceThatCannotBeGivenBackIsTriedAgain(t *testing.T) {
	inBubble(t, func(w *world) {
		pools := &fakePools{w: w}
		pools.refuse(errors.New("it is protected"))
		w.addNode("a", lost("True"))
		w.start(pools.watchFaults)
		w.pass(5 * time.Minute)
		assert.True(t, cluster.IsMarked(w.node("a")))
		assert.InDelta(t, 10, len(pools.gone()), 1, "every half minute")
		assert.Equal(t, 1, strings.Count(strings.Join(w.seen(), "\n"), "SpotNodeFaultStays a"), "it is told once")
		pools.refuse(nil)
		w.pass(time.Minute)
		assert.Nil(t, w.node("a"))
	})
}

func TestAFaultyNodeThatIsWellAgainServesOnOnlyIfItsInstanceHasToStay(t *testing.T) {
	for name, tc := range map[string]struct {
		err      error
		servesOn bool
	}{
		"the pool needs it":             {ess.ErrBelowMinimum, true},
		"it is protected":               {ess.ErrKept, true},
		"another Node claims it":        {ess.ErrDisputed, true},
		"its pool is managed no longer": {ess.ErrNoPool, true},
		"RAM denies it":                 {&alicloud.Error{Code: "Forbidden.RAM", Class: alicloud.Unauthorized}, false},
		"the attempt was given up":      {context.DeadlineExceeded, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				pools := &fakePools{w: w}
				pools.refuse(fmt.Errorf("node group: remove instance i-a: %w", tc.err))
				w.addNode("a", lost("True"))
				w.start(pools.watchFaults)
				w.pass(5 * time.Minute)
				w.updateNode("a", lost("False"))
				w.pass(time.Minute)
				assert.Equal(t, tc.servesOn, !cluster.IsMarked(w.node("a")))
				assert.Equal(t, tc.servesOn, !w.node("a").Spec.Unschedulable)
				if tc.servesOn {
					return
				}
				pools.refuse(nil)
				w.pass(time.Minute)
				assert.Nil(t, w.node("a"))
			})
		})
	}
}

func TestAFaultyNodeStaysDrainedWhileThePoolsHaveYetToBeRead(t *testing.T) {
	inBubble(t, func(w *world) {
		pools := &fakePools{w: w}
		w.addNode("a")
		w.addPod("p", "a")
		w.start(pools.watchFaults, unreplaced)
		w.updateNode("a", lost("True"))
		w.pass(fault.Persistence + 2*time.Second)
		require.True(t, cluster.IsMarked(w.node("a")))
		w.stop()
		read := pools.forget()
		w.start(pools.watchFaults, unreplaced)
		w.pass(time.Minute)
		require.True(t, cluster.IsDrained(w.node("a")))
		w.updateNode("a", lost("False"))
		w.pass(time.Minute)
		assert.True(t, cluster.IsMarked(w.node("a")))
		assert.NotContains(t, w.seen(), "SpotNodeFaultStays a")
		read()
		w.pass(time.Minute)
		assert.Equal(t, []string{"a"}, pools.gone())
	})
}

func TestTheFaultsOfAnEarlierLeaderCountForTheirPools(t *testing.T) {
	inBubble(t, func(w *world) {
		pools := &fakePools{w: w}
		pools.linger()
		for i := range 100 {
			w.addNode(fmt.Sprintf("n%02d", i), labelled("pool", fmt.Sprint("pool-", i/10)))
		}
		w.updateNode("n00", lost("True"))
		w.start(pools.watchFaults, pollRarely)
		w.pass(time.Minute)
		require.Equal(t, []string{"n00"}, pools.gone(), "a tenth of its pool")
		w.stop()
		read := pools.forget()
		w.start(pools.watchFaults, pollRarely)
		w.updateNode("n01", lost("True"))
		w.updateNode("n10", lost("True"))
		w.pass(30 * time.Second)
		read()
		w.pass(time.Minute)
		assert.Equal(t, []string{"n00", "n10"}, slices.Compact(pools.gone()))
		requireUnmarked(t, w.node("n01"))
	})
}
