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

func TestAnEventIsAWarningIfSomebodyLosesSomething(t *testing.T) {
	for reason, kind := range map[string]string{
		ReasonNotice: "Warning", ReasonHeld: "Warning", ReasonWarned: "Warning", ReasonUnsaved: "Warning", ReasonUnprepared: "Warning",
		ReasonDeleted: "Warning", ReasonStopped: "Warning", ReasonSaved: "Normal", ReasonEvicted: "Normal", ReasonDrained: "Normal",
		ReasonCancelled: "Normal", ReasonRemoved: "Normal", ReasonReleased: "Normal",
	} {
		written := record.NewFakeRecorder(1)
		NewRecorder(written, clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))).Eventf(&corev1.Pod{}, reason, "what happened")
		assert.Equal(t, kind+" "+reason+" what happened", <-written.Events)
	}
}
