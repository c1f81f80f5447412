package supervisor

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/jobs"
)

func TestWhatWasBoughtForAJobGoesBack(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.start()
		f.node("old")
		f.pass(time.Minute)
		f.job("train", waiting(10*time.Minute), elastic(8))
		f.systems.onSuspend = func(string) { // its pods take a while to end
			for _, name := range []string{"on-old", "on-new", "on-shared"} {
				pod, err := f.client.CoreV1().Pods("ml").Get(f.Context(), name, metav1.GetOptions{})
				require.NoError(t, err)
				pod.DeletionTimestamp = ptr.To(metav1.Now())
				_, err = f.client.CoreV1().Pods("ml").Update(f.Context(), pod, metav1.UpdateOptions{})
				require.NoError(t, err)
			}
			f.systems.onSuspend = nil
		}
		f.pod("train", "pending", "")
		f.pass(time.Minute)
		for _, name := range []string{"new", "shared", "foreign", "empty"} {
			f.node(name)
		}
		f.node("reclaimed", func(node *corev1.Node) { node.Labels[api.LabelReclaiming] = "true" })
		f.node("by-hand", func(node *corev1.Node) { node.Spec.Unschedulable = true })
		f.node("of-another-kind", func(node *corev1.Node) { node.Status.Allocatable = nil })
		f.pod("train", "on-old", "old")
		f.pod("train", "on-new", "new")
		f.pod("train", "on-shared", "shared")
		f.pod("train", "on-foreign", "foreign")
		f.pod("train", "on-reclaimed", "reclaimed")
		f.pod("", "neighbour", "shared")
		f.pod("", "agent", "new", func(pod *corev1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "agent", Controller: ptr.To(true)}}
		})
		f.pass(9 * time.Minute)
		require.Equal(t, []string{"suspend train max-wait"}, f.systems.done()[:1])
		assert.ElementsMatch(t, []string{"new", "empty", "by-hand"}, f.cordoned(), "nobody comes to what goes back")
		assert.Equal(t, []string{"empty"}, f.pools.givenBack)
		f.delete("on-old", "on-new", "on-shared", "on-foreign", "on-reclaimed", "pending")
		f.pass(2 * time.Second)
		assert.Equal(t, []string{"empty", "new"}, f.pools.givenBack)
	})
}

func TestWhatWasBoughtForPodsOfAnotherNameGoesBack(t *testing.T) {
	for name, test := range map[string]struct {
		err       error
		givenBack []string
		event     string
	}{
		"where the job can be suspended":                    {nil, []string{"node"}, "SpotNodeGivenBack node"},
		"and an Event says so where it cannot be suspended": {jobs.ErrUnsupported, nil, "SpotJobTimedOut train"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				f.start()
				f.systems.err = test.err
				f.job("train", waiting(time.Minute), madeOf("train-cluster"))
				f.pod("train-cluster", "pending", "")
				f.node("node")
				f.pod("train-cluster", "worker", "node")
				f.pass(time.Minute)
				require.Equal(t, []string{"suspend train max-wait"}, f.systems.done()[:1])
				f.delete("pending", "worker")
				f.pass(2 * time.Second)
				assert.Equal(t, test.givenBack, f.pools.givenBack)
				assert.Equal(t, []string{test.event}, f.events.recorded)
			})
		})
	}
}

func TestEmptyNodesGoBackThoughAJobThatHasEndedIsHeld(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.start()
		f.job("ended", held(jobs.HeldShrunk, jobs.HeldForReclaim), at(3), ended)
		f.job("train", waiting(time.Minute))
		f.pod("train", "worker-0", "")
		f.node("bought")
		f.pass(2 * time.Minute)
		assert.Equal(t, []string{"bought"}, f.cordoned())
	})
}

func TestEmptyNodesStayUntilItIsKnownWhichJobsAreHeld(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.systems.sync(false)
		f.start()
		f.job("train", waiting(time.Minute))
		f.pod("train", "worker-0", "")
		f.node("bought")
		f.pass(2 * time.Minute)
		require.Contains(t, f.systems.done(), "suspend train max-wait")
		require.Empty(t, f.cordoned(), "it may have been bought for one")
		f.systems.sync(true)
		f.pass(recheckEvery + lookEvery)
		assert.Equal(t, []string{"bought"}, f.cordoned())
	})
}

func TestEmptyNodesStayWhereTheyMayBeOthers(t *testing.T) {
	for name, others := range map[string]func(f *fixture){
		"a job that waits": func(f *fixture) {
			f.job("other")
			f.pod("other", "other-0", "")
		},
		"a job that is to come back": func(f *fixture) { f.job("other", held(jobs.HeldSuspended, jobs.HeldForReclaim)) },
		"pods whose node is reclaimed": func(f *fixture) {
			f.node("reclaimed", func(node *corev1.Node) { node.Labels[api.LabelReclaiming] = "true" })
			f.pod("other", "other-0", "reclaimed")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				f.start()
				f.job("train", waiting(time.Minute))
				f.pod("train", "worker-0", "")
				f.node("empty")
				others(f)
				f.pass(2 * time.Minute)
				assert.Contains(t, f.systems.done(), "suspend train max-wait")
				assert.Empty(t, f.cordoned())
			})
		})
	}
}

func TestWhatComesTooLateForAJobGoesBack(t *testing.T) {
	for name, test := range map[string]struct {
		after     time.Duration
		change    func(f *fixture)
		givenBack []string
	}{
		"a node that was under way when the wait ended":    {after: time.Minute, givenBack: []string{"late"}},
		"but not one that came when nobody expects it":     {after: lateNodeTime + recheckEvery},
		"nor one that the job runs on by now":              {time.Minute, func(f *fixture) { f.pod("train", "again-0", "late") }, nil},
		"nor where the owner of the job lets it try again": {time.Minute, func(f *fixture) { f.pod("train", "again-0", "") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				f.start()
				f.job("train", waiting(time.Minute))
				f.pod("train", "worker-0", "")
				f.pass(time.Minute)
				require.Equal(t, []string{"suspend train max-wait"}, f.systems.done())
				f.delete("worker-0")
				f.pass(test.after)
				if test.change != nil {
					test.change(f)
				}
				f.node("late")
				f.pass(recheckEvery)
				assert.Equal(t, test.givenBack, f.pools.givenBack)
				if test.givenBack == nil {
					assert.Empty(t, f.cordoned())
				}
			})
		})
	}
}

// A node is cordoned before its job is suspended, and that may fail for long.
func TestNodesOfAJobWhoseSuspensionFailsStayWithItOrGo(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(f *fixture)
		givenBack []string
	}{
		"its owner lets it wait for longer":  {func(f *fixture) { f.job("train", waiting(time.Hour)) }, nil},
		"its owner lets it go on with fewer": {func(f *fixture) { f.job("train", waiting(time.Minute), elastic(1)) }, nil},
		"its owner has fewer workers":        {func(f *fixture) { f.delete("pending") }, nil},
		"it is deleted":                      {func(f *fixture) { f.delete("pending", "worker") }, []string{"empty", "node"}},
		"it is deleted, and another waits": {func(f *fixture) {
			f.job("other")
			f.pod("other", "other-0", "")
			f.delete("pending", "worker")
		}, nil},
		"it can be suspended in the end": {func(f *fixture) { f.delete("worker") }, []string{"empty", "node"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				f.start()
				f.job("train", waiting(time.Minute))
				f.pod("train", "pending", "")
				f.node("node")
				f.pod("train", "worker", "node")
				f.node("empty")
				f.systems.fail(errors.New("the API server is away"))
				f.pass(time.Minute + time.Second)
				require.Equal(f, []string{"empty", "node"}, f.cordoned())
				test.meanwhile(f)
				f.pass(2 * time.Second)
				f.systems.fail(nil)
				f.pass(3 * time.Minute)
				slices.Sort(f.pools.givenBack)
				assert.Equal(t, test.givenBack, f.pools.givenBack)
				if test.givenBack == nil {
					assert.Empty(t, f.cordoned())
				}
			})
		})
	}
}

func TestTheCordonOfANodeThatIsReclaimingBecomesOneOfItsMarks(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.start()
		f.job("train", waiting(time.Minute))
		f.pod("train", "pending", "")
		f.node("node")
		f.systems.fail(errors.New("the API server is away"))
		f.pass(time.Minute + time.Second)
		require.Equal(f, []string{"node"}, f.cordoned())
		f.updateNode("node", func(node *corev1.Node) { metav1.SetMetaDataLabel(&node.ObjectMeta, api.LabelReclaiming, "true") })
		f.job("train", waiting(time.Hour))
		f.pass(time.Minute)
		node, err := f.client.CoreV1().Nodes().Get(t.Context(), "node", metav1.GetOptions{})
		require.NoError(t, err)
		assert.True(t, node.Spec.Unschedulable)
		assert.Equal(t, map[string]string{api.AnnotationReclaimCordoned: "true"}, node.Annotations, "whoever restores the Node undoes the cordon")
	})
}

// vacating has a node cordoned to be given back that still holds a pod of its job.
func vacating(f *fixture) {
	f.start()
	f.job("train", waiting(time.Minute))
	f.pod("train", "pending", "")
	f.node("node")
	f.pod("train", "worker", "node")
	f.pass(time.Minute)
	f.delete("pending")
	require.Equal(f, []string{"node"}, f.cordoned())
}

func TestNodesThatAreNotGivenBackAfterAll(t *testing.T) {
	for name, test := range map[string]func(f *fixture){
		"somebody else has come":        func(f *fixture) { f.pod("", "guest", "node") },
		"its pods do not leave":         func(f *fixture) { f.pass(vacateTime) },
		"its pool is at its minimum":    func(f *fixture) { f.pools.refuse(ess.ErrBelowMinimum, false); f.delete("worker") },
		"its instance is protected":     func(f *fixture) { f.pools.refuse(ess.ErrKept, true); f.delete("worker") },
		"its pool has no tags any more": func(f *fixture) { f.pools.refuse(ess.ErrNoPool, true); f.delete("worker"); f.pass(goneTime) },
		"another claims its instance":   func(f *fixture) { f.pools.refuse(ess.ErrDisputed, true); f.delete("worker") },
		"also where the leader is new":  func(f *fixture) { f.stop(); f.pod("", "guest", "node"); f.start() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				vacating(f)
				test(f)
				f.pass(2 * time.Second)
				assert.Empty(t, f.cordoned())
				assert.Empty(t, f.pools.givenBack)
			})
		})
	}
}

func TestNodeThatIsRestoredMeanwhileIsGivenBackAfterAll(t *testing.T) {
	inBubble(t, func(f *fixture) {
		vacating(f)
		f.updateNode("node", func(node *corev1.Node) { metav1.SetMetaDataLabel(&node.ObjectMeta, api.LabelReclaiming, "true") })
		f.delete("worker")
		f.pass(vacateTime)
		require.Empty(t, f.pools.givenBack)
		f.updateNode("node", func(node *corev1.Node) { delete(node.Labels, api.LabelReclaiming) }) // a drill has ended
		f.pass(2 * vacateEvery)
		assert.Equal(t, []string{"node"}, f.pools.givenBack)
	})
}

func TestNewLeaderGivesBackWhatTheOldOneMarked(t *testing.T) {
	inBubble(t, func(f *fixture) {
		vacating(f)
		f.stop()
		f.delete("worker")
		f.start()
		assert.Equal(t, []string{"node"}, f.pools.givenBack)
		assert.Contains(t, f.events.recorded, "SpotNodeGivenBack node")
	})
}

func TestNodeThatIsOfNoPoolBecauseItWasGivenBackStaysCordoned(t *testing.T) {
	inBubble(t, func(f *fixture) {
		vacating(f)
		f.pools.refuse(ess.ErrNoPool, true)
		f.updateNode("node", func(node *corev1.Node) {
			node.Annotations[api.AnnotationRemoved] = time.Now().UTC().Format(time.RFC3339)
		})
		f.delete("worker")
		f.pass(2 * time.Minute)
		assert.Equal(t, []string{"node"}, f.cordoned())
	})
}

func TestNodeWhoseInstanceIsGoneTakesNoPods(t *testing.T) {
	for name, meanwhile := range map[string]func(f *fixture){
		"because somebody has deleted it":           func(*fixture) {},
		"because a former leader has given it back": func(f *fixture) { f.stop(); f.start() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				vacating(f)
				f.pools.refuse(ess.ErrNoPool, true)
				f.delete("worker")
				meanwhile(f)
				f.pass(2 * time.Minute)
				assert.Equal(t, []string{"node"}, f.cordoned(), "until somebody notices that")
			})
		})
	}
}

func TestNodeIsGivenBackAsSoonAsTheCloudAcceptsThat(t *testing.T) {
	inBubble(t, func(f *fixture) {
		vacating(f)
		f.pools.refuse(errors.New("RAM denies it"), false)
		f.delete("worker")
		f.pass(10 * time.Minute)
		require.Empty(t, f.pools.givenBack)
		assert.Equal(t, []string{"node"}, f.cordoned())
		f.pools.refuse(nil, false)
		f.pass(slowestRetry)
		assert.Equal(t, []string{"node"}, f.pools.givenBack)
	})
}

func TestNewLeaderGivesBackAsSoonAsItKnowsThePools(t *testing.T) {
	inBubble(t, func(f *fixture) {
		vacating(f)
		f.stop()
		f.delete("worker")
		f.pools.read = make(chan struct{})
		f.start()
		f.pass(5 * time.Minute)
		require.Empty(t, f.pools.givenBack)
		require.Equal(t, []string{"node"}, f.cordoned())
		close(f.pools.read)
		f.pass(5 * time.Second)
		assert.Equal(t, []string{"node"}, f.pools.givenBack)
		f.stop()
		f.start()
		isOther := func(event string) bool { return event != "SpotNodeGivenBack node" }
		assert.Len(t, slices.DeleteFunc(f.events.recorded, isOther), 1, "the next one says nothing of what is going already")
	})
}

func TestNodeThatIsReclaimedBeforeItGoesBackIsLeftToTheReclaim(t *testing.T) {
	inBubble(t, func(f *fixture) {
		vacating(f)
		node, err := f.client.CoreV1().Nodes().Get(t.Context(), "node", metav1.GetOptions{})
		require.NoError(t, err)
		node.Labels = map[string]string{api.LabelReclaiming: "true"}
		_, err = f.client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
		require.NoError(t, err)
		f.delete("worker")
		f.pass(10 * time.Second)
		assert.Equal(t, []string{"node"}, f.cordoned())
		assert.Empty(t, f.pools.givenBack)
	})
}

func TestNodesThatCannotBeMarkedDoNotHoldUpTheRest(t *testing.T) {
	for name, test := range map[string]struct {
		err       error
		times     int
		givenBack []string
	}{
		"one that has changed meanwhile is tried again":   {apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "node", nil), 2, []string{"node"}},
		"one that is not ours to change is left as it is": {apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node", nil), 1000, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				f.start()
				f.client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
					test.times--
					return test.times >= 0, nil, test.err
				})
				f.job("train", waiting(time.Minute))
				f.pod("train", "worker-0", "")
				f.node("node")
				f.pass(2 * time.Minute)
				assert.Contains(t, f.systems.done(), "suspend train max-wait")
				assert.Equal(t, test.givenBack, f.pools.givenBack)
			})
		})
	}
}

func TestNodesThatTheCloudTakesLongToRemoveHoldUpNoJob(t *testing.T) {
	const nodes = 50
	inBubble(t, func(f *fixture) {
		f.pools.accepts = make(chan struct{})
		for n := range nodes {
			f.node(fmt.Sprint("node-", n), func(node *corev1.Node) {
				node.Spec.Unschedulable = true
				node.Annotations = map[string]string{api.AnnotationGiveBack: "other@" + time.Now().UTC().Format(time.RFC3339)}
			})
		}
		suspended(f, elastic(2))
		assert.EqualValues(t, nodes, f.pools.waiting.Load(), "one call can remove all of them")
		f.loop(5, 0)
		assert.Equal(t, []string{"resume train 4"}, f.systems.done())
		close(f.pools.accepts)
		f.pass(time.Second)
		assert.Len(t, f.pools.givenBack, nodes)
	})
}
