package main

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/test/drill"
)

func TestScheduleIsRepeatableAndDensestAtItsBeginning(t *testing.T) {
	draw := func(seed uint64) []kill { return schedule(rand.New(rand.NewPCG(seed, seed)), 1000, time.Hour) }
	all := draw(7)
	assert.Equal(t, all, draw(7))
	assert.NotEqual(t, all, draw(8))
	early, onEvents, away := 0, 0, 0
	for i, k := range all {
		require.Less(t, k.at, time.Hour)
		require.True(t, i == 0 || k.at >= all[i-1].at)
		require.Less(t, k.lead, maxLead)
		if k.at < 20*time.Minute {
			early++
		}
		if k.onEvent {
			onEvents++
		}
		if k.away > leaseDuration {
			away++
		}
	}
	assert.InDelta(t, 577, early, 60)
	assert.Equal(t, 250, onEvents)
	assert.InDelta(t, 500, away, 60)
}

func TestVerdict(t *testing.T) {
	noticed := time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)
	deadline := noticed.Add(noticePeriod)
	inTime, tooLate := noticed.Add(time.Minute), deadline.Add(time.Second)
	drained := drill.Node{Name: "a", Marked: inTime, Tainted: true, Emptied: inTime, Gone: tooLate}
	changed := func(change func(*drill.Node)) drill.Node { n := drained; change(&n); return n }
	type figures struct{ unmarked, late, broken, double int }
	for name, test := range map[string]struct {
		// node is of the only reclaiming instance, other of one that is not.
		node, other drill.Node
		jobs        map[string]drill.State
		bought      int
		want        figures
	}{
		"drained":                  {node: drained, bought: 1},
		"suspended":                {node: drained, jobs: map[string]drill.State{"a": drill.Whole, "b": drill.Suspended}},
		"never marked":             {node: changed(func(n *drill.Node) { n.Marked, n.Tainted = time.Time{}, false }), want: figures{unmarked: 1}},
		"marked when it was gone":  {node: changed(func(n *drill.Node) { n.Marked = tooLate }), want: figures{unmarked: 1}},
		"unmarked again":           {node: changed(func(n *drill.Node) { n.Tainted = false }), want: figures{unmarked: 1}},
		"never empty":              {node: changed(func(n *drill.Node) { n.Busy, n.Emptied = 1, time.Time{} }), want: figures{late: 1}},
		"empty too late":           {node: changed(func(n *drill.Node) { n.Emptied = tooLate }), want: figures{late: 1}},
		"nothing ever on it":       {node: changed(func(n *drill.Node) { n.Emptied = time.Time{} })},
		"another is left marked":   {node: drained, other: drill.Node{Name: "b", Tainted: true}, want: figures{unmarked: 1}},
		"another lost its pods":    {node: drained, other: drill.Node{Name: "b", Emptied: tooLate}},
		"jobs without all workers": {node: drained, jobs: map[string]drill.State{"a": drill.Lacking, "b": drill.Failed}, want: figures{broken: 2}},
		"bought twice":             {node: drained, bought: 3, want: figures{double: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			v := judge(map[string]time.Time{"i-a": deadline}, map[string]drill.Node{"i-a": test.node, "i-b": test.other}, nil,
				[]drill.Purchase{{Instances: test.bought}}, test.jobs)
			assert.Equal(t, test.want, figures{v.Unmarked, v.Late, v.JobsBroken, v.DoubleBuys}, v.Faults)
			if test.want == (figures{}) {
				assert.NoError(t, v.failure())
			} else {
				assert.Error(t, v.failure())
			}
		})
	}
}

func TestVerdictOnAnInstanceWithoutNode(t *testing.T) {
	v := judge(map[string]time.Time{"i-a": time.Now()}, nil, nil, nil, nil)
	assert.Equal(t, 1, v.Unmarked)
}

func TestUnwarnedPodsAreThoseThatHadToGoFromANode(t *testing.T) {
	now := time.Now()
	v := judge(nil, nil, []drill.Pod{
		{Node: "a", Deleting: now}, {Node: "a", Deleting: now, Warned: now}, {Node: "a"}, {Deleting: now},
	}, nil, nil)
	assert.Equal(t, 1, v.Unwarned)
}

func TestLeaderIsWhoRenewedTheLeaseSinceItStarted(t *testing.T) {
	started := time.Now()
	lease := func(holder string, renewed time.Time) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: ptr.To(metav1.NewMicroTime(renewed))}}
	}
	assert.True(t, holds(lease("a", started.Add(time.Second)), "a", started))
	assert.False(t, holds(lease("b", started.Add(time.Second)), "a", started))
	assert.False(t, holds(lease("a", started.Add(-time.Second)), "a", started), "its predecessor did")
	assert.False(t, holds(&coordinationv1.Lease{}, "a", started))
}

func TestStepsOfAReclaim(t *testing.T) {
	for want, now := range map[string]progress{
		"notice":  {pods: 8},
		"mark":    {pods: 8, marked: 1},
		"replace": {pods: 8, marked: 2, warned: 8, bought: 1},
		"warn":    {pods: 8, marked: 2, warned: 7, bought: 2},
		"wait":    {pods: 8, marked: 2, warned: 8, bought: 2},
		"drain":   {pods: 8, marked: 2, warned: 8, bought: 2, deleting: 1, empty: 1},
		"empty":   {pods: 8, marked: 2, warned: 8, bought: 2, deleting: 8, empty: 2, gone: 1},
		"gone":    {pods: 8, marked: 2, warned: 8, bought: 2, deleting: 8, empty: 2, gone: 2},
	} {
		assert.Equal(t, want, now.step(2))
	}
}

func TestObjectsOfBrokenJobsAreKnownByTheirNames(t *testing.T) {
	states := map[string]drill.State{}
	for _, job := range newJobs(40) {
		states[job.Name] = drill.Whole
	}
	states["job-007"] = drill.Lacking
	assert.True(t, ofBroken("job-007", states))
	assert.True(t, ofBroken("job-007-worker-3", states))
	assert.True(t, ofBroken("job-job-007-5f3a1", states), "a Workload of Kueue")
	assert.False(t, ofBroken("job-008-worker-3", states))
	assert.False(t, ofBroken("node-7", states))
}
