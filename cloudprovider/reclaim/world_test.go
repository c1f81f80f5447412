package reclaim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/podindex"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/handshake"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/reclaim/poll"
)

func TestMain(m *testing.M) {
	watch.DefaultChanSize = 10_000 // the fake's watches panic where more is waiting
	os.Exit(m.Run())
}

// world is a cluster, a cloud and a running controller inside a synctest bubble: its clock stands still while anything
// is being worked on.
type world struct {
	*testing.T
	client *fake.Clientset
	cloud  *fakeCloud
	// events are "<reason> <object>".
	events   chan string
	notified atomic.Int32

	controller *Controller
	cluster    *cluster.Cluster
	notices    *notice.Store
	removals   *notice.Removals
	stop       func()

	mu sync.Mutex
	// patchesBroken is for breakPatches.
	patchesBroken *atomic.Bool
	// guarded are the pods, by name, that a PodDisruptionBudget protects.
	guarded sets.Set[string]
}

// inBubble runs a test in a bubble of its own. The controller is not started yet.
func inBubble(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			T:       t,
			client:  fake.NewClientset(),
			cloud:   &fakeCloud{instances: map[string]alicloud.Instance{}},
			events:  make(chan string, 10_000),
			guarded: sets.New[string](),
			stop:    func() {},
		}
		w.client.PrependReactor("create", "pods", w.evict)
		defer func() { w.stop() }()
		test(w)
	})
}

// start runs a new controller, as after winning the lease, and lets it see what there is.
func (w *world) start(change ...func(*settings)) {
	w.Helper()
	// A resync period, since without one client-go's reflectors wait on a channel from outside the bubble.
	factory := informers.NewSharedInformerFactory(w.client, 24*time.Hour)
	s := settings{Jobs: soloJobs{}, Config: Config{
		Cloud: w.cloud, Client: w.client, Recorder: recorder{w.events}, OnNotice: func() { w.notified.Add(1) },
	}}
	for _, f := range change {
		f(&s)
	}
	w.cluster = newCluster(w.T, factory, s.Region, s.Jobs)
	var err error
	w.notices, err = notice.NewStore(notice.Config{Cluster: w.cluster, Doubt: notice.DoubtFor(s.PollInterval), MaxUnconfirmed: s.MaxUnconfirmed})
	require.NoError(w, err)
	w.removals = notice.NewRemovals(w.cluster, clock.RealClock{})
	s.Config.Cluster, s.Config.Notices, s.Config.Removals, s.Config.Jobs = w.cluster, w.notices, w.removals, s.Jobs
	controller, err := New(s.Config)
	require.NoError(w, err)
	ctx, cancel := context.WithCancel(w.Context())
	factory.Start(ctx.Done())
	ended := make(chan error, 1)
	go func() { ended <- controller.Run(ctx) }()
	w.controller = controller
	w.stop = func() {
		cancel()
		factory.Shutdown()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			w.Error(err)
		}
		w.stop = func() {}
	}
	w.pass(time.Second)
}

// settings are what a test may change.
type settings struct {
	Config
	Region         string
	MaxUnconfirmed *intstr.IntOrString
	Jobs           interface {
		podindex.Jobs
		handshake.Jobs
	}
}

func newCluster(t *testing.T, factory informers.SharedInformerFactory, region string, systems podindex.Jobs) *cluster.Cluster {
	t.Helper()
	pods, err := podindex.New(factory.Core().V1().Pods().Informer(), systems)
	require.NoError(t, err)
	view, err := cluster.New(factory, pods, region, systems)
	require.NoError(t, err)
	return view
}

// soloJobs is for clusters without job systems: every pod is on its own.
type soloJobs struct{}

func (soloJobs) Member(pod *corev1.Pod) jobs.Membership {
	ref := jobs.Ref{System: jobs.SystemPod, NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}}
	return jobs.Membership{Ref: ref, Role: jobs.RoleWorker}
}

func (soloJobs) UnitOf(*corev1.Pod) string { return "" } // its job is its own already

func (soloJobs) Get(_ context.Context, ref jobs.Ref) (jobs.Job, error) {
	return jobs.Job{}, fmt.Errorf("%s: %w", ref, jobs.ErrNoObject)
}

func (soloJobs) Warn(context.Context, jobs.Job, jobs.Warning) error { return jobs.ErrUnsupported }

func (soloJobs) Shrink(context.Context, jobs.Job, []string) error { return jobs.ErrUnsupported }

func (soloJobs) Shrinking(context.Context, jobs.Ref, []string) ([]string, error) { return nil, nil }

func (soloJobs) CancelShrink(context.Context, jobs.Ref, []string) error { return nil }

func (soloJobs) Stop(context.Context, jobs.Job) (int, error) { return 0, nil }

func (soloJobs) Suspend(context.Context, jobs.Job, jobs.HoldReason) error { return jobs.ErrUnsupported }

// pass lets time go by; nothing in the bubble is left half done.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// poll lets one poll go by.
func (w *world) poll() { w.pass(poll.DefaultInterval) }

// evict is what the API server does with an eviction.
func (w *world) evict(action clienttesting.Action) (handled bool, ret runtime.Object, err error) {
	if action.GetSubresource() != "eviction" {
		return false, nil, nil
	}
	eviction := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
	w.mu.Lock()
	refused := w.guarded.Has(eviction.Name)
	w.mu.Unlock()
	if refused {
		return true, nil, refusedByPDB()
	}
	return true, nil, w.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), eviction.Namespace, eviction.Name)
}

func (w *world) protect(pod string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.guarded.Insert(pod)
}

// addNode makes an instance i-<name> and its Node.
func (w *world) addNode(name string, change ...func(*corev1.Node)) {
	w.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"pool": "a"}},
		Spec:       corev1.NodeSpec{ProviderID: "cn-beijing.i-" + name},
	}
	for _, f := range change {
		f(node)
	}
	_, err := w.client.CoreV1().Nodes().Create(w.Context(), node, metav1.CreateOptions{})
	require.NoError(w, err)
	w.cloud.set("i-"+name, "Running")
}

func (w *world) addPod(name, node string, change ...func(*corev1.Pod)) {
	w.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name), CreationTimestamp: metav1.Now()},
		Spec:       corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: ptr.To[int64](30)},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, f := range change {
		f(pod)
	}
	_, err := w.client.CoreV1().Pods("default").Create(w.Context(), pod, metav1.CreateOptions{})
	require.NoError(w, err)
}

func ownedByDaemonSet(pod *corev1.Pod) {
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", APIVersion: "apps/v1", Name: "driver", Controller: ptr.To(true)}}
}

// runAgent puts a pod of the node-agent on each of the nodes.
func (w *world) runAgent(nodes ...string) {
	w.Helper()
	for _, node := range nodes {
		w.addPod("agent-of-"+node, node, ownedByDaemonSet, func(pod *corev1.Pod) {
			pod.Labels = map[string]string{"app.kubernetes.io/component": "node-agent", "app.kubernetes.io/part-of": "gpu-spot-autoscaler"}
		})
	}
}

func mirror(pod *corev1.Pod) {
	pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
}

func succeeded(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }

func grace(d time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.TerminationGracePeriodSeconds = ptr.To(int64(d.Seconds())) }
}

// node is nil where there is none.
func (w *world) node(name string) *corev1.Node {
	w.Helper()
	node, err := w.client.CoreV1().Nodes().Get(w.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(w, err)
	return node
}

func (w *world) updateNode(name string, change ...func(*corev1.Node)) {
	w.Helper()
	node := w.node(name)
	for _, f := range change {
		f(node)
	}
	_, err := w.client.CoreV1().Nodes().Update(w.Context(), node, metav1.UpdateOptions{})
	require.NoError(w, err)
}

// pods are the names of those left, sorted.
func (w *world) pods() []string {
	w.Helper()
	list, err := w.client.CoreV1().Pods("").List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	names := []string{}
	for _, pod := range list.Items {
		names = append(names, pod.Name)
	}
	slices.Sort(names)
	return names
}

// seen are the Events since the last call, sorted.
func (w *world) seen() []string {
	events := []string{}
	for {
		select {
		case event := <-w.events:
			events = append(events, event)
		default:
			slices.Sort(events)
			return events
		}
	}
}

// requests are the verbs and resources that changed something, in order, such as "patch nodes" or "create pods/eviction".
func (w *world) requests() []string {
	var requests []string
	for _, action := range w.client.Actions() {
		if verb := action.GetVerb(); verb != "get" && verb != "list" && verb != "watch" {
			resource := strings.TrimSuffix(action.GetResource().Resource+"/"+action.GetSubresource(), "/")
			requests = append(requests, verb+" "+resource)
		}
	}
	return requests
}

// untracked are the names of the pods that were taken out of the account of the Job controller, in order.
func (w *world) untracked() (pods []string) {
	for _, action := range w.client.Actions() {
		if patch, ok := action.(clienttesting.PatchAction); ok && strings.Contains(string(patch.GetPatch()), batchv1.JobTrackingFinalizer) {
			pods = append(pods, patch.GetName())
		}
	}
	return pods
}

// recorder writes down the reason and the name of the object of each Event.
type recorder struct{ events chan<- string }

var _ record.EventRecorder = recorder{}

func (r recorder) Event(object runtime.Object, _, reason, _ string) {
	name := "?"
	if named, ok := object.(metav1.Object); ok {
		name = named.GetName()
	}
	r.events <- reason + " " + name
}

func (r recorder) Eventf(object runtime.Object, kind, reason, format string, _ ...any) {
	r.Event(object, kind, reason, format)
}

func (r recorder) AnnotatedEventf(object runtime.Object, _ map[string]string, kind, reason, format string, _ ...any) {
	r.Event(object, kind, reason, format)
}

// fakeCloud is Cloud in memory.
type fakeCloud struct {
	mu        sync.Mutex
	instances map[string]alicloud.Instance
	lists     int
	// listErr and askErr fail RecyclingInstances and Instances.
	listErr, askErr error
	// blind leaves RecyclingInstances without an answer, as a filter does that is misspelt; hidden shows nothing to anybody,
	// as without permission.
	blind, hidden bool
	// only are the instances that Instances shows, nil for all.
	only []string
}

func (c *fakeCloud) RecyclingInstances(context.Context) ([]alicloud.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists++
	if c.listErr != nil {
		return nil, c.listErr
	}
	var recycling []alicloud.Instance
	for _, instance := range c.instances {
		if instance.Recycling() && !c.blind && !c.hidden {
			recycling = append(recycling, instance)
		}
	}
	return recycling, nil
}

func (c *fakeCloud) Instances(_ context.Context, ids []string) ([]alicloud.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.askErr != nil {
		return nil, c.askErr
	}
	var found []alicloud.Instance
	for _, id := range ids {
		if instance, ok := c.instances[id]; ok && !c.hidden && (c.only == nil || slices.Contains(c.only, id)) {
			found = append(found, instance)
		}
	}
	return found, nil
}

// polls returns how often the recycling instances were listed.
func (c *fakeCloud) polls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lists
}

func (c *fakeCloud) set(id, status string, locks ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instances[id] = alicloud.Instance{ID: id, Status: status, LockReasons: locks}
}

func (c *fakeCloud) setBlind(blind bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blind = blind
}

func (c *fakeCloud) showOnly(ids ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.only = ids
}

func (c *fakeCloud) setHidden(hidden bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hidden = hidden
}

// stopOnInterruption has the instance of the Node stopped instead of released.
func (c *fakeCloud) stopOnInterruption(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	instance := c.instances["i-"+node]
	instance.InterruptionBehavior = alicloud.InterruptionStop
	c.instances["i-"+node] = instance
}

// buyOnDemand has the instance of the Node be pay-as-you-go.
func (c *fakeCloud) buyOnDemand(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	instance := c.instances["i-"+node]
	instance.SpotStrategy = alicloud.NoSpot
	c.instances["i-"+node] = instance
}

// reclaim gives the instances of these Nodes their notice.
func (c *fakeCloud) reclaim(nodes ...string) {
	for _, node := range nodes {
		c.set("i-"+node, "Running", alicloud.LockRecycling)
	}
}

func (c *fakeCloud) withdraw(node string) { c.set("i-"+node, "Running") }

func (c *fakeCloud) release(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.instances, "i-"+node)
}

func (c *fakeCloud) fail(list, ask error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listErr, c.askErr = list, ask
}
