package supervisor

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// asking is a job whose owner wrote so many workers, and that many as what it had before.
func asking(workers string, most int) func(*jobs.Job) {
	return func(j *jobs.Job) {
		j.Max, j.Replicas = most, most
		j.Object.SetAnnotations(map[string]string{
			api.AnnotationHeldReason: string(jobs.ReasonReclaim), api.AnnotationHeldSince: metav1.Now().UTC().Format("2006-01-02T15:04:05Z07:00"),
			api.AnnotationHeldReplicas: workers,
		})
	}
}

// asked are how many pods the loop is given of each gang.
func (w *world) asked() (pods []int) {
	for _, gang := range w.supervisor.Returning() {
		pods = append(pods, len(gang.Pods))
	}
	return pods
}

// told is how often an Event with the reason was written.
func (w *world) told(reason string) (times int) {
	w.events.mu.Lock()
	defer w.events.mu.Unlock()
	for _, said := range w.events.said {
		if strings.HasPrefix(said, reason+" ") {
			times++
		}
	}
	return times
}

func TestNothingIsTriedForAJobThatAsksForMoreThanThePoolsCouldHold(t *testing.T) {
	story(t, func(w *world) {
		w.pools.room = 24
		suspended(w, held(jobs.HeldSuspended, jobs.ReasonReclaim), func(j *jobs.Job) { j.Min = 300_000 }, asking("300000", 300_000))
		w.job("train", held(jobs.HeldSuspended, jobs.ReasonReclaim), asking("300000", 300_000))
		w.pass(10 * lastPause)
		assert.Empty(t, w.asked())
		assert.Equal(t, 1, w.told(ReasonTooLarge), "said once, however often it is looked at")
		w.pools.room = 1 << 20
		w.job("train", held(jobs.HeldSuspended, jobs.ReasonReclaim), asking("8", 8))
		w.pass(2 * lastPause)
		assert.Equal(t, []int{9}, w.asked(), "its owner has thought better of it")
	})
}

func TestADynamicJobIsTriedWithAsManyWorkersAsThePoolsCouldHold(t *testing.T) {
	story(t, func(w *world) {
		w.pools.room = 24
		suspended(w, recovering(jobs.RecoverDynamic), elastic(2))
		w.job("train", held(jobs.HeldSuspended, jobs.ReasonReclaim), recovering(jobs.RecoverDynamic), elastic(2), asking("300000", 300_000))
		w.pass(2 * lastPause)
		assert.Equal(t, []int{25}, w.asked(), "and the launcher")
		assert.Zero(t, w.told(ReasonTooLarge))
	})
}

func TestAJobIsTriedWithNoMoreWorkersThanItsOwnMaximum(t *testing.T) {
	story(t, func(w *world) {
		w.start()
		w.systems.launchers = 1
		w.job("train", held(jobs.HeldSuspended, jobs.ReasonReclaim), asking("300000", 6))
		w.pass(lookEvery)
		assert.Equal(t, []int{7}, w.asked())
	})
}

func TestNodesOfOthersHavePlacesTooAndThoseOfPoolsAllThatTheyOffer(t *testing.T) {
	for gpus, room := range map[string]int{"1": 9, "32": 40} {
		story(t, func(w *world) {
			w.pools.room = 1
			w.node("foreign", offering("8"))
			w.node("of-a-pool", offering(gpus)) // 32 where they are shared by time, of which the pool does not know
			w.start()
			w.pass(lookEvery)
			assert.Equal(t, room, w.supervisor.room(newPod("train", "train-0", jobs.RoleWorker)), gpus)
		})
	}
}

func offering(gpus string) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110"), "nvidia.com/gpu": resource.MustParse(gpus)}
	}
}

// quota lets the namespace have so many GPUs, of which some are used.
func (w *world) quota(hard, used string) {
	w.Helper()
	const gpus = "requests.nvidia.com/gpu"
	bound := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "gpus"},
		Status: corev1.ResourceQuotaStatus{
			Hard: corev1.ResourceList{gpus: resource.MustParse(hard), corev1.ResourceLimitsCPU: resource.MustParse("1")},
			Used: corev1.ResourceList{gpus: resource.MustParse(used)},
		},
	}
	quotas := w.client.CoreV1().ResourceQuotas("ml")
	if _, err := quotas.Update(w.Context(), bound, metav1.UpdateOptions{}); err == nil {
		return
	}
	_, err := quotas.Create(w.Context(), bound, metav1.CreateOptions{})
	require.NoError(w, err)
}

func TestWhatIsTriedForJobsIsWithinTheQuotaOfTheirNamespace(t *testing.T) {
	four := held(jobs.HeldSuspended, jobs.ReasonReclaim)
	for name, test := range map[string]struct {
		hard, used string
		jobs       map[string][]func(*jobs.Job)
		want       []int
		told       int
	}{
		"a gang that is let in":                      {hard: "6", used: "2", jobs: map[string][]func(*jobs.Job){"a": {four}}, want: []int{4}},
		"a gang that is not":                         {hard: "6", used: "3", jobs: map[string][]func(*jobs.Job){"a": {four}}, told: 1},
		"as many workers as are, where that will do": {hard: "6", used: "3", jobs: map[string][]func(*jobs.Job){"a": {four, elastic(2), recovering(jobs.RecoverDynamic)}}, want: []int{3}},
		"not fewer than its minimum":                 {hard: "6", used: "5", jobs: map[string][]func(*jobs.Job){"a": {four, elastic(2), recovering(jobs.RecoverDynamic)}}, told: 1},
		"the first of two":                           {hard: "6", used: "0", jobs: map[string][]func(*jobs.Job){"a": {four}, "b": {four}}, want: []int{4}, told: 1},
		"the workers that a job lacks":               {hard: "6", used: "2", jobs: map[string][]func(*jobs.Job){"a": {held(jobs.HeldShrunk, jobs.ReasonReclaim), at(1)}}, want: []int{3}},
		"fewer, where that will do":                  {hard: "6", used: "4", jobs: map[string][]func(*jobs.Job){"a": {held(jobs.HeldShrunk, jobs.ReasonReclaim), at(1), elastic(1), recovering(jobs.RecoverDynamic)}}, want: []int{2}},
		"none, where it needs all":                   {hard: "6", used: "4", jobs: map[string][]func(*jobs.Job){"a": {held(jobs.HeldShrunk, jobs.ReasonReclaim), at(1)}}, told: 1},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				w.quota(test.hard, test.used)
				w.start()
				for name, change := range test.jobs {
					w.job(name, change...)
				}
				w.pass(heldTime + lookEvery)
				assert.Equal(t, test.want, w.asked())
				assert.Equal(t, test.told, w.told(ReasonOverQuota))
			})
		})
	}
}

func TestAJobComesBackOnceItsNamespaceMayHaveIt(t *testing.T) {
	story(t, func(w *world) {
		w.quota("2", "0")
		w.start()
		w.job("train", held(jobs.HeldSuspended, jobs.ReasonReclaim))
		w.pass(lookEvery)
		require.Empty(t, w.asked())
		w.quota("4", "0")
		w.pass(firstPause + lookEvery)
		assert.Equal(t, []int{4}, w.asked())
	})
}
