package events

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestThousandsOfPodsAreNotThousandsOfEvents(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	written := record.NewFakeRecorder(10 * podBurst)
	recorder := NewRecorder(written, clock)
	for range 3 * podBurst {
		recorder.PodEventf(&corev1.Pod{}, ReasonEvicted, "Evicted")
	}
	assert.Len(t, written.Events, podBurst)
	clock.SetTime(clock.Now().Add(time.Second))
	for range 3 * podBurst {
		recorder.PodEventf(&corev1.Pod{}, ReasonEvicted, "Evicted")
	}
	assert.Len(t, written.Events, podBurst+podQPS)
}
