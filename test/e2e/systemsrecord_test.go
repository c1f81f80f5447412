package e2e

import (
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// workRecord is what a job's workers lose in a reclaim. It answers each request for a checkpoint at once, as training code would that
// saves in no time, so that what is counted as lost is what the autoscaler costs.
type workRecord struct {
	t      *testing.T
	client kubernetes.Interface
	// workers is how many the job has.
	workers int

	mu sync.Mutex
	// running are the pods that run and were not told to end.
	running map[types.UID]bool
	// answered are the requests that were acknowledged, and saved is when the last was.
	answered map[string]bool
	saved    time.Time
	// stopped is when the first worker stopped, whole when all ran again after that; zero for not yet.
	stopped, whole time.Time
	// lost is the work of the worker that lost most, from the last acknowledgement before it stopped.
	lost time.Duration
	// unsaved says that a worker stopped before anything was acknowledged.
	unsaved bool
}

// recordWork follows the workers that match the selector, all of which run, until the test ends.
func (s *jobSuite) recordWork(selector string, workers int) *workRecord {
	s.t.Helper()
	r := &workRecord{t: s.t, client: s.Client, workers: workers, running: map[types.UID]bool{}, answered: map[string]bool{}}
	s.followPods(selector, r.observe)
	return r
}

func (r *workRecord) observe(pod *corev1.Pod, gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	trains := !gone && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning
	switch now := time.Now(); {
	case r.running[pod.UID] && !trains:
		delete(r.running, pod.UID)
		r.stop(now)
	case trains && !r.running[pod.UID]:
		r.running[pod.UID] = true
		if !r.stopped.IsZero() && len(r.running) == r.workers {
			r.whole = now
		}
	}
	if trains {
		r.answer(pod)
	}
}

// stop counts what a worker loses that stops now. Its caller holds the lock.
func (r *workRecord) stop(now time.Time) {
	if r.stopped.IsZero() {
		r.stopped = now
	}
	if r.saved.IsZero() {
		r.unsaved = true
		return
	}
	if r.whole.IsZero() {
		r.lost = max(r.lost, now.Sub(r.saved))
	}
	r.whole = time.Time{}
}

// answer acknowledges the request that the pod has, unless another pod of the job did. Its caller holds the lock.
func (r *workRecord) answer(pod *corev1.Pod) {
	request := pod.Annotations[api.AnnotationCheckpointRequest]
	if request == "" || r.answered[request] {
		return
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, api.AnnotationCheckpointAcknowledged, request)
	_, err := r.client.CoreV1().Pods(pod.Namespace).Patch(r.t.Context(), pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err == nil { // else the next pod, or the next update of this one, is for that
		r.answered[request], r.saved = true, time.Now()
	}
}

// over reports whether a worker stopped, and all run again.
func (r *workRecord) over() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.whole.IsZero()
}
