package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/cluster"
	"gpu-spot-autoscaler/test/operators"
	"gpu-spot-autoscaler/test/rig"
	"gpu-spot-autoscaler/test/standin"
)

const (
	// jobNotice is how long an instance lives from its notice.
	jobNotice = time.Minute
	// recovered is by when a job is whole again after a reclaim: its pods go first, and then come back.
	recovered = 3 * time.Minute

	labelHeld = "gpu-spot.autoscaling/held"
)

// jobSuite is a suite for tests of training jobs. Each job has a pool of its own, so that subtests can share one cloud.
type jobSuite struct {
	*suite
	objects    dynamic.Interface
	autoscaler *rig.Autoscaler
	operators  *runningOperators
}

// runningOperators are the operators and stand-ins that run in a suite: each once, however many subtests need it.
type runningOperators struct {
	t       *testing.T
	mu      sync.Mutex
	running map[string]bool
}

// newJobSuite starts a cloud with a pool for each name, a Node that is no spot instance, and the autoscaler.
func newJobSuite(t *testing.T, pools ...string) *jobSuite {
	t.Helper()
	s := newJobSuiteWithoutAutoscaler(t, newWorld(), pools...)
	s.runLeader()
	return s
}

// newSharedJobSuite is newJobSuite for a test whose subtests run in parallel. The test itself does not: its cluster would be there, and take
// its share of the cores, as long as its subtests wait for their turn among all others.
func newSharedJobSuite(t *testing.T, pools ...string) *jobSuite {
	t.Helper()
	s := startJobSuite(t, newWorld(), pools...)
	s.runLeader()
	return s
}

// runLeader runs an autoscaler that polls for notices once a second, until the test ends.
func (s *jobSuite) runLeader(flags ...string) {
	s.t.Helper()
	s.autoscaler = s.RunAutoscaler(s.t, append([]string{
		"--reclaim-notice-period=" + jobNotice.String(), "--reclaim-poll-interval=1s",
		"--scale-down-unneeded-time=1m", // longer than the return of a job, whose other nodes are empty until then
	}, flags...)...)
}

// newJobSuiteWithoutAutoscaler is newJobSuite with the given world, and without the autoscaler.
func newJobSuiteWithoutAutoscaler(t *testing.T, w alisim.World, pools ...string) *jobSuite {
	t.Helper()
	t.Parallel()
	return startJobSuite(t, w, pools...)
}

// startJobSuite is newJobSuiteWithoutAutoscaler for a test that does not run in parallel.
func startJobSuite(t *testing.T, w alisim.World, pools ...string) *jobSuite {
	t.Helper()
	return startJobSuiteWith(t, rig.Options{World: w}, pools...)
}

// startJobSuiteWith is startJobSuite with further options.
func startJobSuiteWith(t *testing.T, options rig.Options, pools ...string) *jobSuite {
	t.Helper()
	w := &options.World
	w.NoticePeriod = metav1.Duration{Duration: jobNotice}
	for _, name := range pools {
		w.Pools = append(w.Pools, jobPool(name))
	}
	s := &jobSuite{suite: startSuite(t, options), operators: &runningOperators{t: t, running: map[string]bool{}}}
	var err error
	s.objects, err = dynamic.NewForConfig(s.Cluster.AdminConfig())
	require.NoError(t, err)
	node := cluster.NewFakeNode("system", corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("110"),
	})
	node.Labels["pool"] = "system"
	node.Spec.ProviderID = w.Region + ".i-system"
	require.NoError(t, s.Cluster.CreateNodes(t.Context(), []*corev1.Node{node}))
	return s
}

// jobPool returns a pool of instances with one GPU, whose Nodes carry the label pool=<name>.
func jobPool(name string) alisim.Pool {
	pool := singleOfferingPool("asg-"+name, 24)
	pool.Tags["k8s.io/cluster-autoscaler/node-template/label/pool"] = name
	return pool
}

// subtest returns the suite for a parallel subtest.
func (s *jobSuite) subtest(t *testing.T) *jobSuite {
	t.Helper()
	t.Parallel()
	part := *s.suite
	part.t = t
	return &jobSuite{suite: &part, objects: s.objects, autoscaler: s.autoscaler, operators: s.operators}
}

// systemsOfOperator maps the name of an operator, stand-in or real, to the names of the job systems that are on once it is installed. Kueue
// and the Trainer have none of their own.
var systemsOfOperator = map[string][]string{
	"et-operator": {"trainingjob"}, "mpi-operator": {"mpijob"}, "jobset": {"jobset"}, "dlrover": {"dlrover"},
	"aitraining-operator": {"aitrainingjob"}, "kuberay": {"raycluster", "rayjob"}, "volcano": {"vcjob"},
	"leaderworkerset": {"leaderworkerset"}, "arena-mpi-operator": {"mpijob-v1alpha1"},
}

// runOperator installs the definitions of a job system and runs the stand-in for its operator until the suite ends. It returns when
// the autoscaler has found the system: before that, pods of its jobs are drained like any others.
func (s *jobSuite) runOperator(operator func(*rest.Config) (*standin.Operator, error)) {
	s.t.Helper()
	o, err := operator(s.Cluster.AdminConfig())
	require.NoError(s.t, err)
	s.operators.mu.Lock()
	defer s.operators.mu.Unlock()
	if s.operators.running[o.Name] {
		return
	}
	require.Contains(s.t, systemsOfOperator, o.Name, "say which job systems the operator serves")
	require.NoError(s.t, o.Install(s.t.Context(), s.Cluster))
	s.operators.running[o.Name] = true
	s.eventually(o.Name+" is known", func(ctx context.Context) (bool, error) {
		on, err := s.installedSystems(ctx)
		return on.HasAll(systemsOfOperator[o.Name]...), err
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := o.Run(ctx); err != nil {
			s.operators.t.Error(err)
		}
	})
	s.operators.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// runRealOperator is runOperator for a system whose operator runs as it is.
func (s *jobSuite) runRealOperator(system operators.System) {
	s.t.Helper()
	s.operators.mu.Lock()
	defer s.operators.mu.Unlock()
	if s.operators.running[system.Name] {
		return
	}
	o, err := operators.Start(s.t.Context(), system, operators.Options{
		Cluster: s.Cluster, Dir: s.operators.t.TempDir(), Output: s.t.Output(), RayDashboard: operators.RayDashboardForTest(s.operators.t),
	})
	require.NoError(s.t, err)
	o.StopAfter(s.operators.t)
	s.operators.running[system.Name] = true
	s.eventually(system.Name+" is known", func(ctx context.Context) (bool, error) {
		on, err := s.installedSystems(ctx)
		return on.HasAll(systemsOfOperator[system.Name]...), err
	})
}

// submit applies a manifest. The Trainer's webhook reads runtimes from a cache, and refuses the job of one that has come just before it.
func (s *jobSuite) submit(manifest string) {
	s.t.Helper()
	s.eventually("what the manifest names is known", func(ctx context.Context) (bool, error) {
		err := s.Cluster.ApplyYAML(ctx, strings.NewReader(manifest))
		if err != nil && strings.Contains(err.Error(), "must be created before the TrainJob") {
			return false, err
		}
		require.NoError(s.t, err)
		return true, nil
	})
}

// gpuTemplate returns the template of a pod with one GPU, for Nodes of the pool. The fields, such as "metadata: {…}", are added to it.
func gpuTemplate(pool string, fields ...string) string {
	return fmt.Sprintf(`{%s spec: {restartPolicy: Never, terminationGracePeriodSeconds: 3, nodeSelector: {pool: %s},
      tolerations: [{operator: Exists}],
      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
        {matchExpressions: [{key: gpu-spot.autoscaling/reclaiming, operator: DoesNotExist}]}]}}},
      containers: [{name: aitj-main, image: train, command: [dlrover-run, "--nnodes=1:2", train.py], resources: {limits: {nvidia.com/gpu: 1}}}]}}`,
		strings.Join(append(fields, ""), ", "), pool)
}

// systemTemplate returns the template of a pod on the Node that is no spot instance.
func systemTemplate(command string) string {
	return fmt.Sprintf(`{spec: {restartPolicy: Never, nodeSelector: {pool: system}, containers: [{name: main, image: train, command: [sh, -c, %q]}]}}`, command)
}

// getObject returns the job's object.
func (s *jobSuite) getObject(ctx context.Context, of schema.GroupVersionResource, name string) (*unstructured.Unstructured, error) {
	return s.objects.Resource(of).Namespace(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
}

// field returns a field of the object, such as status.phase; nil if it is not set.
func (s *jobSuite) field(of schema.GroupVersionResource, name, path string) any {
	s.t.Helper()
	object, err := s.getObject(s.t.Context(), of, name)
	require.NoError(s.t, err)
	value, _, err := unstructured.NestedFieldNoCopy(object.Object, strings.Split(path, ".")...)
	require.NoError(s.t, err)
	return value
}

// awaitField waits until the field of the object has the value.
func (s *jobSuite) awaitField(of schema.GroupVersionResource, name, path string, value any) {
	s.t.Helper()
	rig.Eventually(s.t, recovered, fmt.Sprintf("%s of %s is %v", path, name, value), func(ctx context.Context) (bool, error) {
		object, err := s.getObject(ctx, of, name)
		if err != nil {
			return false, err
		}
		is, _, err := unstructured.NestedFieldNoCopy(object.Object, strings.Split(path, ".")...)
		return is == value, err
	})
}

// awaitRunningPods waits until exactly n pods match the selector and all of them run, and returns them by name.
func (s *jobSuite) awaitRunningPods(selector string, n int) (pods []corev1.Pod) {
	s.t.Helper()
	rig.Eventually(s.t, recovered, fmt.Sprintf("%d pods with %s run", n, selector), func(ctx context.Context) (bool, error) {
		list, err := s.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return false, err
		}
		pods = list.Items
		return len(pods) == n && !slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
			return pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil
		}), nil
	})
	return pods
}

// reclaimedPods are pods whose Nodes are reclaiming.
type reclaimedPods struct {
	pods     []corev1.Pod
	deadline time.Time
}

// reclaimNodesOf makes the cloud give notice to the instances that the pods run on, to all at once: one poll is to see all of them.
func (s *jobSuite) reclaimNodesOf(pods ...corev1.Pod) reclaimedPods {
	s.t.Helper()
	var ids []string
	for _, pod := range pods {
		node, err := s.Client.CoreV1().Nodes().Get(s.t.Context(), pod.Spec.NodeName, metav1.GetOptions{})
		require.NoError(s.t, err)
		ids = append(ids, node.Spec.ProviderID[strings.LastIndexByte(node.Spec.ProviderID, '.')+1:])
	}
	d := reclaimedPods{pods: pods, deadline: time.Now().Add(s.World.NoticePeriod.Duration)}
	for _, id := range ids {
		require.NoError(s.t, s.Cloud.Reclaim(id))
	}
	return d
}

// awaitGone waits until the pods are gone, and fails if their instances are released first.
func (s *jobSuite) awaitGone(d reclaimedPods) {
	s.t.Helper()
	rig.Eventually(s.t, time.Until(d.deadline), "the pods of reclaiming nodes are gone before the release", func(ctx context.Context) (bool, error) {
		list, err := s.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(list.Items, func(pod corev1.Pod) bool { return d.has(pod.UID) }), nil
	})
}

func (d reclaimedPods) has(uid types.UID) bool {
	return slices.ContainsFunc(d.pods, func(pod corev1.Pod) bool { return pod.UID == uid })
}

// requireOtherNodes fails if one of the pods runs on a Node that was reclaimed.
func (s *jobSuite) requireOtherNodes(d reclaimedPods, pods []corev1.Pod) {
	s.t.Helper()
	for _, pod := range pods {
		for _, was := range d.pods {
			require.NotEqual(s.t, was.Spec.NodeName, pod.Spec.NodeName, pod.Name)
		}
	}
}

// awaitJobEvent waits until n Events with the reason were recorded on the job.
func (s *jobSuite) awaitJobEvent(kind, name, reason string, n int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%s %s has %d Events %s", kind, name, n, reason), func(ctx context.Context) (bool, error) {
		list, err := s.Client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
			FieldSelector: "reason=" + reason + ",involvedObject.kind=" + kind + ",involvedObject.name=" + name,
		})
		if err != nil {
			return false, err
		}
		seen := 0
		for _, event := range list.Items {
			seen += int(max(event.Count, 1))
		}
		return seen >= n, nil
	})
}

// requireBought fails unless n instances were bought in the pool of that name.
func (s *jobSuite) requireBought(pool string, n int) {
	s.t.Helper()
	assert.Equal(s.t, n, boughtOfPool(s, pool), "instances bought: those that the job needed, and one for each that was reclaimed")
}

// boughtOfPool returns how many instances were bought in the pool of that name.
func boughtOfPool(s *jobSuite, pool string) (total int) {
	s.t.Helper()
	for _, purchase := range s.purchasesOf(pool) {
		value, err := strconv.Atoi(purchase)
		require.NoError(s.t, err)
		total += value
	}
	return total
}

// awaitInstalledSystems waits until the autoscaler reports exactly these job systems as installed, beside Kubernetes' own Jobs.
func awaitInstalledSystems(s *jobSuite, systems ...string) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("job systems that are on: %v", systems), func(ctx context.Context) (bool, error) {
		on, err := s.installedSystems(ctx)
		return on.Equal(sets.New(append(systems, "job")...)), err
	})
}

// installedSystems returns the job systems that the autoscaler reports as installed.
func (s *jobSuite) installedSystems(ctx context.Context) (on sets.Set[string], err error) {
	metrics, err := s.autoscaler.Metrics(ctx)
	if err != nil {
		return nil, err
	}
	on = sets.New[string]()
	for _, metric := range metrics["gpu_spot_job_system_installed"].GetMetric() {
		if metric.GetGauge().GetValue() == 1 {
			on.Insert(metric.GetLabel()[0].GetValue())
		}
	}
	return on, nil
}

// awaitNotHeld waits until the job no longer has the label of a held job.
func (s *jobSuite) awaitNotHeld(of schema.GroupVersionResource, name string) {
	s.t.Helper()
	rig.Eventually(s.t, recovered, name+" is no longer held", func(ctx context.Context) (bool, error) {
		job, err := s.getObject(ctx, of, name)
		return err == nil && job.GetLabels()[labelHeld] == "", err
	})
}

// terminations records in which order pods are deleted and end.
type terminations struct {
	mu sync.Mutex
	// deleted and gone say at which of all observed events each pod was deleted and ended. A pod whose containers have ended
	// counts as gone.
	deleted, gone map[types.UID]int
	events        int
	// grace is the grace period of each pod in seconds; a pod that was gone at once has none.
	grace map[types.UID]int64
}

// watchTerminations records the terminations of pods that match the selector from now on.
func (s *jobSuite) watchTerminations(selector string) *terminations {
	s.t.Helper()
	d := &terminations{deleted: map[types.UID]int{}, gone: map[types.UID]int{}, grace: map[types.UID]int64{}}
	s.followPods(selector, d.observe)
	return d
}

// followPods calls observe with each version of the pods that match the selector until the test ends, one after the other.
func (s *jobSuite) followPods(selector string, observe func(pod *corev1.Pod, gone bool)) {
	s.t.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(s.Client, 0, informers.WithNamespace(metav1.NamespaceDefault),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = selector }))
	informer := factory.Core().V1().Pods().Informer()
	follow := func(obj any, gone bool) {
		if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = last.Obj
		}
		if pod, ok := obj.(*corev1.Pod); ok {
			observe(pod, gone)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { follow(obj, false) },
		UpdateFunc: func(_, obj any) { follow(obj, false) },
		DeleteFunc: func(obj any) { follow(obj, true) },
	})
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	factory.Start(ctx.Done())
	s.t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	require.True(s.t, cache.WaitForCacheSync(s.t.Context().Done(), informer.HasSynced))
}

func (d *terminations) observe(pod *corev1.Pod, gone bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.deleted[pod.UID]; !known && (gone || pod.DeletionTimestamp != nil) {
		d.events++
		d.deleted[pod.UID] = d.events
		if !gone && pod.DeletionGracePeriodSeconds != nil {
			d.grace[pod.UID] = *pod.DeletionGracePeriodSeconds
		}
	}
	ended := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
	if _, known := d.gone[pod.UID]; !known && (gone || ended) {
		d.events++
		d.gone[pod.UID] = d.events
	}
}

// requireGracePeriod fails unless the pod was deleted with a grace period.
func (d *terminations) requireGracePeriod(t *testing.T, pod corev1.Pod) {
	t.Helper()
	d.await(t, pod)
	d.mu.Lock()
	defer d.mu.Unlock()
	require.NotZero(t, d.grace[pod.UID], "%s was deleted without a grace period", pod.Name)
}

// requireOrder fails unless each pod was deleted only after the one before it had ended.
func (d *terminations) requireOrder(t *testing.T, pods ...corev1.Pod) {
	t.Helper()
	d.await(t, pods...)
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range len(pods) - 1 {
		require.Less(t, d.gone[pods[i].UID], d.deleted[pods[i+1].UID], "%s was deleted before %s had ended", pods[i+1].Name, pods[i].Name)
	}
}

// await waits until the pods were seen to end.
func (d *terminations) await(t *testing.T, pods ...corev1.Pod) {
	t.Helper()
	rig.Eventually(t, soon, "the pods were seen to go", func(context.Context) (bool, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		return !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return d.gone[pod.UID] == 0 }), nil
	})
}
