package deadline

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"gpu-spot-autoscaler/pricing/finish"
)

// askOf has a namespace ask for some kinds of jobs, each with offers of its own, and returns for how many of them there is a plan.
func (f *fixture) askOf(namespace string, from, to int) (kept int) {
	for n := from; n < to; n++ {
		offers := NewOffers([]Offer{{Offering: spot, Share: 1}, {Offering: onDemand, Share: 1, Protected: time.Duration(n)}})
		offers.key += namespace
		job := Job{Namespace: namespace, Work: 24 * time.Hour, Slack: 6 * time.Hour}
		f.Choose(offers, job)
		g, _ := GridOf(job, f.config.Terms.Restart)
		if f.plans.all[key{g, offers.key}] != nil {
			kept++
		}
	}
	return kept
}

func TestThereAreNoMorePlansThanMayBeKept(t *testing.T) {
	f := newFixture(5)
	assert.Equal(t, mostPlans, f.askOf("a", 0, 3*mostPlans), "those that came first stay, since they are in use")
	assert.Len(t, f.plans.all, mostPlans)
	assert.Equal(t, mostPlans, f.work(t))
	f.askOf("a", 0, 3*mostPlans)
	assert.Empty(t, f.due, "nothing is learnt for the others")
}

func TestAPlanThatIsNotAskedForMakesRoom(t *testing.T) {
	f := newFixture(5)
	f.askOf("a", 0, mostPlans)
	f.clock.Step(idleAfter - time.Second)
	assert.Equal(t, 8, f.askOf("a", 0, 8))
	assert.Equal(t, 8, f.askOf("a", 0, 8), "they are in use")
	f.clock.Step(time.Second)
	assert.Equal(t, mostPlans-8, f.askOf("a", mostPlans, 2*mostPlans), "others take the place of those that are not")
	assert.Len(t, f.plans.all, mostPlans)
	assert.Equal(t, 8, f.askOf("a", 0, 8))
}

func TestALargerPlanThatIsUsedInPlaceOfOneThatIsNotKeptStays(t *testing.T) {
	f := newFixture(5)
	large, small := Job{Namespace: "a", Work: 24 * time.Hour, Slack: 12 * time.Hour}, Job{Namespace: "a", Work: 24 * time.Hour, Slack: 4 * time.Hour}
	f.Choose(f.offers, large)
	f.work(t)
	for minute := range 20 {
		f.askOf("a", 0, mostPlans)
		assert.Equal(t, Spot, f.Choose(f.offers, small), "after %d minutes", minute)
		f.clock.Step(time.Minute)
	}
}

func TestAPlanThatStandsInForOthersLearnsAnew(t *testing.T) {
	f := newFixture(5)
	small := Job{Namespace: "a", Work: 24 * time.Hour, Slack: 4 * time.Hour}
	f.Choose(f.offers, Job{Namespace: "a", Work: 24 * time.Hour, Slack: 12 * time.Hour})
	f.askOf("a", 0, mostPlans)
	f.work(t)
	f.Choose(f.offers, small)
	assert.Empty(t, f.due)
	f.clock.Step(LearnEvery)
	for _, each := range f.plans.all {
		each.asked, each.used = f.clock.Now(), f.clock.Now() // as if all of them had been in use
	}
	f.Choose(f.offers, small)
	assert.Len(t, f.due, 1)
}

func TestNoPlanThatHasNothingToGoByStandsInForOthers(t *testing.T) {
	p := plans{all: map[key]*plan{}}
	offers := NewOffers([]Offer{{Offering: spot, Share: 1}, {Offering: onDemand, Share: 1}})
	large := p.get(key{grid: Grid{slack: mostSlack}}, offers, "a", start)
	small := p.get(key{grid: Grid{slack: leastSize}}, offers, "a", start)
	large.now.Store(&outlook{})
	assert.Same(t, small, p.larger(small, start))
	large.now.Store(&outlook{planner: &finish.Planner{}})
	assert.Same(t, large, p.larger(small, start))
}

func TestAPlanCountsForWhoUsesIt(t *testing.T) {
	f := newFixture(5)
	f.askOf("a", 0, 1)
	job := func(namespace string) Job {
		return Job{Namespace: namespace, Work: 24 * time.Hour, Slack: 6 * time.Hour}
	}
	f.Choose(f.offers, job("a"))
	p := f.planOf(24*time.Hour, 6*time.Hour)
	f.clock.Step(idleAfter - time.Second)
	f.Choose(f.offers, job("b"))
	assert.Equal(t, "a", p.namespace)
	f.clock.Step(time.Second)
	f.Choose(f.offers, job("b"))
	assert.Equal(t, "b", p.namespace)
	f.clock.Step(time.Second)
	f.Choose(f.offers, job("a"))
	assert.Equal(t, "b", p.namespace)
}

func TestNoNamespaceTakesThePlansOfOthers(t *testing.T) {
	f := newFixture(5)
	f.askOf("a", 0, 3*mostPlans)
	assert.Equal(t, 1, f.askOf("b", 0, 1))
	for n := range mostPlans {
		f.askOf("a", 0, 3*mostPlans)
		f.askOf(fmt.Sprint("c-", n%3), 0, 1)
	}
	assert.Equal(t, 1, f.askOf("b", 0, 1), "though others ask for more than there is room for")
	f.askOf("b", 0, 3*mostPlans)
	counts := map[string]int{}
	for _, each := range f.plans.all {
		counts[each.namespace]++
	}
	assert.Len(t, counts, 5)
	assert.Less(t, counts["a"]-counts["b"], 2, "who asks for as much has as much")
	assert.LessOrEqual(t, counts["b"], counts["a"])
}

func TestNothingIsLearntForAPlanThatIsForgotten(t *testing.T) {
	f := newFixture(5)
	f.ask()
	p := f.planOf(24*time.Hour, 6*time.Hour)
	clear(f.plans.all)
	f.work(t)
	assert.Nil(t, p.now.Load())
}
