package mark

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestOthersWaitForTheMarksThatAreDueButNotForLong(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	backlog := NewBacklog(clock)
	done := backlog.Announcing()
	assert.True(t, backlog.Waiting(), "there may be more Nodes")
	done()
	assert.False(t, backlog.Waiting())

	backlog.Add("a")
	assert.True(t, backlog.Waiting())
	clock.SetTime(clock.Now().Add(Patience - time.Second))
	backlog.Add("a")
	assert.True(t, backlog.Waiting())
	clock.SetTime(clock.Now().Add(time.Second))
	assert.False(t, backlog.Waiting(), "since it was added first")
	backlog.Add("b")
	assert.True(t, backlog.Waiting())
	backlog.Done("b")
	assert.False(t, backlog.Waiting())
}

func TestNewsAreToldOnceAndNotBeforeTheMarks(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	backlog := NewBacklog(clock)
	assert.False(t, backlog.TakeNews())
	backlog.Add("a")
	backlog.AddNews()
	backlog.AddNews()
	assert.False(t, backlog.TakeNews())
	clock.SetTime(clock.Now().Add(notifyPatience))
	assert.True(t, backlog.TakeNews(), "its mark takes too long")
	assert.False(t, backlog.TakeNews())
	backlog.AddNews()
	backlog.Done("a")
	assert.True(t, backlog.TakeNews())
}

func TestWhatIsLeftForAfterwardsWaitsForTheMarksButNotForLong(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	backlog := NewBacklog(clock)
	backlog.Add("a")
	backlog.Afterwards(func() {})
	assert.Empty(t, backlog.TakeAfterwards())
	backlog.Done("a")
	assert.Len(t, backlog.TakeAfterwards(), 1)
	assert.Empty(t, backlog.TakeAfterwards(), "once")

	backlog.Add("b")
	backlog.Afterwards(func() {})
	clock.SetTime(clock.Now().Add(Patience))
	assert.Len(t, backlog.TakeAfterwards(), 1)
}
