package reclaim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/reclaim/handshake"
)

// fakeJobs is Jobs in memory. Its jobs do not end pods by themselves.
type fakeJobs struct {
	world *world

	// system is the name of that of all jobs.
	system string

	mu   sync.Mutex
	jobs map[string]*jobs.Job
	// calls are "<action> <job>[ <pods>]", those that failed included, in order. Reading is no call.
	calls []string
	// fails are errors by action: get, warn, shrink, suspend.
	fails map[string]error
	// hangs are actions that never answer.
	hangs map[string]bool
	// takes is how long actions take to answer.
	takes map[string]time.Duration
	// scales is for how long the system is at work on a Shrink.
	scales   time.Duration
	shrunkAt time.Time
	// out are the pods that were shrunk away.
	out []string
	// listens says that the jobs hear that they are to stop.
	listens bool
	// cancelled are the pods that were not to be taken out any more, and still there. cancelRequested are all such pods.
	cancelled, cancelRequested []string
	// reshrunk is the answer to a Shrink of pods that the system is at work on already, which is no call.
	reshrunk error
}

var _ handshake.Jobs = (*fakeJobs)(nil)

const (
	labelJob  = "job"
	labelRole = "role"
	labelUnit = "unit"
)

// withJobs runs a test with jobs in a bubble of its own. The controller is started by f.start.
func withJobs(t *testing.T, test func(w *world, f *fakeJobs)) {
	t.Helper()
	inBubble(t, func(w *world) {
		test(w, &fakeJobs{world: w, system: "fake", jobs: map[string]*jobs.Job{}, fails: map[string]error{}, hangs: map[string]bool{}})
	})
}

func (f *fakeJobs) start(change ...func(*settings)) {
	f.world.Helper()
	f.world.start(append(change, func(c *settings) { c.Jobs = f })...)
}

// add makes an elastic job of so many workers.
func (f *fakeJobs) add(name string, least, replicas int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	object := &unstructured.Unstructured{}
	object.SetName(name)
	f.jobs[name] = &jobs.Job{Ref: f.refOf(name), Min: least, Max: replicas, Replicas: replicas, Object: object}
}

func (f *fakeJobs) refOf(name string) jobs.Ref {
	return jobs.Ref{System: f.system, NamespacedName: types.NamespacedName{Namespace: "default", Name: name}}
}

func (f *fakeJobs) Member(pod *corev1.Pod) jobs.Membership {
	if pod.Labels[labelJob] == "" {
		return soloJobs{}.Member(pod)
	}
	return jobs.Membership{Ref: f.refOf(pod.Labels[labelJob]), Role: jobs.Role(pod.Labels[labelRole])}
}

// UnitOf is what the pod says.
func (f *fakeJobs) UnitOf(pod *corev1.Pod) string { return pod.Labels[labelUnit] }

func (f *fakeJobs) Get(ctx context.Context, ref jobs.Ref) (jobs.Job, error) {
	if err := f.answer(ctx, "get"); err != nil {
		return jobs.Job{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if job, ok := f.jobs[ref.Name]; ok && ref.System == f.system {
		read := *job
		read.Object = job.Object.DeepCopy()
		return read, nil
	}
	return jobs.Job{}, fmt.Errorf("%s: %w", ref, jobs.ErrNoObject)
}

func (f *fakeJobs) Warn(ctx context.Context, job jobs.Job, _ jobs.Warning) error {
	return f.call(ctx, "warn", job.Name, func(*jobs.Job) {})
}

func (f *fakeJobs) Shrink(ctx context.Context, job jobs.Job, pods []string) error {
	pods = slices.Sorted(slices.Values(pods))
	f.mu.Lock()
	known := len(f.out) > 0 && !slices.ContainsFunc(pods, func(pod string) bool { return !slices.Contains(f.out, pod) })
	busy := time.Since(f.shrunkAt) < f.scales
	f.mu.Unlock()
	if known && busy {
		return f.reshrunk
	}
	if known {
		return nil
	}
	return f.call(ctx, "shrink", job.Name+" "+strings.Join(pods, ","), func(*jobs.Job) {
		f.out = append(f.out, pods...)
		f.shrunkAt = time.Now()
	})
}

func (f *fakeJobs) Shrinking(ctx context.Context, _ jobs.Ref, pods []string) ([]string, error) {
	if err := f.answer(ctx, "shrinking"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var leaving []string
	for _, pod := range pods {
		if slices.Contains(f.out, pod) && time.Since(f.shrunkAt) < f.scales {
			leaving = append(leaving, pod)
		}
	}
	return leaving, nil
}

func (f *fakeJobs) CancelShrink(ctx context.Context, _ jobs.Ref, pods []string) error {
	if err := f.answer(ctx, "cancel"); err != nil {
		return err
	}
	gone := f.world.gone()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cancelRequested = append(f.cancelRequested, pods...)
	for _, pod := range pods {
		if !slices.Contains(gone, pod) { // too late, otherwise
			f.cancelled = append(f.cancelled, pod)
		}
	}
	return nil
}

func (f *fakeJobs) Stop(ctx context.Context, job jobs.Job) (int, error) {
	err := f.call(ctx, "stop", job.Name, func(*jobs.Job) {})
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil || !f.listens {
		return 0, err
	}
	return job.Replicas, nil
}

func (f *fakeJobs) Suspend(ctx context.Context, job jobs.Job, _ jobs.HoldReason) error {
	return f.call(ctx, "suspend", job.Name, func(job *jobs.Job) { job.Suspended = true })
}

func (f *fakeJobs) call(ctx context.Context, action, what string, done func(*jobs.Job)) error {
	f.mu.Lock()
	f.calls = append(f.calls, action+" "+what)
	f.mu.Unlock()
	if err := f.answer(ctx, action); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	name, _, _ := strings.Cut(what, " ")
	done(f.jobs[name])
	return nil
}

func (f *fakeJobs) answer(ctx context.Context, action string) error {
	f.mu.Lock()
	hangs, err, takes := f.hangs[action], f.fails[action], f.takes[action]
	f.mu.Unlock()
	time.Sleep(takes)
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

// resume undoes Suspend, as anybody may.
func (f *fakeJobs) resume(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.jobs[name].Suspended = false
}

func (f *fakeJobs) suspended(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.jobs[name].Suspended
}

// called are the calls so far but for the warnings.
func (f *fakeJobs) called() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var called []string
	for _, call := range f.calls {
		if !strings.HasPrefix(call, "warn") {
			called = append(called, call)
		}
	}
	return called
}

// of makes the pod a member of the job. It is not restarted in place.
func of(job string, role jobs.Role) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Labels = map[string]string{labelJob: job, labelRole: string(role)}
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
}

func noted(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value) }
}

// awaiting is a pod that says when its work is saved.
func awaiting(pod *corev1.Pod) { noted(api.AnnotationAwaitCheckpoint, "true")(pod) }

// pod fails the test where there is none.
func (w *world) pod(name string) *corev1.Pod {
	w.Helper()
	pod, err := w.client.CoreV1().Pods("default").Get(w.Context(), name, metav1.GetOptions{})
	require.NoError(w, err)
	return pod
}

func (w *world) updatePod(name string, change func(*corev1.Pod)) {
	w.Helper()
	pod := w.pod(name)
	change(pod)
	_, err := w.client.CoreV1().Pods("default").Update(w.Context(), pod, metav1.UpdateOptions{})
	require.NoError(w, err)
}

// request is the id that the pod was told; empty for none.
func (w *world) request(pod string) string {
	w.Helper()
	return w.pod(pod).Annotations[api.AnnotationCheckpointRequest]
}

// say gives the pod's word for the request that it was told.
func (w *world) say(pod string) {
	w.Helper()
	id := w.request(pod)
	require.NotEmpty(w, id)
	w.updatePod(pod, noted(api.AnnotationCheckpointAcknowledged, id))
}

// gone are the names of the pods that were evicted or deleted so far, in order.
func (w *world) gone() (names []string) {
	for _, action := range w.client.Actions() {
		switch action := action.(type) {
		case clienttesting.CreateActionImpl:
			if action.Subresource == "eviction" {
				names = append(names, action.Object.(metav1.Object).GetName())
			}
		case clienttesting.DeleteActionImpl:
			if action.Resource.Resource == "pods" {
				names = append(names, action.Name)
			}
		}
	}
	return names
}
