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

// jobStory is a story with jobs in it. Each of them has a pool of its own, so that they can share a world.
type jobStory struct {
	*story
	objects    dynamic.Interface
	autoscaler *rig.Autoscaler
	stage      *stage
}

// stage is who is played in a world: each operator once, whatever parts of the story need it.
type stage struct {
	t       *testing.T
	mu      sync.Mutex
	playing map[string]bool
}

// tellOfJobs starts a world with a pool for each name, a machine that is no spot instance, and the autoscaler.
func tellOfJobs(t *testing.T, pools ...string) *jobStory {
	t.Helper()
	s := tellOfJobsAlone(t, world(), pools...)
	s.lead()
	return s
}

// lead runs the autoscaler, or another one, which notices reclaims within a second.
func (s *jobStory) lead(flags ...string) {
	s.t.Helper()
	s.autoscaler = s.RunAutoscaler(s.t, append([]string{"--reclaim-notice-period=" + jobNotice.String(), "--reclaim-poll-interval=1s"}, flags...)...)
}

// tellOfJobsAlone is tellOfJobs in a world that is given, and without the autoscaler.
func tellOfJobsAlone(t *testing.T, w alisim.World, pools ...string) *jobStory {
	t.Helper()
	w.NoticePeriod = metav1.Duration{Duration: jobNotice}
	for _, name := range pools {
		w.Pools = append(w.Pools, jobPool(name))
	}
	s := &jobStory{story: tell(t, w), stage: &stage{t: t, playing: map[string]bool{}}}
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

// jobPool sells instances of one GPU, whose Nodes carry the label pool=<name>.
func jobPool(name string) alisim.Pool {
	pool := single("asg-"+name, 24)
	pool.Tags["k8s.io/cluster-autoscaler/node-template/label/pool"] = name
	return pool
}

// in tells a part of the story beside others.
func (s *jobStory) in(t *testing.T) *jobStory {
	t.Helper()
	t.Parallel()
	part := *s.story
	part.t = t
	return &jobStory{story: &part, objects: s.objects, autoscaler: s.autoscaler, stage: s.stage}
}

// systemsOf are the systems, by the names of their adapters, that come with an operator.
var systemsOf = map[string][]string{
	"et-operator": {"trainingjob"}, "mpi-operator": {"mpijob"}, "jobset": {"jobset"}, "dlrover": {"dlrover"},
	"aitraining-operator": {"aitrainingjob"}, "kuberay": {"raycluster", "rayjob"}, "volcano": {"vcjob"},
}

// play installs a job system while the autoscaler runs, and plays its operator until the world ends. It returns when the
// autoscaler knows: a job that is reclaimed before is drained like any pods.
func (s *jobStory) play(operator func(*rest.Config) (*standin.Operator, error)) {
	s.t.Helper()
	o, err := operator(s.Cluster.AdminConfig())
	require.NoError(s.t, err)
	s.stage.mu.Lock()
	defer s.stage.mu.Unlock()
	if s.stage.playing[o.Name] {
		return
	}
	require.NoError(s.t, o.Install(s.t.Context(), s.Cluster))
	s.stage.playing[o.Name] = true
	s.eventually(o.Name+" is known", func(ctx context.Context) (bool, error) {
		on, err := s.systems(ctx)
		return on.HasAll(systemsOf[o.Name]...), err
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := o.Run(ctx); err != nil {
			s.stage.t.Error(err)
		}
	})
	s.stage.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// submit applies a manifest.
func (s *jobStory) submit(manifest string) {
	s.t.Helper()
	require.NoError(s.t, s.Cluster.ApplyYAML(s.t.Context(), strings.NewReader(manifest)))
}

// gpuTemplate is that of a pod with one GPU, of the pool. The fields, such as "metadata: {…}", are added to it.
func gpuTemplate(pool string, fields ...string) string {
	return fmt.Sprintf(`{%s spec: {restartPolicy: Never, terminationGracePeriodSeconds: 3, nodeSelector: {pool: %s},
      tolerations: [{operator: Exists}],
      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
        {matchExpressions: [{key: gpu-spot.autoscaling/reclaiming, operator: DoesNotExist}]}]}}},
      containers: [{name: aitj-main, image: train, command: [dlrover-run, "--nnodes=1:2", train.py], resources: {limits: {nvidia.com/gpu: 1}}}]}}`,
		strings.Join(append(fields, ""), ", "), pool)
}

// systemTemplate is that of a pod on the machine that stays.
func systemTemplate(command string) string {
	return fmt.Sprintf(`{spec: {restartPolicy: Never, nodeSelector: {pool: system}, containers: [{name: main, image: train, command: [sh, -c, %q]}]}}`, command)
}

// job reads the object.
func (s *jobStory) job(ctx context.Context, of schema.GroupVersionResource, name string) (*unstructured.Unstructured, error) {
	return s.objects.Resource(of).Namespace(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
}

// field reads a field of the object, such as status.phase; nil where it is not there.
func (s *jobStory) field(of schema.GroupVersionResource, name, path string) any {
	s.t.Helper()
	object, err := s.job(s.t.Context(), of, name)
	require.NoError(s.t, err)
	value, _, err := unstructured.NestedFieldNoCopy(object.Object, strings.Split(path, ".")...)
	require.NoError(s.t, err)
	return value
}

// becomes waits until the field has the value.
func (s *jobStory) becomes(of schema.GroupVersionResource, name, path string, value any) {
	s.t.Helper()
	rig.Eventually(s.t, recovered, fmt.Sprintf("%s of %s is %v", path, name, value), func(ctx context.Context) (bool, error) {
		object, err := s.job(ctx, of, name)
		if err != nil {
			return false, err
		}
		is, _, err := unstructured.NestedFieldNoCopy(object.Object, strings.Split(path, ".")...)
		return is == value, err
	})
}

// whole waits until n pods with the labels run, and no more are there, and returns them by name.
func (s *jobStory) whole(selector string, n int) (pods []corev1.Pod) {
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

// doomed are pods whose nodes are reclaimed.
type doomed struct {
	pods     []corev1.Pod
	deadline time.Time
}

// reclaimUnder gives notice, at once, to the instances that the pods run on.
func (s *jobStory) reclaimUnder(pods ...corev1.Pod) doomed {
	s.t.Helper()
	d := doomed{pods: pods, deadline: time.Now().Add(s.World.NoticePeriod.Duration)}
	for _, pod := range pods {
		node, err := s.Client.CoreV1().Nodes().Get(s.t.Context(), pod.Spec.NodeName, metav1.GetOptions{})
		require.NoError(s.t, err)
		require.NoError(s.t, s.Cloud.Reclaim(node.Spec.ProviderID[strings.LastIndexByte(node.Spec.ProviderID, '.')+1:]))
	}
	return d
}

// left waits until the pods are gone, and fails when their instances are released before.
func (s *jobStory) left(d doomed) {
	s.t.Helper()
	rig.Eventually(s.t, time.Until(d.deadline), "the doomed pods are gone before the release", func(ctx context.Context) (bool, error) {
		list, err := s.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(list.Items, func(pod corev1.Pod) bool { return d.has(pod.UID) }), nil
	})
}

func (d doomed) has(uid types.UID) bool {
	return slices.ContainsFunc(d.pods, func(pod corev1.Pod) bool { return pod.UID == uid })
}

// elsewhere says that none of the pods runs where the doomed ones did.
func (s *jobStory) elsewhere(d doomed, pods []corev1.Pod) {
	s.t.Helper()
	for _, pod := range pods {
		for _, was := range d.pods {
			require.NotEqual(s.t, was.Spec.NodeName, pod.Spec.NodeName, pod.Name)
		}
	}
}

// noted waits for an Event with the reason on the job, n of them counted together.
func (s *jobStory) noted(kind, name, reason string, n int) {
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

// boughtInAll fails unless so many instances were bought in the pool of that name.
func (s *jobStory) boughtInAll(pool string, n int) {
	s.t.Helper()
	assert.Equal(s.t, n, s.boughtSoFar(pool), "instances bought: those that the job needed, and one for each that was reclaimed")
}

// boughtSoFar is how many instances were bought in the pool of that name.
func (s *jobStory) boughtSoFar(pool string) (total int) {
	s.t.Helper()
	for _, purchase := range s.bought(pool) {
		value, err := strconv.Atoi(purchase)
		require.NoError(s.t, err)
		total += value
	}
	return total
}

// systemsOn waits until the autoscaler takes just these job systems to be installed, beside Kubernetes' own.
func (s *jobStory) systemsOn(systems ...string) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("job systems that are on: %v", systems), func(ctx context.Context) (bool, error) {
		on, err := s.systems(ctx)
		return on.Equal(sets.New(append(systems, "job")...)), err
	})
}

// systems are those that the autoscaler takes to be installed.
func (s *jobStory) systems(ctx context.Context) (on sets.Set[string], err error) {
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

// released waits until nothing says any more that the job is held.
func (s *jobStory) released(of schema.GroupVersionResource, name string) {
	s.t.Helper()
	rig.Eventually(s.t, recovered, name+" is no longer held", func(ctx context.Context) (bool, error) {
		job, err := s.job(ctx, of, name)
		return err == nil && job.GetLabels()[labelHeld] == "", err
	})
}

// departures is in which order pods are told to end, and are gone.
type departures struct {
	mu sync.Mutex
	// told and gone are when, counted by what happened before. A pod whose containers have ended counts as gone.
	told, gone map[types.UID]int
	happened   int
	// grace is what the pods were given, in seconds; none for those that were gone at once.
	grace map[types.UID]int64
}

// watchDepartures watches the pods with the labels from now on.
func (s *jobStory) watchDepartures(selector string) *departures {
	s.t.Helper()
	d := &departures{told: map[types.UID]int{}, gone: map[types.UID]int{}, grace: map[types.UID]int64{}}
	factory := informers.NewSharedInformerFactoryWithOptions(s.Client, 0, informers.WithNamespace(metav1.NamespaceDefault),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = selector }))
	informer := factory.Core().V1().Pods().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, obj any) { d.note(obj, false) },
		DeleteFunc: func(obj any) { d.note(obj, true) },
	})
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	factory.Start(ctx.Done())
	s.t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	require.True(s.t, cache.WaitForCacheSync(s.t.Context().Done(), informer.HasSynced))
	return d
}

func (d *departures) note(obj any, gone bool) {
	if lost, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = lost.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.told[pod.UID]; !known && (gone || pod.DeletionTimestamp != nil) {
		d.happened++
		d.told[pod.UID] = d.happened
		if !gone && pod.DeletionGracePeriodSeconds != nil {
			d.grace[pod.UID] = *pod.DeletionGracePeriodSeconds
		}
	}
	ended := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
	if _, known := d.gone[pod.UID]; !known && (gone || ended) {
		d.happened++
		d.gone[pod.UID] = d.happened
	}
}

// gracefully fails unless the pod was given time to end.
func (d *departures) gracefully(t *testing.T, pod corev1.Pod) {
	t.Helper()
	d.await(t, pod)
	d.mu.Lock()
	defer d.mu.Unlock()
	require.NotZero(t, d.grace[pod.UID], "%s was given no grace", pod.Name)
}

// inOrder fails unless each pod was told to end only after the one before it was gone.
func (d *departures) inOrder(t *testing.T, pods ...corev1.Pod) {
	t.Helper()
	d.await(t, pods...)
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range len(pods) - 1 {
		require.Less(t, d.gone[pods[i].UID], d.told[pods[i+1].UID], "%s was told to end before %s was gone", pods[i+1].Name, pods[i].Name)
	}
}

// await waits until it was seen that the pods are gone.
func (d *departures) await(t *testing.T, pods ...corev1.Pod) {
	t.Helper()
	rig.Eventually(t, soon, "the pods were seen to go", func(context.Context) (bool, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		return !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return d.gone[pod.UID] == 0 }), nil
	})
}
