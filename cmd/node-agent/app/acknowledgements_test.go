package app

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/wire"
)

// aPod and anotherPod are callers.
const aPod, anotherPod = "10.1.2.7", "10.1.2.8"

// awaitedFrom is the annotation by which each caller may say the id, and that it is default/train-0.
func awaitedFrom(id string, callers ...string) map[string]string {
	var entries []string
	for _, caller := range callers {
		entries = append(entries, caller+"="+wire.Digest(id), caller+"="+wire.Digest("default/train-0"))
	}
	return map[string]string{api.AnnotationAwaitedAcknowledgements: strings.Join(entries, ",")}
}

func TestAcknowledgementsAreListedOldestFirstAndOnce(t *testing.T) {
	now := time.Unix(1000, 0)
	id, pod := acknowledgement{ID: "b"}, acknowledgement{Namespace: "team", Pod: "train-0"}
	for name, c := range map[string]struct {
		list string
		said acknowledgement
		at   time.Time
		want string
	}{
		"the first":                           {"", id, now, "b@10.1.2.7"},
		"another":                             {"a@10.1.2.7", id, now, "a@10.1.2.7,b@10.1.2.7"},
		"an id that another said too":         {"b@10.1.2.8", id, now, "b@10.1.2.8,b@10.1.2.7"},
		"an id that begins like another":      {"ba@10.1.2.7", id, now, "ba@10.1.2.7,b@10.1.2.7"},
		"a pod":                               {"a@10.1.2.7", pod, now, "a@10.1.2.7,team/train-0@1000@10.1.2.7"},
		"a pod again":                         {"team/train-0@990@10.1.2.7,a@10.1.2.7", pod, now, "a@10.1.2.7,team/train-0@1000@10.1.2.7"},
		"a pod for which another spoke":       {"team/train-0@990@10.1.2.8", pod, now, "team/train-0@990@10.1.2.8,team/train-0@1000@10.1.2.7"},
		"a pod that begins like another":      {"team/train-01@990@10.1.2.7", pod, now, "team/train-01@990@10.1.2.7,team/train-0@1000@10.1.2.7"},
		"a part of a second is rounded up":    {"", pod, now.Add(time.Millisecond), "team/train-0@1001@10.1.2.7"},
		"after a list with holes":             {",a@10.1.2.7,,", id, now, "a@10.1.2.7,b@10.1.2.7"},
		"after a list without callers":        {"a,team/train-0@990", id, now, "a,team/train-0@990,b@10.1.2.7"},
		"more than one caller may have to it": {"1@10.1.2.7,2@10.1.2.7,x@10.1.2.8,3@10.1.2.7,4@10.1.2.7", id, now, "2@10.1.2.7,x@10.1.2.8,3@10.1.2.7,4@10.1.2.7,b@10.1.2.7"},
	} {
		awaited := awaited{aPod: sets.New("?"), anotherPod: sets.New("?")}
		assert.Equal(t, c.want, c.said.addTo(c.list, aPod, awaited, c.at), name)
	}
}

func TestNobodyPushesOutWhatAnotherSaid(t *testing.T) {
	now := time.Unix(1000, 0)
	callers := awaited{aPod: sets.New("?"), anotherPod: sets.New("?"), api.CallerHost: sets.New("?")}
	list := acknowledgement{ID: "1767603601-x7k2m9qd"}.addTo("", aPod, callers, now)
	for i := range 1000 {
		list = acknowledgement{ID: fmt.Sprintf("x%d", i)}.addTo(list, anotherPod, callers, now)
		list = acknowledgement{ID: fmt.Sprintf("x%d", i)}.addTo(list, api.CallerHost, callers, now)
		list = acknowledgement{ID: "old"}.addTo(list, fmt.Sprintf("10.9.%d.%d", i/256, i%256), callers, now)
	}
	assert.Contains(t, list, "1767603601-x7k2m9qd@10.1.2.7")
	assert.Len(t, strings.Split(list, ","), 1+maxOfPod+maxOfHost+maxOfOthers)
}

func TestAcknowledgementIsOfAnIDOrAPodAndCannotForgeAnother(t *testing.T) {
	for _, good := range []acknowledgement{
		{ID: "a"}, {ID: "7f2b1c9e-1111-4a2b-9d3e-000000000001"}, {ID: "Round_1.2:3"},
		{Namespace: "default", Pod: "train-0"}, {Namespace: "a", Pod: "b.c"},
	} {
		assert.NoError(t, good.validate(), "%+v", good)
	}
	for _, bad := range []acknowledgement{
		{}, {ID: "a,b"}, {ID: "a@10.1.2.7"}, {ID: "default/train@1"}, {ID: "a b"}, {ID: "a\nb"}, {ID: strings.Repeat("a", 129)},
		{Namespace: "default"}, {Pod: "train-0"}, {ID: "a", Namespace: "default", Pod: "train-0"}, {ID: "a", Pod: "b"},
		{Namespace: "default", Pod: "a@1"}, {Namespace: "default", Pod: "a,b"}, {Namespace: "a/b", Pod: "c"},
		{Namespace: "a.b", Pod: "c"}, {Namespace: strings.Repeat("a", 64), Pod: "c"}, {Namespace: "a", Pod: strings.Repeat("b", 254)},
	} {
		assert.Error(t, bad.validate(), "%+v", bad)
	}
}

func TestAcknowledgementIsRecordedOnlyWhereItIsAwaitedFromItsCaller(t *testing.T) {
	byID, byPod := acknowledgement{ID: "a"}, acknowledgement{Namespace: "default", Pod: "train-0"}
	for name, c := range map[string]struct {
		said        acknowledgement
		caller      string
		annotations map[string]string
		want        error
	}{
		"an id":                                   {byID, aPod, awaitedFrom("a", aPod), nil},
		"an id, of one of several":                {byID, aPod, awaitedFrom("a", anotherPod, aPod), nil},
		"an id, from the node's network":          {byID, api.CallerHost, awaitedFrom("a", api.CallerHost), nil},
		"an id that nobody asked for":             {byID, aPod, awaitedFrom("b", aPod), errNotAwaited},
		"an id that another pod was asked for":    {byID, aPod, awaitedFrom("a", anotherPod), errNotAwaited},
		"an id, from the node, asked of a pod":    {byID, api.CallerHost, awaitedFrom("a", aPod), errNotAwaited},
		"an id if nobody was asked":               {byID, aPod, nil, errNotAwaited},
		"an id if the list makes no sense":        {byID, aPod, map[string]string{api.AnnotationAwaitedAcknowledgements: ",10.1.2.7,=,"}, errNotAwaited},
		"a pod":                                   {byPod, aPod, awaitedFrom("a", aPod), nil},
		"a pod, from another":                     {byPod, aPod, awaitedFrom("a", anotherPod), errNotAwaited},
		"another pod, from one that was asked":    {acknowledgement{Namespace: "default", Pod: "train-1"}, aPod, awaitedFrom("a", aPod), errNotAwaited},
		"a pod, from the node's network":          {byPod, api.CallerHost, awaitedFrom("a", api.CallerHost), errNeedsID},
		"a pod if there is only a notice":         {byPod, aPod, map[string]string{api.AnnotationReclaimDeadline: "2026-01-05T09:05:00Z"}, errNotAwaited},
		"a pod, from one that is named as nobody": {byPod, "", awaitedFrom("a", aPod), errNotAwaited},
	} {
		n := newMemoryNode(time.Hour, c.annotations)
		a := newAgent(&instance{}, n, clock.RealClock{}, usualPace)
		assert.ErrorIs(t, a.awaited.refuse(t.Context(), c.said, c.caller), c.want, name)
		assert.ErrorIs(t, a.record(t.Context(), c.said, c.caller), c.want, name)
		assert.Equal(t, c.want == nil, n.node.Annotations[api.AnnotationCheckpointAcknowledged] != "", name)
	}
}

func TestCallersWhomNobodyAskedCostTheAPIServerOneRequestASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemoryNode(time.Hour, awaitedFrom("a", aPod))
		a := newAgent(&instance{}, n, clock.RealClock{}, usualPace)
		for range 1000 { // for ten seconds
			assert.ErrorIs(t, a.awaited.refuse(t.Context(), acknowledgement{ID: "x"}, anotherPod), errNotAwaited)
			time.Sleep(10 * time.Millisecond)
		}
		assert.LessOrEqual(t, n.reads, 10)

		n.node.Annotations = awaitedFrom("x", anotherPod)
		time.Sleep(awaitedMaxAge)
		assert.NoError(t, a.awaited.refuse(t.Context(), acknowledgement{ID: "x"}, anotherPod), "who is asked is heard within a second")
	})
}

func TestCallersWhomNobodyAskedCostOneRequestASecondToAnAPIServerThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemoryNode(time.Hour, awaitedFrom("a", aPod))
		n.err = errAway
		a := newAgent(&instance{}, n, clock.RealClock{}, usualPace)
		for range 1000 { // for ten seconds
			assert.ErrorIs(t, a.awaited.refuse(t.Context(), acknowledgement{ID: "x"}, anotherPod), errAway)
			time.Sleep(10 * time.Millisecond)
		}
		assert.LessOrEqual(t, n.reads, 10)

		n.err = nil
		time.Sleep(awaitedMaxAge)
		assert.NoError(t, a.awaited.refuse(t.Context(), acknowledgement{ID: "a"}, aPod), "who is asked is heard within a second")
	})
}

func TestACallerThatHangsUpCostsNobodyElseAnAnswer(t *testing.T) {
	a := newAgent(&instance{}, newMemoryNode(time.Hour, awaitedFrom("a", aPod)), clock.RealClock{}, usualPace)
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	a.awaited.read(gone)
	assert.NoError(t, a.awaited.refuse(t.Context(), acknowledgement{ID: "a"}, aPod))
}

func TestAcknowledgementsOfAllPodsAreKeptThoughTheNodeChangesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var callers []string
		for i := range 8 {
			callers = append(callers, fmt.Sprintf("10.1.2.%d", i))
		}
		n := newMemoryNode(time.Hour, awaitedFrom("a", callers...))
		n.node.Annotations[api.AnnotationCheckpointAcknowledged] = "before"
		n.overtaken = conflictTries - 1
		a := newAgent(&instance{}, n, clock.RealClock{}, usualPace)
		failures := make(chan error)
		for _, caller := range callers {
			go func() { failures <- a.record(t.Context(), acknowledgement{ID: "a"}, caller) }()
		}
		for range callers {
			require.NoError(t, <-failures)
		}
		said := n.node.Annotations[api.AnnotationCheckpointAcknowledged]
		assert.Len(t, strings.Split(said, ","), 9, said)
	})
}

func TestAcknowledgementThatIsRepeatedIsNotWrittenAgain(t *testing.T) {
	n := newMemoryNode(time.Hour, awaitedFrom("a", aPod))
	a := newAgent(&instance{}, n, clock.RealClock{}, usualPace)
	for range 10 {
		require.NoError(t, a.record(t.Context(), acknowledgement{ID: "a"}, aPod))
	}
	assert.Equal(t, 1, n.writes)
}

func TestAcknowledgementOnANodeThatNeverRestsIsRefusedInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemoryNode(time.Hour, awaitedFrom("a", aPod))
		n.overtaken = 1000
		a := newAgent(&instance{}, n, clock.RealClock{}, usualPace)
		assert.ErrorContains(t, a.record(t.Context(), acknowledgement{ID: "a"}, aPod), "Operation cannot be fulfilled")
		assert.Equal(t, 1000-conflictTries, n.overtaken)
	})
}

func TestAcknowledgementThatWaitsForAnotherEndsWithItsRequest(t *testing.T) {
	a := newAgent(&instance{}, newMemoryNode(time.Hour, awaitedFrom("a", aPod)), clock.RealClock{}, usualPace)
	a.recording <- struct{}{}
	a.awaited.lock <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, a.record(ctx, acknowledgement{ID: "a"}, aPod), context.Canceled)
	assert.ErrorIs(t, a.awaited.refuse(ctx, acknowledgement{ID: "a"}, aPod), context.Canceled)
}
