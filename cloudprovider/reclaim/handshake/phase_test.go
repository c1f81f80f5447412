package handshake

import (
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
)

func TestAnIdTellsWhenTheRequestWasMade(t *testing.T) {
	now := time.Unix(1_800_000_000, 999)
	first, second := newID(now, false), newID(now, false)
	assert.NotEqual(t, first, second)
	at, ok := requestedAt(first)
	assert.True(t, ok)
	assert.Equal(t, now.Unix(), at.Unix())
	for _, id := range []string{"", "mine", "-", "x-y", "1800000000"} {
		_, ok := requestedAt(id)
		assert.False(t, ok, "%q", id)
	}
}

func TestRequestsCannotBeGuessed(t *testing.T) {
	now := time.Unix(1767603601, 0)
	var ids []string
	for range 100 {
		id := newID(now, false)
		at, ok := requestedAt(id)
		require.True(t, ok)
		require.Equal(t, now, at)
		require.Regexp(t, `^1767603601-[a-z2-7]{20}$`, id)
		ids = append(ids, id)
	}
	slices.Sort(ids)
	assert.Len(t, slices.Compact(ids), 100)
}

func TestTheDocumentedTransitionsAreThoseOfTheCode(t *testing.T) {
	text, err := os.ReadFile("../../../docs/architecture.md")
	require.NoError(t, err)
	documented := map[Phase][]Phase{}
	for _, arrow := range regexp.MustCompile(`(?m)^    ([A-Z][a-z]+) --> ([A-Z][a-z]+):`).FindAllStringSubmatch(string(text), -1) {
		documented[Phase(arrow[1])] = append(documented[Phase(arrow[1])], Phase(arrow[2]))
	}
	for from, to := range transitions {
		assert.ElementsMatch(t, to, documented[from], "from %s", from)
	}
	for from := range documented {
		assert.Contains(t, transitions, from)
	}
}

func TestAWarningThatEndsLateLeavesTheDecisionAlone(t *testing.T) {
	table, party, now := newTable(), cluster.Party{Unit: "p"}, time.Unix(1_800_000_000, 0)
	l := loss{party: party, leaving: []leavingPod{{Pod: &corev1.Pod{}}}}
	id := table.open(l, newState(now, false), now).id
	job := &jobs.Job{}
	require.True(t, table.enter(party, id, Warning, nil))
	require.True(t, table.beginDecision(party, id, nil))
	table.warned(party, id, job)
	s, _ := table.get(party)
	assert.Equal(t, Deciding, s.phase)
	assert.Same(t, job, s.job)
}

func TestAPhaseIsOnlyEnteredFromThoseBeforeIt(t *testing.T) {
	table, party, now := newTable(), cluster.Party{Unit: "p"}, time.Unix(1_800_000_000, 0)
	l := loss{party: party, leaving: []leavingPod{{Pod: &corev1.Pod{}}}}
	id := table.open(l, newState(now, false), now).id
	assert.False(t, table.enter(party, id, Leaving, nil), "not before the decision")
	assert.True(t, table.enter(party, id, Warning, nil))
	assert.False(t, table.enter(party, id, Warning, nil), "the owner is told once")
	assert.False(t, table.enter(party, "another", Waiting, nil), "another request")
	assert.True(t, table.beginDecision(party, id, nil))
	assert.False(t, table.beginDecision(party, id, nil), "one decision at a time")
	assert.True(t, table.enter(party, id, Leaving, nil))
	table.endDecision(party)
	assert.False(t, table.beginDecision(party, id, nil), "it is decided")
}
