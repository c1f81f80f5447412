package spotfirst

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/deadline"
)

// saved is how much of its work each job has saved, and when.
type saved struct {
	work  time.Duration
	at    time.Time
	times int
}

func (s *saved) Saved(*apiv1.Pod) (time.Duration, time.Time) { s.times++; return s.work, s.at }

// runningSince has the container of the pod run since so long ago.
func runningSince(d time.Duration) testutil.PodOption {
	return func(pod *apiv1.Pod) {
		pod.Status.ContainerStatuses = []apiv1.ContainerStatus{{State: apiv1.ContainerState{
			Running: &apiv1.ContainerStateRunning{StartedAt: metav1.NewTime(testutil.Epoch.Add(-d))},
		}}}
	}
}

func TestAJobIsDecidedForByTheWorkThatIsLeft(t *testing.T) {
	acknowledges := testutil.Annotated(api.AnnotationAwaitCheckpoint, "true")
	for name, c := range map[string]struct {
		saved   saved
		options []testutil.PodOption
		work    time.Duration
	}{
		"nothing is saved":                {saved{}, nil, 24 * time.Hour},
		"a part is":                       {saved{work: 20 * time.Hour, at: testutil.Epoch.Add(-time.Hour)}, nil, 4 * time.Hour},
		"it runs, and will save its work": {saved{}, []testutil.PodOption{acknowledges, runningSince(20*time.Hour + restart)}, 4 * time.Hour},
		"it runs, and says nothing":       {saved{}, []testutil.PodOption{runningSince(20 * time.Hour)}, 24 * time.Hour},
		"it has saved a part of its run":  {saved{work: 20 * time.Hour, at: testutil.Epoch.Add(-time.Hour)}, []testutil.PodOption{acknowledges, runningSince(10 * time.Hour)}, 3 * time.Hour},
		"and one of the run before":       {saved{work: 20 * time.Hour, at: testutil.Epoch.Add(-3 * time.Hour)}, []testutil.PodOption{acknowledges, runningSince(time.Hour + restart)}, 3 * time.Hour},
		"it has just been started":        {saved{work: 20 * time.Hour, at: testutil.Epoch.Add(-3 * time.Hour)}, []testutil.PodOption{acknowledges, runningSince(time.Minute)}, 4 * time.Hour},
		"the pod says how much is":        {saved{work: 20 * time.Hour}, []testutil.PodOption{testutil.Annotated(api.AnnotationWorkSaved, "10h")}, 14 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			fake, asked := clocktesting.NewFakePassiveClock(testutil.Epoch), &listener{}
			shop := newShop(map[string]pricing.Offering{"spot": a10Spot, "od": a10OnDemand})
			policy := NewPolicy(Config{Offerings: shop, Restart: restart, Clock: fake, Deadlines: NewDeadlines(shop, asked, fake), Progress: &c.saved})
			pod := testutil.NewPod("p", append(until("30h", "24h"), c.options...)...)
			policy.Wait("spot", pod)
			policy.Wait("od", pod)
			assert.Equal(t, deadline.Job{Namespace: pod.Namespace, Work: c.work, Whole: 24 * time.Hour, Slack: 30*time.Hour - c.work}, asked.job)
			assert.LessOrEqual(t, c.saved.times, 1, "once for all offerings")
		})
	}
}

func TestAJobThatLooksLateIsNotIfItHasSavedItsWork(t *testing.T) {
	fake := clocktesting.NewFakePassiveClock(testutil.Epoch)
	shop := newShop(map[string]pricing.Offering{"spot": a10Spot, "od": a10OnDemand})
	has := &saved{work: 20 * time.Hour}
	policy := NewPolicy(Config{Offerings: shop, Restart: restart, Clock: fake, Progress: has})
	pod := testutil.NewPod("p", until("10h", "24h")...)
	assert.Zero(t, policy.Wait("spot", pod))
	has.work = 0
	fake.SetTime(testutil.Epoch.Add(choiceFor))
	assert.Equal(t, Never, policy.Wait("spot", pod))
}

func TestAJobMovesByTheWorkThatIsLeft(t *testing.T) {
	now := testutil.Epoch
	market := certain{decides: true, better: []pricing.Offering{a10Spot}}
	clock := clocktesting.NewFakePassiveClock(now)
	moves := NewMoves(NewDeadlines(newShop(map[string]pricing.Offering{"spot": a10Spot, "od": a10OnDemand}), &market, clock),
		&saved{work: 20 * time.Hour, at: now.Add(-4 * time.Hour)}, pricing.Terms{Restart: restart}, clock)
	plan, pays := moves.Plan(Job{Pods: []*apiv1.Pod{gpuPod("p", until("10h", "24h")...)}, Nodes: []*apiv1.Node{{}}, Since: now.Add(-time.Hour - restart)})
	assert.True(t, pays)
	assert.Equal(t, 3*time.Hour, market.job.Work)
	assert.Equal(t, 7*time.Hour, market.job.Slack)
	assert.Equal(t, 24*time.Hour, market.job.Whole)
	assert.Equal(t, 21*time.Hour, plan.Saved)
}
