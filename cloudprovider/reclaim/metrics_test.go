package reclaim

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// sample is the one thing that a histogram has seen.
func sample(t *testing.T, histogram *prometheus.HistogramVec, label string) float64 {
	t.Helper()
	var metric dto.Metric
	require.NoError(t, histogram.WithLabelValues(label).(prometheus.Metric).Write(&metric))
	require.EqualValues(t, 1, metric.GetHistogram().GetSampleCount())
	return metric.GetHistogram().GetSampleSum()
}

func TestEveryStepOfAReclaimIsTimed(t *testing.T) {
	jobStory(t, func(w *world, f *fakeJobs) {
		for _, histogram := range []*prometheus.HistogramVec{noticeToMark, noticeToReplacement, noticeToWord, noticeToEmpty, leftWhenEmpty} {
			histogram.Reset()
		}
		const replacedAfter, saidAfter, step = 5 * time.Second, 20 * time.Second, 2.1 // seconds
		var replaced atomic.Bool
		f.add("train", 1, 2)
		w.addNode("a")
		w.addNode("b")
		never := func(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyNever }
		w.addPod("on-a", "a", of("train", jobs.RoleWorker), awaiting, never)
		w.addPod("on-b", "b", of("train", jobs.RoleWorker), awaiting, never)
		w.cloud.reclaim("a")
		f.start(func(c *Config) { c.Replaced = func(string) bool { return replaced.Load() } })
		require.True(t, isMarked(w.node("a")))
		w.pass(replacedAfter - time.Second)
		replaced.Store(true) // while the word is still awaited
		w.pass(saidAfter - replacedAfter)
		require.Empty(t, w.gone())
		w.say("on-b")
		w.pass(5 * time.Second)
		require.Equal(t, []string{"on-a"}, w.gone())
		assert.EqualValues(t, 1, testutil.ToFloat64(underWay))

		poll := string(SourcePoll)
		assert.InDelta(t, 0, sample(t, noticeToMark, poll), step)
		assert.InDelta(t, replacedAfter.Seconds(), sample(t, noticeToReplacement, poll), step)
		assert.InDelta(t, saidAfter.Seconds(), sample(t, noticeToWord, "fake"), step)
		assert.InDelta(t, saidAfter.Seconds(), sample(t, noticeToEmpty, poll), step)
		assert.InDelta(t, (DefaultNoticePeriod - saidAfter).Seconds(), sample(t, leftWhenEmpty, poll), step)

		w.cloud.release("a")
		w.poll()
		w.poll()
		assert.Zero(t, testutil.ToFloat64(underWay))
	})
}
