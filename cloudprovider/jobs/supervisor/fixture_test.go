package supervisor

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/podindex"
	"gpu-spot-autoscaler/cloudprovider/jobs/queues"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
)

// fixture is a fake cluster with jobs and a running Supervisor in a synctest bubble.
type fixture struct {
	*testing.T
	client     *fake.Clientset
	systems    *fakeJobs
	pools      *fakePools
	events     *events
	supervisor *Supervisor
	stop       func()
	wakes      int
	maxGrowth  jobs.Growth
}

// inBubble runs a test in a synctest bubble.
func inBubble(t *testing.T, test func(f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{
			T: t, client: fake.NewClientset(), systems: &fakeJobs{jobs: map[jobs.Ref]jobs.Job{}},
			pools: &fakePools{}, events: &events{}, stop: func() {},
		}
		defer func() { f.stop() }()
		test(f)
	})
}

// start runs a new Supervisor, as a replica does that becomes the leader.
func (f *fixture) start() {
	f.Helper()
	// A resync period, since without one client-go's reflectors wait on a channel from outside the bubble.
	factory := informers.NewSharedInformerFactory(f.client, 24*time.Hour)
	pods, err := podindex.New(factory.Core().V1().Pods().Informer(), f.systems)
	require.NoError(f, err)
	supervisor, err := New(Config{
		Jobs: f.systems, Queues: f.systems, Pools: f.pools, Pods: pods, Client: f.client, Informers: factory, Recorder: f.events, Clock: clock.RealClock{},
		Wake: func() { f.wakes++ }, MaxGrowth: f.maxGrowth,
	})
	require.NoError(f, err)
	f.supervisor = supervisor
	ctx, cancel := context.WithCancel(f.Context())
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	var running sync.WaitGroup
	running.Go(func() { require.NoError(f, supervisor.Run(ctx)) })
	f.stop = func() {
		cancel()
		running.Wait()
		factory.Shutdown()
		f.stop = func() {}
	}
	f.pass(time.Second)
}

// pass moves the clock of the bubble on.
func (f *fixture) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func ref(name string) jobs.Ref {
	return jobs.Ref{System: "fake", NamespacedName: types.NamespacedName{Namespace: "ml", Name: name}}
}

// job creates a job of four workers, or replaces it.
func (f *fixture) job(name string, change ...func(*jobs.Job)) {
	object := &unstructured.Unstructured{Object: map[string]any{"kind": "Fake", "metadata": map[string]any{"namespace": "ml", "name": name}}}
	job := jobs.Job{Ref: ref(name), UID: types.UID(name), Min: 4, Max: 4, Replicas: 4, Recovery: jobs.RecoverFull, Object: object}
	for _, c := range change {
		c(&job)
	}
	f.systems.put(job)
}

func elastic(minimum int) func(*jobs.Job)          { return func(j *jobs.Job) { j.Min = minimum } }
func waiting(limit time.Duration) func(*jobs.Job)  { return func(j *jobs.Job) { j.MaxWait = limit } }
func recovering(how jobs.Recovery) func(*jobs.Job) { return func(j *jobs.Job) { j.Recovery = how } }
func at(replicas int) func(*jobs.Job)              { return func(j *jobs.Job) { j.Replicas = replicas } }
func ended(j *jobs.Job)                            { j.Finished = true }
func resumed(j *jobs.Job)                          { j.Suspended = false }

// madeOf has the pods of another name belong to the job, as those of a RayCluster do to its RayJob.
func madeOf(part string) func(*jobs.Job) {
	return func(j *jobs.Job) { j.Parts = append(j.Parts, ref(part)) }
}

func held(how jobs.HeldAs, reason jobs.HoldReason) func(*jobs.Job) {
	return func(j *jobs.Job) {
		j.Suspended = how == jobs.HeldSuspended
		j.Object.SetLabels(map[string]string{api.LabelHeld: string(how)})
		j.Object.SetAnnotations(map[string]string{
			api.AnnotationHeldReason: string(reason), api.AnnotationHeldSince: time.Now().UTC().Format(time.RFC3339), api.AnnotationHeldReplicas: "4",
		})
	}
}

// pod creates a worker of the job, pending where the node is empty.
func (f *fixture) pod(job, name, node string, change ...func(*corev1.Pod)) {
	f.Helper()
	pod := newPod(job, name, jobs.RoleWorker)
	pod.Spec.NodeName = node
	for _, c := range change {
		c(pod)
	}
	_, err := f.client.CoreV1().Pods("ml").Create(f.Context(), pod, metav1.CreateOptions{})
	require.NoError(f, err)
	synctest.Wait()
}

func newPod(job, name string, role jobs.Role) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ml", Name: name, UID: types.UID(name),
			CreationTimestamp: metav1.NewTime(time.Now().Truncate(time.Second)), // as the API server does
			Labels:            map[string]string{"job": job, "role": string(role)},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")},
		}}}},
	}
}

func (f *fixture) delete(names ...string) {
	f.Helper()
	for _, name := range names {
		require.NoError(f, f.client.CoreV1().Pods("ml").Delete(f.Context(), name, metav1.DeleteOptions{}))
	}
	synctest.Wait()
}

// node creates a node with one GPU.
func (f *fixture) node(name string, change ...func(*corev1.Node)) {
	f.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Now(), Labels: map[string]string{}},
		Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}},
	}
	for _, c := range change {
		c(node)
	}
	_, err := f.client.CoreV1().Nodes().Create(f.Context(), node, metav1.CreateOptions{})
	require.NoError(f, err)
	synctest.Wait()
}

func (f *fixture) updateNode(name string, change func(*corev1.Node)) {
	f.Helper()
	node, err := f.client.CoreV1().Nodes().Get(f.Context(), name, metav1.GetOptions{})
	require.NoError(f, err)
	change(node)
	_, err = f.client.CoreV1().Nodes().Update(f.Context(), node, metav1.UpdateOptions{})
	require.NoError(f, err)
	synctest.Wait()
}

// cordoned returns the names of the nodes that are cordoned.
func (f *fixture) cordoned() (names []string) {
	f.Helper()
	list, err := f.client.CoreV1().Nodes().List(f.Context(), metav1.ListOptions{})
	require.NoError(f, err)
	for _, node := range list.Items {
		if node.Spec.Unschedulable {
			names = append(names, node.Name)
		}
	}
	return names
}

func (f *fixture) abandoned(pod string) bool {
	f.Helper()
	found, err := f.client.CoreV1().Pods("ml").Get(f.Context(), pod, metav1.GetOptions{})
	require.NoError(f, err)
	return f.supervisor.Abandoned(found)
}

// loop does what the autoscaler's loop would do: it finds capacity for so many pods of each gang on nodes that are ready, and
// for some more on nodes that are coming. It returns of how many pods the gangs are.
func (f *fixture) loop(ready, coming int) (asked int) {
	for _, gang := range f.supervisor.Returning() {
		asked += len(gang.Pods)
		r := min(ready, len(gang.Pods))
		f.supervisor.Fits(gang.Ref, podlist.Placement{Ready: gang.Pods[:r], Coming: gang.Pods[r:min(r+coming, len(gang.Pods))]})
	}
	synctest.Wait()
	return asked
}

// fakeJobs is a job system whose jobs have workers and maybe launchers. It knows their pods by labels.
type fakeJobs struct {
	mu        sync.Mutex
	jobs      map[jobs.Ref]jobs.Job
	launchers int
	// annotations are those of the pods of gangs.
	annotations map[string]string
	err         error
	reads       int
	unsynced    bool
	// readErr is the error of Get, gangErr that of Gang, shrinkErr that of CancelStaleShrinks.
	readErr, gangErr, shrinkErr error
	// quotas is what Quotas returns; quotaErr is its error.
	quotas   func() *queues.Quotas
	quotaErr error
	// shrinkLooks counts the calls of CancelStaleShrinks.
	shrinkLooks int
	// calls are what was done, as "<verb> <job> <detail>".
	calls []string
	// onSuspend ends the pods of a job.
	onSuspend func(job string)
}

func (f *fakeJobs) put(job jobs.Job) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.jobs[job.Ref] = job
}

// failGangs has Gang fail, or no longer where the error is nil.
// fail has all calls but Gang fail; nil lets them succeed again.
func (f *fakeJobs) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeJobs) failGangs(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gangErr = err
}

func (f *fakeJobs) Member(pod *corev1.Pod) jobs.Membership {
	if pod.Labels["job"] == "" {
		return jobs.Membership{Ref: jobs.Ref{System: jobs.SystemPod, NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}}, Role: jobs.RoleWorker}
	}
	return jobs.Membership{Ref: ref(pod.Labels["job"]), Role: jobs.Role(pod.Labels["role"])}
}

func (f *fakeJobs) UnitOf(*corev1.Pod) string { return "" }

func (f *fakeJobs) Get(_ context.Context, ref jobs.Ref) (jobs.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if f.readErr != nil {
		return jobs.Job{}, f.readErr
	}
	if job, ok := f.jobs[ref]; ok {
		return job, nil
	}
	for _, job := range f.jobs {
		if slices.Contains(job.Parts, ref) {
			return job, nil
		}
	}
	return jobs.Job{}, fmt.Errorf("read %s: %w", ref, jobs.ErrNoObject)
}

func (f *fakeJobs) HasSynced() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.unsynced
}

// sync has it known, or not, which jobs are held.
func (f *fakeJobs) sync(isKnown bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unsynced = !isKnown
}

func (f *fakeJobs) Held(context.Context) (held []jobs.Job) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, job := range f.jobs {
		if job.Object.GetLabels()[api.LabelHeld] != "" {
			held = append(held, job)
		}
	}
	return held
}

func (f *fakeJobs) Growing() (growing []jobs.Job) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, job := range f.jobs {
		if labels := job.Object.GetLabels(); labels[api.LabelGrow] != "" && labels[api.LabelHeld] == "" {
			growing = append(growing, job)
		}
	}
	return growing
}

func (f *fakeJobs) Gang(job jobs.Job, workers int, limit jobs.MostPods) (pods []*corev1.Pod, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gangErr != nil {
		return nil, f.gangErr
	}
	if most := limit(newPod(job.Name, "probe", jobs.RoleWorker)); workers > most {
		return nil, &jobs.TooManyPodsError{Path: "spec.template", Pods: workers, Most: most, Workers: true}
	}
	for i := range f.launchers {
		pods = append(pods, newPod(job.Name, fmt.Sprintf("%s-launcher-%d", job.Name, i), jobs.RoleLauncher))
	}
	for i := range workers {
		pods = append(pods, newPod(job.Name, fmt.Sprintf("%s-worker-%d", job.Name, i), jobs.RoleWorker))
	}
	for _, pod := range pods {
		pod.Annotations = f.annotations
	}
	return pods, nil
}

func (f *fakeJobs) do(verb string, job jobs.Job, detail any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf("%s %s %v", verb, job.Name, detail))
	return f.err
}

func (f *fakeJobs) Suspend(_ context.Context, job jobs.Job, reason jobs.HoldReason) error {
	if job.Object == nil {
		return jobs.ErrNoObject
	}
	err := f.do("suspend", job, reason)
	if err == nil && f.onSuspend != nil {
		f.onSuspend(job.Name)
	}
	return err
}

func (f *fakeJobs) Resume(_ context.Context, job jobs.Job, workers int) error {
	return f.do("resume", job, workers)
}

func (f *fakeJobs) Quotas(context.Context) (*queues.Quotas, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.quotas == nil || f.quotaErr != nil {
		return nil, f.quotaErr
	}
	return f.quotas(), nil
}

func (f *fakeJobs) Return(_ context.Context, job jobs.Job) error { return f.do("queue", job, "") }

func (f *fakeJobs) Grow(_ context.Context, job jobs.Job, workers int) error {
	return f.do("grow", job, workers)
}

func (f *fakeJobs) GrowBeyond(_ context.Context, job jobs.Job, workers int) error {
	return f.do("grow beyond", job, workers)
}

func (f *fakeJobs) Unhold(_ context.Context, job jobs.Job) error { return f.do("unhold", job, "") }

func (f *fakeJobs) CancelStaleShrinks(context.Context, jobs.Ref) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shrinkLooks++
	return f.shrinkErr
}

// looked returns how often CancelStaleShrinks was called since the last call, and has it return the error from now on.
func (f *fakeJobs) looked(then error) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	looks := f.shrinkLooks
	f.shrinkLooks, f.shrinkErr = 0, then
	return looks
}

// read returns how often a job was read.
func (f *fakeJobs) read() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}

// done returns what was done since the last call.
func (f *fakeJobs) done() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

// fakePools owns every node but the one with the name foreign.
type fakePools struct {
	mu        sync.Mutex
	givenBack []string
	// refusal is what GiveBack returns; keeps is true if the node has to stay, or is of no pool.
	refusal error
	keeps   bool
	// accepts is closed once the cloud accepts removals; nil if it accepts them at once. waiting is how many wait for that.
	accepts chan struct{}
	waiting atomic.Int32
	// most is what MostPods returns, unbounded where it is zero.
	most int
	// read is closed once the pools have been read; nil if they have been all along.
	read chan struct{}
}

func (f *fakePools) FirstRead() <-chan struct{} {
	if f.read != nil {
		return f.read
	}
	read := make(chan struct{})
	close(read)
	return read
}

func (f *fakePools) MostPods(*corev1.Pod) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.most == 0 {
		return math.MaxInt32
	}
	return f.most
}

func (f *fakePools) PoolID(node *corev1.Node) (id string, ours bool) {
	return "asg-1", node.Name != "foreign"
}

func (f *fakePools) MayGiveBack(node *corev1.Node) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return node.Name != "foreign" && !f.keeps && !slices.Contains(f.givenBack, node.Name)
}

func (f *fakePools) IsReclaiming(*corev1.Node) bool { return false }

func (f *fakePools) refuse(err error, keeps bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refusal, f.keeps = err, keeps
}

func (f *fakePools) GiveBack(node *corev1.Node) error {
	if f.accepts != nil {
		f.waiting.Add(1)
		<-f.accepts
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.FirstRead():
	default:
		return ess.ErrNoPool
	}
	if f.refusal != nil {
		return fmt.Errorf("node group: remove instance: %w", f.refusal)
	}
	if !slices.Contains(f.givenBack, node.Name) {
		f.givenBack = append(f.givenBack, node.Name)
	}
	return nil
}

// events records Events as "<reason> <object>".
type events struct {
	record.EventRecorder
	mu       sync.Mutex
	recorded []string
}

func (e *events) Event(object runtime.Object, _, reason, _ string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recorded = append(e.recorded, reason+" "+object.(metav1.Object).GetName())
}

func (e *events) Eventf(object runtime.Object, eventType, reason, _ string, _ ...any) {
	e.Event(object, eventType, reason, "")
}
