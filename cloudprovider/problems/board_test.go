package problems

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/problems/problemstest"
)

func newBoard() (*Board, *problemstest.Events, *clocktesting.FakePassiveClock) {
	events, clk := &problemstest.Events{}, clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	return NewBoard(events, clk), events, clk
}

var badTag = Problem{Pool: "asg-1", Reason: "tags", Cause: "tag x does not parse", Fix: "Correct the tag."}

func TestAProblemIsToldOnceThenEveryHourAndThatItIsOver(t *testing.T) {
	board, events, clk := newBoard()
	const text = "SpotPoolProblem: Pool asg-1 (tags): tag x does not parse. Correct the tag."
	var said []string
	for range 3 * 60 {
		board.Update(Pools, badTag)
		said = append(said, events.Take()...)
		clk.SetTime(clk.Now().Add(time.Minute))
	}
	assert.Equal(t, []string{text, text, text, text}, said, "before the API server forgets it")
	assert.Equal(t, 1.0, testutil.ToFloat64(activeProblems.WithLabelValues("pools", "tags")))
	board.Update(Pools)
	assert.Equal(t, []string{"SpotProblemOver: Over after 3h0m0s: Pool asg-1 (tags): tag x does not parse. Correct the tag."}, events.Take())
	assert.Empty(t, board.Report().Problems)
	assert.Zero(t, testutil.CollectAndCount(activeProblems))
}

func TestWhatIsWrongElsewhereStands(t *testing.T) {
	board, events, _ := newBoard()
	board.Update(Pools, badTag)
	board.Update(Refresh)
	board.Update(Poll, Problem{Reason: "clock_skew", Cause: "the clock is wrong"})
	assert.Len(t, events.Take(), 2)
	report := board.Report()
	require.Len(t, report.Problems, 2)
	assert.Equal(t, "poll clock_skew: the clock is wrong", report.Problems[0].Line(report.Problems[0].Source), "what concerns all stands first")
	assert.Equal(t, "pools asg-1 tags: tag x does not parse. Correct the tag.", report.Problems[1].Line(report.Problems[1].Source))
}

func TestWhatOftenPassesIsToldOnlyWhenItStays(t *testing.T) {
	board, events, clk := newBoard()
	away := Problem{Reason: "unreachable", Cause: "no answer", Transient: true}
	board.Update(Refresh, away)
	assert.Empty(t, events.Take())
	assert.Len(t, board.Report().Problems, 1, "whoever asks is told")
	board.Update(Refresh)
	assert.Empty(t, events.Take(), "nobody has heard of it")
	board.Update(Refresh, away)
	clk.SetTime(clk.Now().Add(transientFor))
	board.Update(Refresh, away)
	assert.Equal(t, []string{"SpotRefreshFailed: The pools cannot be read (unreachable): no answer"}, events.Take())
}

func TestAProblemOfAPoolThatChangesIsToldAgain(t *testing.T) {
	board, events, _ := newBoard()
	for _, cause := range []string{"tag x does not parse", "tag x does not parse", "tag y does not parse"} {
		changing := badTag
		changing.Cause = cause
		board.Update(Pools, changing)
	}
	assert.Len(t, events.Take(), 2)
}

func TestWhatCallsAnswerIsNotToldAgainWhereOnlyItsWordsChange(t *testing.T) {
	board, events, _ := newBoard()
	for n := range 3 {
		board.Update(Refresh, Problem{Reason: "not_allowed", Cause: fmt.Sprint("call ", n)})
	}
	assert.Len(t, events.Take(), 1)
	assert.Equal(t, "call 2", board.Report().Problems[0].Cause, "whoever asks hears the last")
}

func TestTheLeaderIsReadyOnceItHasReadThePoolsAndAskedForNotices(t *testing.T) {
	board, events, clk := newBoard()
	board.Update(Refresh, Of(&alicloud.Error{Service: "ess", Action: "DescribeScalingGroups", Code: "SignatureDoesNotMatch", Class: alicloud.Unauthorized}))
	require.Len(t, events.Take(), 1)
	board.Update(Pools) // says nothing of whether it could be read
	board.Update(Poll)
	assert.False(t, board.Report().Ready)
	assert.Zero(t, testutil.ToFloat64(leaderCondition.WithLabelValues("refreshed")))
	assert.Equal(t, 1.0, testutil.ToFloat64(leaderCondition.WithLabelValues("polled")))

	clk.SetTime(clk.Now().Add(time.Minute))
	board.Update(Refresh)
	assert.True(t, board.Report().Ready)
	assert.Contains(t, events.Take(), "SpotLeaderReady: The pools were read and reclaim notices asked for, 1m0s after this replica became the leader")
	assert.Equal(t, 1.0, testutil.ToFloat64(leaderCondition.WithLabelValues("refreshed")))

	board.Update(Refresh, Of(errors.New("away")))
	board.Update(Refresh)
	assert.True(t, board.Report().Ready, "what comes later is a problem, and told as such")
	assert.Empty(t, events.Take())
}
