package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestSummary(t *testing.T) {
	c := testTimeline()
	c.courses[0].States = []state{{At: after(1), Pending: 1}, {At: after(9), Running: 2}}
	c.events = []*event{
		{Time: after(2), Kind: podsPending, Job: gangJob},
		{Time: after(3), Kind: scaleUp, Job: gangJob},
		{Time: after(20), Kind: notice, Job: gangJob},
		{Time: after(21), Kind: notice, Job: gangJob},
		{Time: after(33), Kind: podsMoved, Job: gangJob},
	}
	c.ordered = []*instanceRecord{
		{Notice: after(20), Tainted: after(20.5), Drained: after(22)},
		{Notice: after(20), Tainted: after(21), Drained: after(21.5)},
		{Work: []span{{From: after(9), To: after(30), Job: gangJob}}, Removed: after(41)},
	}
	l := &ledger{began: began, speed: 240, spot: 30, onDemand: 120, gpuHours: 9, samples: []sample{{At: 60, Market: 4}}}
	got := newReport(c, l, map[string]int{"DescribeInstances": 3, "RemoveInstances": 1}, errors.New("late")).Summary
	assert.Equal(t, summary{
		Seconds: 60, MarketHours: 4, PodToPurchase: 2, PodToRunning: 8, NoticeToTaint: 1, NoticeToEmpty: 2, NoticeToWhole: 13,
		IdleToRemoval: 11, Instances: 3, Reclaimed: 2, GPUHours: 9, Spot: 30, OnDemand: 120, Saved: .75, Calls: 4,
	}, got)
}

func TestMedian(t *testing.T) {
	for name, test := range map[string]struct {
		values []float64
		want   float64
	}{
		"of nothing": {nil, 0}, "of one": {[]float64{3}, 3}, "of an even number": {[]float64{4, 1, 2, 3}, 2.5}, "of an odd number": {[]float64{9, 1, 2}, 2},
	} {
		t.Run(name, func(t *testing.T) { assert.InDelta(t, test.want, median(test.values), 0) })
	}
}

func TestLedgerChargesMarketTime(t *testing.T) {
	w := newFixture()
	l := &ledger{began: began, speed: 3600, gpus: map[string]int{a10: 2}} // an hour a second
	l.take(w.at(0))
	w.instance("i-1", 0)
	w.nodes["i-1"] = node{name: "node", ready: true, gpus: 2}
	w.pod("a", pod{phase: corev1.PodRunning, node: "node"})
	assert.True(t, l.take(w.at(2)))
	assert.False(t, l.take(w.at(2.1)), "no point so soon after the last")
	assert.InDelta(t, 6.3, l.spot, 1e-9)
	assert.InDelta(t, 21, l.onDemand, 1e-9)
	assert.InDelta(t, 4.2, l.gpuHours, 1e-9)
	assert.Equal(t, map[string]int{cheap.String(): 2}, l.last().GPUs)
	assert.Equal(t, 1, l.last().Used)
	assert.InDelta(t, 1.5, l.last().Price[cheap.String()], 0, "of a GPU")
}

func TestCheckNamesWhatIsMissing(t *testing.T) {
	c := newTimeline(jobs(), nil)
	for _, j := range jobs() {
		for _, k := range []kind{podsPending, scaleUp, nodeReady, podsRunning} {
			c.add(event{Kind: k, Job: j.Name})
		}
	}
	for _, k := range []kind{notice, tainted, warned, checkpointed, drained, podsMoved, released} {
		c.add(event{Kind: k, Job: elasticJob})
	}
	l := &instanceRecord{Node: "node", Notice: after(1), Tainted: after(2), Deadline: after(30)}
	c.ordered = []*instanceRecord{l}
	assert.EqualError(t, check(c), "did not happen: scale_down")
	c.add(event{Kind: scaleDown, Job: elasticJob})
	require.NoError(t, check(c))
	l.Tainted = after(31)
	assert.EqualError(t, check(c), "did not happen: taint of node before its release")
}

// sampleReport is the report of a short run.
func sampleReport() *report {
	w, c := newFixture(), testTimeline()
	l := &ledger{began: began, speed: 240, gpus: gpusOf()}
	look := func(seconds float64) {
		s := w.at(seconds)
		c.advance(s)
		l.take(s)
	}
	w.pod("a", pod{phase: corev1.PodPending})
	look(0)
	w.event("SpotOfferingChosen", "deployment", `<script>"cheap" & near</script>`)
	w.instance("i-1", 1)
	w.nodes["i-1"] = node{name: "node", ready: true, gpus: 1}
	w.pod("a", pod{phase: corev1.PodRunning, node: "node"})
	look(5)
	w.notice("i-1", 20)
	look(10)
	clear(w.instances)
	look(20)
	return newReport(c, l, nil, nil)
}

func TestReportIsWrittenWhole(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, sampleReport().write(dir))

	text, err := os.ReadFile(filepath.Join(dir, "report.json"))
	require.NoError(t, err)
	var read struct{ Events []map[string]any }
	require.NoError(t, json.Unmarshal(text, &read))
	require.NotEmpty(t, read.Events)
	for _, e := range read.Events {
		_, err := time.Parse(time.RFC3339Nano, e["time"].(string))
		assert.NoError(t, err)
		assert.NotEmpty(t, e["kind"])
	}

	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	require.NoError(t, err)
	assert.NotContains(t, string(page), "<script>\"cheap\"")
	assert.NotContains(t, strings.ReplaceAll(string(page), "http://www.w3.org/2000/svg", ""), "://", "it needs no network")

	picture, err := os.ReadFile(filepath.Join(dir, "demo.svg"))
	require.NoError(t, err)
	assertXML(t, string(picture))
}

func assertXML(t *testing.T, text string) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(text))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}
