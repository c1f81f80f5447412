package reclaim

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// suspendMany is about so many jobs that cannot go on without their one reclaiming pod, and a system that ends the pod of one
// suspended job after the other, so many seconds each.
func suspendMany(t *testing.T, count int, each time.Duration, test func(w *world)) {
	t.Helper()
	withJobs(t, func(w *world, f *fakeJobs) {
		var nodes []string
		for i := range count {
			name := fmt.Sprintf("train-%02d", i)
			f.add(name, 1, 1)
			w.addNode(name)
			w.addPod(name, name, of(name, jobs.RoleWorker))
			nodes = append(nodes, name)
		}
		w.cloud.reclaim(nodes...)
		f.start()
		ctx, cancel := context.WithCancel(w.Context())
		var system sync.WaitGroup
		system.Go(func() {
			for _, call := range f.called() { // in the order in which they were suspended
				select {
				case <-ctx.Done():
					return
				case <-time.After(each):
					w.endBySystem(strings.TrimPrefix(call, "suspend "))
				}
			}
		})
		test(w)
		cancel()
		system.Wait()
	})
}

// endBySystem removes the pod without a request of the controller under test.
func (w *world) endBySystem(pod string) {
	err := w.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "default", pod, metav1.DeleteOptions{})
	if err != nil {
		return // it was evicted before
	}
}

func TestASystemThatEndsSuspendedJobsInTimeIsLeftToIt(t *testing.T) {
	suspendMany(t, 20, 3*time.Second, func(w *world) {
		w.pass(70 * time.Second)
		assert.Empty(t, w.pods())
		assert.Empty(t, w.gone(), "nothing was evicted")
	})
}

func TestASystemThatIsTooSlowForAllJobsIsLeftThoseThatItGetsTo(t *testing.T) {
	const each = 12 * time.Second
	suspendMany(t, 40, each, func(w *world) {
		w.pass(11 * time.Second)
		require.Empty(t, w.gone(), "nothing is known of it yet")
		w.pass(19 * time.Second)
		evicted := len(w.gone())
		assert.Greater(t, evicted, 25, "at this pace it needs eight minutes for all")
		assert.Less(t, evicted, 35, "and ends ten of them in two")
	})
}

func TestASystemThatIsQuickForOthersIsNotWaitedForForTwoMinutes(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		for _, name := range []string{"quick", "forgotten"} {
			f.add(name, 1, 1)
			w.addNode(name)
			w.addPod(name, name, of(name, jobs.RoleWorker))
		}
		w.cloud.reclaim("quick", "forgotten")
		f.start()
		w.endBySystem("quick")
		w.pass(time.Minute)
		assert.Equal(t, []string{"forgotten"}, w.gone())
	})
}

func TestPodsThatAreEvictedBecauseTheirSystemIsTooSlowAreNotCountedByTheJobController(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		for _, name := range []string{"quick", "forgotten"} {
			f.add(name, 1, 1)
			w.addNode(name)
			w.addPod(name, name, of(name, jobs.RoleWorker), trackedBy(name))
		}
		w.cloud.reclaim("quick", "forgotten")
		f.start()
		w.endBySystem("quick")
		w.pass(time.Minute)
		assert.Equal(t, []string{"forgotten"}, w.gone())
		assert.Equal(t, []string{"forgotten"}, w.untracked())
	})
}

func TestPodsStayForAWhileIfTheyCannotBeTakenOutOfTheAccountInTime(t *testing.T) {
	withJob(t, corev1.RestartPolicyNever, func(w *world, f *fakeJobs) {
		recovers := time.Now().Add(suspendWait + 8*time.Second)
		w.client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			isUntrack := strings.Contains(string(action.(clienttesting.PatchAction).GetPatch()), batchv1.JobTrackingFinalizer)
			return isUntrack && time.Now().Before(recovers), nil, apierrors.NewTimeoutError("busy", 1)
		})
		f.start()
		w.pass(time.Until(recovers) - time.Second)
		require.Empty(t, w.gone())
		w.pass(slowestRetry + 2*time.Second)
		assert.ElementsMatch(t, []string{"a", "b"}, w.gone())
		for _, name := range w.pods() {
			assert.NotContains(t, w.pod(name).Finalizers, batchv1.JobTrackingFinalizer, name)
		}
	})
}
