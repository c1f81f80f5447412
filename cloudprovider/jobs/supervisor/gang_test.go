package supervisor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	quota "k8s.io/apiserver/pkg/quota/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// asking is a job whose owner wrote so many workers, and that many as what it had before.
func asking(workers string, most int) func(*jobs.Job) {
	return func(j *jobs.Job) {
		j.Max, j.Replicas = most, most
		j.Object.SetAnnotations(map[string]string{
			api.AnnotationHeldReason: string(jobs.HeldForReclaim), api.AnnotationHeldSince: metav1.Now().UTC().Format("2006-01-02T15:04:05Z07:00"),
			api.AnnotationHeldReplicas: workers,
		})
	}
}

// asked are how many pods the loop is given of each gang.
func (f *fixture) asked() (pods []int) {
	for _, gang := range f.supervisor.Returning() {
		pods = append(pods, len(gang.Pods))
	}
	return pods
}

// eventCount returns how often an Event with the reason was recorded.
func (f *fixture) eventCount(reason string) (count int) {
	f.events.mu.Lock()
	defer f.events.mu.Unlock()
	for _, event := range f.events.recorded {
		if strings.HasPrefix(event, reason+" ") {
			count++
		}
	}
	return count
}

func TestNothingIsTriedForAJobThatAsksForMoreThanThePoolsCouldHold(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.pools.most = 24
		suspended(f, held(jobs.HeldSuspended, jobs.HeldForReclaim), func(j *jobs.Job) { j.Min = 300_000 }, asking("300000", 300_000))
		f.job("train", held(jobs.HeldSuspended, jobs.HeldForReclaim), asking("300000", 300_000))
		f.pass(10 * lastPause)
		assert.Empty(t, f.asked())
		assert.Equal(t, 1, f.eventCount(ReasonTooLarge), "said once, however often it is looked at")
		f.pools.most = 1 << 20
		f.job("train", held(jobs.HeldSuspended, jobs.HeldForReclaim), asking("8", 8))
		f.pass(2 * lastPause)
		assert.Equal(t, []int{9}, f.asked(), "its owner has thought better of it")
	})
}

func TestADynamicJobIsTriedWithAsManyWorkersAsThePoolsCouldHold(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.pools.most = 24
		suspended(f, recovering(jobs.RecoverDynamic), elastic(2))
		f.job("train", held(jobs.HeldSuspended, jobs.HeldForReclaim), recovering(jobs.RecoverDynamic), elastic(2), asking("300000", 300_000))
		f.pass(2 * lastPause)
		assert.Equal(t, []int{25}, f.asked(), "and the launcher")
		assert.Zero(t, f.eventCount(ReasonTooLarge))
	})
}

func TestAJobIsTriedWithNoMoreWorkersThanItsOwnMaximum(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.start()
		f.systems.launchers = 1
		f.job("train", held(jobs.HeldSuspended, jobs.HeldForReclaim), asking("300000", 6))
		f.pass(lookEvery)
		assert.Equal(t, []int{7}, f.asked())
	})
}

func TestNodesOfOthersHavePlacesTooAndThoseOfPoolsAllThatTheyOffer(t *testing.T) {
	for gpus, most := range map[string]int{"1": 9, "32": 40} {
		inBubble(t, func(f *fixture) {
			f.pools.most, f.pools.keeps = 1, true
			f.node("foreign", offering("8"))
			f.node("of-a-pool", offering(gpus)) // 32 where they are shared by time, of which the pool does not know
			f.start()
			f.pass(lookEvery)
			assert.Equal(t, most, f.supervisor.held.gangs.mostPods(newPod("train", "train-0", jobs.RoleWorker)), gpus)
		})
	}
}

func offering(gpus string) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110"), "nvidia.com/gpu": resource.MustParse(gpus)}
	}
}

// quota lets the namespace have so many GPUs, of which some are used.
func (f *fixture) quota(hard, used string) {
	f.Helper()
	const gpus = "requests.nvidia.com/gpu"
	bound := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "gpus"},
		Status: corev1.ResourceQuotaStatus{
			Hard: corev1.ResourceList{gpus: resource.MustParse(hard), corev1.ResourceLimitsCPU: resource.MustParse("1")},
			Used: corev1.ResourceList{gpus: resource.MustParse(used)},
		},
	}
	quotas := f.client.CoreV1().ResourceQuotas("ml")
	if _, err := quotas.Update(f.Context(), bound, metav1.UpdateOptions{}); err == nil {
		return
	}
	_, err := quotas.Create(f.Context(), bound, metav1.CreateOptions{})
	require.NoError(f, err)
}

func TestWhatIsTriedForJobsIsWithinTheQuotaOfTheirNamespace(t *testing.T) {
	four := held(jobs.HeldSuspended, jobs.HeldForReclaim)
	for name, test := range map[string]struct {
		hard, used string
		jobs       map[string][]func(*jobs.Job)
		want       []int
		events     int
	}{
		"a gang that is let in":                      {hard: "6", used: "2", jobs: map[string][]func(*jobs.Job){"a": {four}}, want: []int{4}},
		"a gang that is not":                         {hard: "6", used: "3", jobs: map[string][]func(*jobs.Job){"a": {four}}, events: 1},
		"as many workers as are, where that will do": {hard: "6", used: "3", jobs: map[string][]func(*jobs.Job){"a": {four, elastic(2), recovering(jobs.RecoverDynamic)}}, want: []int{3}},
		"not fewer than its minimum":                 {hard: "6", used: "5", jobs: map[string][]func(*jobs.Job){"a": {four, elastic(2), recovering(jobs.RecoverDynamic)}}, events: 1},
		"the first of two":                           {hard: "6", used: "0", jobs: map[string][]func(*jobs.Job){"a": {four}, "b": {four}}, want: []int{4}, events: 1},
		"the workers that a job lacks":               {hard: "6", used: "2", jobs: map[string][]func(*jobs.Job){"a": {held(jobs.HeldShrunk, jobs.HeldForReclaim), at(1)}}, want: []int{3}},
		"fewer, where that will do":                  {hard: "6", used: "4", jobs: map[string][]func(*jobs.Job){"a": {held(jobs.HeldShrunk, jobs.HeldForReclaim), at(1), elastic(1), recovering(jobs.RecoverDynamic)}}, want: []int{2}},
		"none, where it needs all":                   {hard: "6", used: "4", jobs: map[string][]func(*jobs.Job){"a": {held(jobs.HeldShrunk, jobs.HeldForReclaim), at(1)}}, events: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				f.quota(test.hard, test.used)
				f.start()
				for name, change := range test.jobs {
					f.job(name, change...)
				}
				f.pass(settleTime + lookEvery)
				assert.Equal(t, test.want, f.asked())
				assert.Equal(t, test.events, f.eventCount(ReasonOverQuota))
			})
		})
	}
}

// countingEvaluator counts the pods whose use of a quota is asked for.
type countingEvaluator struct {
	quota.Evaluator
	pods int
}

func (e *countingEvaluator) Usage(item runtime.Object) (corev1.ResourceList, error) {
	e.pods++
	return e.Evaluator.Usage(item)
}

func TestALookCountsEachGangAFewTimesHoweverManyThereAre(t *testing.T) {
	const count, pods = 50, 4
	for name, test := range map[string]struct {
		quota bool
		most  int
	}{
		"with a quota": {quota: true, most: 3 * count * pods},
		"without one":  {quota: false, most: 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				if test.quota {
					f.quota("1000", "0")
				}
				f.start()
				evaluator := &countingEvaluator{Evaluator: f.supervisor.held.gangs.evaluator}
				f.supervisor.held.gangs.evaluator = evaluator
				for i := range count {
					f.job(fmt.Sprint("train-", i), held(jobs.HeldSuspended, jobs.HeldForReclaim))
				}
				f.pass(lookEvery)
				assert.Len(t, f.asked(), count)
				assert.LessOrEqual(t, evaluator.pods, test.most)
			})
		})
	}
}

func TestAJobComesBackOnceItsNamespaceMayHaveIt(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.quota("2", "0")
		f.start()
		f.job("train", held(jobs.HeldSuspended, jobs.HeldForReclaim))
		f.pass(lookEvery)
		require.Empty(t, f.asked())
		f.quota("4", "0")
		f.pass(firstPause + lookEvery)
		assert.Equal(t, []int{4}, f.asked())
	})
}
