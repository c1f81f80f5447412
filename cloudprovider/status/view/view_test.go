package view

import (
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/status"
)

var now = time.Date(2026, 11, 26, 9, 30, 0, 0, time.UTC)

// busy is the status of a leader that has something of everything.
func busy() *status.Status {
	return &status.Status{
		Time: now, Replica: "gpu-spot-autoscaler-0", Leader: "gpu-spot-autoscaler-0", Refreshed: ptr.To(now.Add(-4 * time.Second)), Currency: "CNY",
		Pools: []status.Pool{{
			ID: "asg-h", Live: 3, Purchased: 1, Reclaiming: 1, Offerings: []status.Offering{
				{ID: "dear", InstanceType: "ecs.gn7i", Zone: "h-a", PurchaseOption: "spot", Live: 1, Room: 2, Price: ptr.To(9.5), UsefulCost: ptr.To(9.9)},
				{ID: "cheap", InstanceType: "ecs.gn6v", Zone: "h-b", PurchaseOption: "spot", Live: 2, Purchased: 1, Room: 5, Price: ptr.To(4.0), UsefulCost: ptr.To(4.4)},
				{ID: "away", InstanceType: "ecs.gn5", Zone: "h-c", PurchaseOption: "spot", BlockedBy: status.BlockedStock, Price: ptr.To(1.0), PriceCap: ptr.To(2.0)},
			},
		}},
		Pending:      []status.PendingPod{{Namespace: "team", Name: "train-0", Since: now.Add(-3 * time.Minute), Reason: "no-stock", Message: "2 no stock until 09:40"}},
		PendingTotal: 5,
		Spend:        &status.Spend{PerHour: 17.5, Since: now.Add(-72 * time.Hour), Cost: 300, OnDemand: 1000},
		Reclaims: []status.Reclaim{
			{Node: "node-1", Instance: "i-1", Phase: status.PhaseDraining, Source: "metadata", Deadline: now.Add(130 * time.Second), Pods: 2},
			{Node: "node-2", Instance: "i-2", Phase: status.PhaseDrained, Source: "ecs", Deadline: now.Add(-time.Second)},
		},
		Jobs:     []status.JobReclaim{{System: "jobset", Namespace: "team", Name: "train", Phase: status.JobPhaseWaiting, Acknowledged: true, Deadline: now.Add(130 * time.Second), Pods: 2}},
		Problems: []status.Problem{{Source: "pools", Pool: "asg-x", Reason: "bad", Message: "The tag is wrong. Correct it."}},
	}
}

func text(t *testing.T, s *status.Status) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, WriteText(&b, s))
	return b.String()
}

func page(t *testing.T, s *status.Status) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, WriteHTML(&b, s))
	return b.String()
}

func TestPageAndTerminalSayTheSame(t *testing.T) {
	inTerminal, onPage := text(t, busy()), html.UnescapeString(regexp.MustCompile(`<style>(?s:.*)</style>|<[^>]*>`).ReplaceAllString(page(t, busy()), " "))
	for _, want := range []string{
		"gpu-spot-autoscaler-0", "2026-11-26 09:30:00 UTC", "4 s ago", "asg-x", "The tag is wrong. Correct it.",
		"instances in service", "bought and not delivered yet", "pods wait", "instances are reclaimed", "17.50 CNY", "70 %",
		"saved since 2026-11-23: 300.00 CNY, on demand 1000.00 CNY",
		"node-1", "draining", "2 min 10 s", "node-2", "now", "team/train", "waiting", "saved", "team/train-0", "3 min 00 s", "2 no stock until 09:40",
		"The oldest; 4 more wait.", "ecs.gn6v", "h-b", "room for 5", "4.40", "blocked: stock", "Prices are in CNY per instance and hour",
	} {
		assert.Contains(t, inTerminal, want)
		assert.Contains(t, onPage, want)
	}
}

func TestWhatCanBeBoughtForTheLeastComesFirst(t *testing.T) {
	for _, shown := range []string{text(t, busy()), page(t, busy())} {
		cheap, dear, away := strings.Index(shown, "ecs.gn6v"), strings.Index(shown, "ecs.gn7i"), strings.Index(shown, "ecs.gn5")
		assert.True(t, cheap < dear && dear < away, "%d %d %d", cheap, dear, away)
	}
}

func TestAReplicaThatDoesNotLeadNamesTheLeaderAndNothingElse(t *testing.T) {
	for _, shown := range []string{text(t, &status.Status{Replica: "a", Leader: "b"}), page(t, &status.Status{Replica: "a", Leader: "b"})} {
		assert.Contains(t, shown, "a does not lead. b leads.")
		assert.NotContains(t, shown, "No pod waits")
	}
	assert.Contains(t, text(t, &status.Status{Replica: "a"}), "No replica leads.")
}

func TestALeaderWithNothingToDoSaysSo(t *testing.T) {
	s := &status.Status{Replica: "a", Leader: "a", Time: now, Refreshed: &now}
	for _, shown := range []string{text(t, s), page(t, s)} {
		for _, want := range []string{"No pod waits for an instance.", "No Node is being reclaimed.", "There is nothing to buy from", "0 s ago"} {
			assert.Contains(t, shown, want)
		}
		assert.NotContains(t, shown, "saved since")
	}
	assert.Contains(t, page(t, s), "no problems")
}

func TestALeaderThatHasNotReadThePoolsClaimsNothingAboutThem(t *testing.T) {
	s := &status.Status{Replica: "a", Leader: "a", Time: now}
	for _, shown := range []string{text(t, s), page(t, s)} {
		for _, want := range []string{"The pools have not been read yet.", "No Node is known to be reclaimed yet.", "not yet"} {
			assert.Contains(t, shown, want)
		}
		for _, claim := range []string{"no problems", "There is nothing to buy from", "No Node is being reclaimed.", "in service", "are reclaimed"} {
			assert.NotContains(t, shown, claim)
		}
	}
	assert.Contains(t, page(t, s), "pools not read yet")
}

func TestALeaderThatDescribesNothingClaimsNothing(t *testing.T) {
	s := &status.Status{Replica: "a", Leader: "a", Time: now, Undescribed: true}
	for _, shown := range []string{text(t, s), page(t, s)} {
		assert.Contains(t, shown, "a leads, and has nothing to tell: it has not listed the objects of the cluster yet")
		for _, claim := range []string{"no problems", "does not lead", "No pod waits", "pods wait", "No Node", "pools"} {
			assert.NotContains(t, shown, claim)
		}
	}
	assert.Contains(t, page(t, s), "nothing to tell</span>")
}

func TestWhereItIsNotKnownWhichPodsWaitNoneAreSaidToWait(t *testing.T) {
	for why, want := range map[string]string{
		status.PendingUnknownServed: "With serve it is not known here which pods wait: ask the Cluster Autoscaler that is served.",
		status.PendingUnknownFailed: "It is not known which pods wait; the leader's log says why.",
	} {
		s := busy()
		s.Pending, s.PendingTotal, s.PendingUnknown = nil, 0, why
		for _, shown := range []string{text(t, s), html.UnescapeString(page(t, s))} {
			assert.Contains(t, shown, want)
			assert.NotContains(t, shown, "No pod waits")
			assert.NotContains(t, shown, "pods wait<")
			assert.NotRegexp(t, `\d\s+pods? waits?`, shown)
		}
	}
}

func TestADryRunShowsWhatItWouldHaveDoneTheLatestFirst(t *testing.T) {
	s := busy()
	s.DryRun = &status.DryRun{}
	for _, shown := range []string{text(t, s), page(t, s)} {
		assert.Contains(t, shown, "Nothing would have been done yet.")
	}
	s.DryRun.Decisions = []status.Decision{
		{Time: now.Add(-time.Minute), Action: "ScaleWithAdjustment", Pool: "asg-h", Count: 2, InstanceType: "ecs.gn6v", Zone: "h-b", SpotStrategy: "SpotAsPriceGo"},
		{Time: now.Add(-time.Second), Action: "RemoveInstances", Pool: "asg-h", Count: 1, Instances: []string{"i-idle"}},
	}
	for _, shown := range []string{text(t, s), page(t, s)} {
		bought, removed := strings.Index(shown, "ecs.gn6v in h-b (SpotAsPriceGo)"), strings.Index(shown, "i-idle")
		assert.True(t, 0 < removed && removed < bought, "%d %d", removed, bought)
	}
	s.DryRun = nil
	assert.NotContains(t, page(t, s), "would have been done")
}

// Names and messages are other people's.
func TestTextOfOthersNeitherRunsOnThePageNorMovesTheCursor(t *testing.T) {
	s := busy()
	s.Pending[0].Message = "<script>alert(1)</script>\x1b[2J\u009b2J\nnext"
	s.Problems[0].Message = "\x1b]0;title\x07<img src=x onerror=alert(1)>"
	assert.NotRegexp(t, `[\x00-\x08\x0b-\x1f\x7f\x{80}-\x{9f}]`, text(t, s))
	assert.NotContains(t, page(t, s), "<script>")
	assert.NotContains(t, page(t, s), "<img")
}

func TestThePageNeedsNothingBesideItself(t *testing.T) {
	for _, loads := range []string{"<script", "src=", "href=", "url(", "@import", "http://", "https://"} {
		assert.NotContains(t, page(t, busy()), loads)
	}
	assert.Contains(t, page(t, busy()), `name="viewport"`)
	assert.Contains(t, page(t, busy()), "prefers-color-scheme:dark")
}

func TestTimesAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 59 * time.Second: "59 s", 61 * time.Second: "1 min 01 s", 90 * time.Minute: "1 h 30 min", 50 * time.Hour: "2 days",
	} {
		assert.Equal(t, want, short(d))
	}
}
