package spotfirst

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	apiv1 "k8s.io/api/core/v1"
	provreqv1 "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/deadline"
)

// doer has done so much of its work, unless that is being read.
type doer struct {
	done   time.Duration
	isRead bool
	times  int
}

func (d *doer) Done(*apiv1.Pod) (time.Duration, bool) {
	d.times++
	return d.done, d.isRead
}

func TestAJobIsDecidedForByTheWorkThatIsLeft(t *testing.T) {
	for name, c := range map[string]struct {
		doer    doer
		options []testutil.PodOption
		work    time.Duration
	}{
		"nothing is done":          {doer{isRead: true}, nil, 24 * time.Hour},
		"a part is":                {doer{done: 20 * time.Hour, isRead: true}, nil, 4 * time.Hour},
		"more than all":            {doer{done: 25 * time.Hour, isRead: true}, nil, 0},
		"the pod says how much is": {doer{done: 20 * time.Hour, isRead: true}, []testutil.PodOption{testutil.Annotated(api.AnnotationWorkSaved, "10h")}, 14 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			fake, asked := clocktesting.NewFakePassiveClock(testutil.Epoch), &listener{}
			shop := newShop(map[string]pricing.Offering{"spot": a10Spot, "od": a10OnDemand})
			policy := NewPolicy(Config{Offerings: shop, Restart: restart, Clock: fake, Deadlines: NewDeadlines(shop, asked, fake), Progress: &c.doer})
			pod := testutil.NewPod("p", append(until("30h", "24h"), c.options...)...)
			policy.Wait("spot", pod)
			policy.Wait("od", pod)
			assert.Equal(t, deadline.Job{Namespace: pod.Namespace, Work: c.work, Whole: 24 * time.Hour, Slack: 30*time.Hour - c.work}, asked.job)
			assert.LessOrEqual(t, c.doer.times, 1, "once for all offerings")
		})
	}
}

func TestAJobThatLooksLateIsNotIfItHasSavedItsWork(t *testing.T) {
	fake := clocktesting.NewFakePassiveClock(testutil.Epoch)
	shop := newShop(map[string]pricing.Offering{"spot": a10Spot, "od": a10OnDemand})
	has := &doer{}
	policy := NewPolicy(Config{Offerings: shop, Restart: restart, Clock: fake, Progress: has})
	pod := testutil.NewPod("p", until("10h", "24h")...)
	is := func(spot, onDemand time.Duration, why string) {
		t.Helper()
		assert.Equal(t, spot, policy.Wait("spot", pod), why)
		assert.Equal(t, onDemand, policy.Wait("od", pod), why)
		fake.SetTime(fake.Now().Add(choiceFor))
	}
	is(UntilLearnt, UntilLearnt, "nobody knows yet")
	called := false
	policy.AllowSpot([]*apiv1.Pod{pod}, func() { called = true })
	assert.False(t, called)
	fake.SetTime(fake.Now().Add(choiceFor))
	has.isRead, has.done = true, 20*time.Hour
	is(0, 0, "it is not late")
	has.done = 0
	is(Never, 0, "it is")
}

func TestPodsOfAProvisioningRequestDoNotWaitForWhatIsBeingLearnt(t *testing.T) {
	fake := clocktesting.NewFakePassiveClock(testutil.Epoch)
	shop := newShop(map[string]pricing.Offering{"spot": a10Spot, "od": a10OnDemand})
	policy := NewPolicy(Config{Offerings: shop, Restart: restart, Clock: fake, Deadlines: NewDeadlines(shop, hesitant{}, fake), Progress: &doer{}})
	pod := testutil.NewPod("p", append(until("30h", "24h"), testutil.Annotated(provreqv1.ProvisioningRequestPodAnnotationKey, "request"))...)
	assert.Zero(t, policy.Wait("spot", pod))
}

func TestAJobMovesByTheWorkThatIsLeft(t *testing.T) {
	now := testutil.Epoch
	market, has := certain{decides: true, better: []pricing.Offering{a10Spot}}, &doer{done: 21 * time.Hour}
	clock := clocktesting.NewFakePassiveClock(now)
	moves := NewMoves(NewDeadlines(newShop(map[string]pricing.Offering{"spot": a10Spot, "od": a10OnDemand}), &market, clock), has, pricing.Terms{Restart: restart}, clock)
	job := Job{Pods: []*apiv1.Pod{gpuPod("p", until("10h", "24h")...)}, Nodes: []*apiv1.Node{{}}, Since: now.Add(-5 * time.Hour)}
	_, pays := moves.Plan(job)
	assert.False(t, pays, "it is being read")
	has.isRead = true
	plan, pays := moves.Plan(job)
	assert.True(t, pays)
	assert.Equal(t, deadline.Job{Namespace: job.Pods[0].Namespace, Work: 3 * time.Hour, Whole: 24 * time.Hour, Slack: 7 * time.Hour}, market.job)
	assert.Equal(t, 21*time.Hour, plan.Saved)
	job.Pods = []*apiv1.Pod{gpuPod("p", append(until("20h", "24h"), testutil.Annotated(api.AnnotationWorkSaved, "9h"))...)}
	_, pays = moves.Plan(job)
	assert.True(t, pays)
	assert.Equal(t, 15*time.Hour, market.job.Work, "what the pod says itself counts, once")
}
