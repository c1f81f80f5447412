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
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
)

func TestWordsAreListedOldestFirstAndOnce(t *testing.T) {
	now := time.Unix(1000, 0)
	pod := word{Namespace: "team", Pod: "train-0"}
	var many []string
	for i := range maxWords {
		many = append(many, fmt.Sprintf("id-%d", i))
	}
	for name, c := range map[string]struct {
		list string
		word word
		at   time.Time
		want string
	}{
		"the first":                        {"", word{ID: "a"}, now, "a"},
		"another":                          {"a", word{ID: "b"}, now, "a,b"},
		"an id again":                      {"a,b", word{ID: "a"}, now, "b,a"},
		"an id that begins like another":   {"ab", word{ID: "a"}, now, "ab,a"},
		"a pod":                            {"a", pod, now, "a,team/train-0@1000"},
		"a pod again":                      {"team/train-0@990,a", pod, now, "a,team/train-0@1000"},
		"a pod that begins like another":   {"team/train-01@990", pod, now, "team/train-01@990,team/train-0@1000"},
		"a part of a second is rounded up": {"", pod, now.Add(time.Millisecond), "team/train-0@1001"},
		"after a list with holes":          {",a,,", word{ID: "b"}, now, "a,b"},
		"beyond the bound":                 {strings.Join(many, ","), word{ID: "new"}, now, strings.Join(append(many[1:], "new"), ",")},
	} {
		assert.Equal(t, c.want, c.word.addTo(c.list, c.at), name)
	}
}

func TestWordIsAnIDOrAPodAndCannotForgeAnother(t *testing.T) {
	for _, good := range []word{
		{ID: "a"}, {ID: "7f2b1c9e-1111-4a2b-9d3e-000000000001"}, {ID: "Round_1.2:3"},
		{Namespace: "default", Pod: "train-0"}, {Namespace: "a", Pod: "b.c"},
	} {
		assert.NoError(t, good.validate(), "%+v", good)
	}
	for _, bad := range []word{
		{}, {ID: "a,b"}, {ID: "default/train@1"}, {ID: "a b"}, {ID: "a\nb"}, {ID: strings.Repeat("a", 129)},
		{Namespace: "default"}, {Pod: "train-0"}, {ID: "a", Namespace: "default", Pod: "train-0"}, {ID: "a", Pod: "b"},
		{Namespace: "default", Pod: "a@1"}, {Namespace: "default", Pod: "a,b"}, {Namespace: "a/b", Pod: "c"},
		{Namespace: "a.b", Pod: "c"}, {Namespace: strings.Repeat("a", 64), Pod: "c"}, {Namespace: "a", Pod: strings.Repeat("b", 254)},
	} {
		assert.Error(t, bad.validate(), "%+v", bad)
	}
}

func TestWordIsRecordedOnlyWhereSomebodyWaitsForIt(t *testing.T) {
	byID, byPod := word{ID: "a"}, word{Namespace: "default", Pod: "train-0"}
	for name, c := range map[string]struct {
		word        word
		annotations map[string]string
		notice      time.Time
		want        error
	}{
		"a pod, no notice":                          {byPod, nil, time.Time{}, errNoNotice},
		"a pod, a notice in the metadata":           {byPod, nil, morning, nil},
		"a pod, a notice that the autoscaler knows": {byPod, map[string]string{api.AnnotationReclaimDeadline: "2026-01-05T09:05:00Z"}, time.Time{}, nil},
		"an id, the job's other node goes":          {byID, nil, time.Time{}, nil},
	} {
		n := newMemoryNode(time.Hour, c.annotations)
		a := newAgent(&instance{}, n, clock.RealClock{}, usualPace)
		a.learn(c.notice)
		assert.ErrorIs(t, a.record(t.Context(), c.word), c.want, name)
		assert.Equal(t, c.want == nil, n.node.Annotations[api.AnnotationCheckpointAcknowledged] != "", name)
	}
}

func TestWordsOfAllPodsAreKeptThoughTheNodeChangesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemoryNode(time.Hour, map[string]string{api.AnnotationReclaimDeadline: "2026-01-05T09:05:00Z", api.AnnotationCheckpointAcknowledged: "before"})
		n.overtaken = conflictTries - 1
		a := newAgent(&instance{}, n, clock.RealClock{}, usualPace)
		failures := make(chan error)
		for i := range 8 {
			go func() { failures <- a.record(t.Context(), word{Namespace: "default", Pod: fmt.Sprintf("train-%d", i)}) }()
		}
		for range 8 {
			require.NoError(t, <-failures)
		}
		said := n.node.Annotations[api.AnnotationCheckpointAcknowledged]
		assert.Len(t, strings.Split(said, ","), 9, said)
	})
}

func TestWordOnANodeThatNeverRestsIsRefusedInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemoryNode(time.Hour, map[string]string{api.AnnotationReclaimDeadline: "2026-01-05T09:05:00Z"})
		n.overtaken = 1000
		a := newAgent(&instance{}, n, clock.RealClock{}, usualPace)
		assert.ErrorContains(t, a.record(t.Context(), word{ID: "a"}), "Operation cannot be fulfilled")
		assert.Equal(t, 1000-conflictTries, n.overtaken)
	})
}

func TestWordThatWaitsForAnotherEndsWithItsRequest(t *testing.T) {
	a := newAgent(&instance{}, newMemoryNode(time.Hour, nil), clock.RealClock{}, usualPace)
	a.recording <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, a.record(ctx, word{ID: "a"}), context.Canceled)
}
