package app

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
)

var errAway = errors.New("away")

// instance answers for the metadata, in memory, and counts.
type instance struct {
	mu       sync.Mutex
	deadline time.Time
	err      error
	looks    int
}

func (i *instance) terminationTime(context.Context) (time.Time, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.looks++
	return i.deadline, i.err
}

func (i *instance) say(deadline time.Time, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.deadline, i.err = deadline, err
}

// looksIn says how often it is looked at from now on for so long.
func (i *instance) looksIn(d time.Duration) int {
	synctest.Wait()
	i.mu.Lock()
	before := i.looks
	i.mu.Unlock()
	time.Sleep(d)
	synctest.Wait()
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.looks - before
}

// memoryNode is a Node, in memory.
type memoryNode struct {
	mu      sync.Mutex
	node    node
	version int
	err     error
	// overtaken is how many writes that name a version find it gone.
	overtaken, writes, reads int
	// wholeReads are the reads that were not of the metadata only.
	wholeReads int
}

func newMemoryNode(age time.Duration, annotations map[string]string) *memoryNode {
	n := &memoryNode{}
	n.node.CreationTimestamp = metav1.NewTime(time.Now().Add(-age))
	n.node.Annotations = annotations
	return n
}

func (n *memoryNode) get(ctx context.Context, what part) (*node, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reads++
	if what == wholeNode {
		n.wholeReads++
	}
	if n.err != nil {
		return nil, n.err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	found := n.node
	found.Annotations = maps.Clone(n.node.Annotations)
	found.ResourceVersion = strconv.Itoa(n.version)
	if what == metadataOnly {
		found.Spec.PodCIDRs = nil
	}
	return &found, nil
}

func (n *memoryNode) annotate(_ context.Context, annotations map[string]*string, version string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err != nil {
		return n.err
	}
	if version != "" && n.overtaken > 0 {
		n.overtaken--
		n.version++
	}
	if version != "" && version != strconv.Itoa(n.version) {
		return apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "self", nil)
	}
	n.version++
	n.writes++
	for key, value := range annotations {
		if value == nil {
			delete(n.node.Annotations, key)
			continue
		}
		if n.node.Annotations == nil {
			n.node.Annotations = map[string]string{}
		}
		n.node.Annotations[key] = *value
	}
	return nil
}

func (n *memoryNode) do(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

// notice is what is written.
func (n *memoryNode) notice() string {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.node.Annotations[api.AnnotationNoticeAgent]
}

var usualPace = pace{usual: 5 * time.Second, protected: time.Minute, protection: 55 * time.Minute}

// run runs an agent in a bubble until the test's function returns.
func runAgent(t *testing.T, n *memoryNode, i *instance) *agent {
	t.Helper()
	a := newAgent(i, n, clock.RealClock{}, usualPace)
	ctx, cancel := context.WithCancel(t.Context())
	var loops sync.WaitGroup
	a.start(ctx, &loops)
	t.Cleanup(func() {
		cancel()
		loops.Wait()
	})
	synctest.Wait()
	return a
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func TestNoticeIsWrittenAndTakenOffWhenItIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, i := newMemoryNode(2*time.Hour, nil), &instance{}
		a := runAgent(t, n, i)
		time.Sleep(time.Minute)
		assert.Empty(t, n.notice())
		assert.Zero(t, n.writes, "if there is nothing to tell nothing is written")

		deadline := time.Now().Add(5 * time.Minute).Truncate(time.Second)
		i.say(deadline, nil)
		time.Sleep(usualPace.usual)
		assert.Equal(t, stamp(deadline), n.notice())
		assert.True(t, deadline.Equal(a.notice()))

		i.say(deadline.Add(time.Minute), nil)
		time.Sleep(usualPace.usual)
		assert.Equal(t, stamp(deadline.Add(time.Minute)), n.notice(), "a deadline that moved is written again")

		i.say(time.Time{}, nil)
		time.Sleep(usualPace.usual)
		assert.NotEmpty(t, n.notice(), "one look is not enough to take it off")
		time.Sleep(usualPace.usual)
		assert.Empty(t, n.notice())
		assert.Zero(t, a.notice())
	})
}

func TestMetadataThatCannotBeReadChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, i := newMemoryNode(2*time.Hour, nil), &instance{deadline: time.Now().Add(5 * time.Minute)}
		runAgent(t, n, i)
		require.NotEmpty(t, n.notice())
		i.say(time.Time{}, errAway)
		time.Sleep(time.Minute)
		assert.NotEmpty(t, n.notice())
	})
}

func TestNoticeOfAnEarlierProcessStaysUntilTheMetadataDenyIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, i := newMemoryNode(2*time.Hour, map[string]string{api.AnnotationNoticeAgent: "2026-01-05T09:05:00Z", "other": "stays"}), &instance{err: errAway}
		runAgent(t, n, i)
		time.Sleep(time.Minute)
		assert.Equal(t, "2026-01-05T09:05:00Z", n.notice())
		i.say(time.Time{}, nil)
		time.Sleep(2 * usualPace.usual)
		assert.Empty(t, n.notice())
		assert.Equal(t, map[string]string{"other": "stays"}, n.node.Annotations)
	})
}

func TestNoticeIsWrittenOnceTheAPIServerIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, i := newMemoryNode(2*time.Hour, nil), &instance{}
		n.err = errAway
		a := runAgent(t, n, i)
		deadline := time.Now().Add(5 * time.Minute).Truncate(time.Second)
		i.say(deadline, nil)
		time.Sleep(30 * time.Second)
		assert.True(t, deadline.Equal(a.notice()), "pods are told meanwhile")
		n.do(func() { n.err = nil })
		time.Sleep(4 * time.Second)
		assert.Equal(t, stamp(deadline), n.notice())
	})
}

func TestNoticeThatSomebodyTookOffComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, i := newMemoryNode(2*time.Hour, nil), &instance{deadline: time.Now().Add(5 * time.Minute)}
		runAgent(t, n, i)
		require.NotEmpty(t, n.notice())
		n.do(func() { n.node.Annotations = nil })
		time.Sleep(30 * time.Second)
		assert.NotEmpty(t, n.notice())
		assert.Equal(t, 2, n.writes, "and it is not written more often than that")
	})
}

func TestMetadataIsLookedAtLessOftenInTheProtectedHour(t *testing.T) {
	for name, c := range map[string]struct {
		age   time.Duration
		api   error
		err   error
		looks int
	}{
		"an old Node":                          {age: time.Hour, looks: 120},
		"a young Node":                         {age: time.Minute, looks: 10},
		"a Node of which the age is not known": {age: time.Minute, api: errAway, looks: 120},
		"metadata that cannot be read":         {age: time.Minute, err: errAway, looks: 120},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, i := newMemoryNode(c.age, nil), &instance{err: c.err}
				n.err = c.api
				runAgent(t, n, i)
				time.Sleep(time.Minute)
				assert.InDelta(t, c.looks, i.looksIn(10*time.Minute), 1)
			})
		})
	}
}

func TestMetadataIsLookedAtOftenWhileThereIsANoticeAndAfterTheProtectedHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, i := newMemoryNode(0, nil), &instance{}
		runAgent(t, n, i)
		assert.InDelta(t, 54, i.looksIn(54*time.Minute), 3)
		time.Sleep(2 * time.Minute)
		assert.Equal(t, 12, i.looksIn(time.Minute))
	})
	synctest.Test(t, func(t *testing.T) {
		n, i := newMemoryNode(0, nil), &instance{deadline: time.Now().Add(5 * time.Minute)}
		runAgent(t, n, i)
		assert.Equal(t, 12, i.looksIn(time.Minute), "so that a withdrawal is seen soon")
	})
}
