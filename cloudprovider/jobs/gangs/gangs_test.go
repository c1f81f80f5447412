package gangs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/gangs"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
	"gpu-spot-autoscaler/cloudprovider/jobs/systems"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
)

// newGangs returns Gangs of a fake cluster with the objects, which run until the test ends, and how often they woke the loop.
func newGangs(t *testing.T, documents ...string) (g *gangs.Gangs, wakes *atomic.Int32, f *jobstest.Fixture) {
	g, wakes, f, _ = newGangsWith(t, documents...)
	return g, wakes, f
}

// newGangsWith is newGangs that returns the client of pod groups, too.
func newGangsWith(t *testing.T, documents ...string) (g *gangs.Gangs, wakes *atomic.Int32, f *jobstest.Fixture, client *dynamicfake.FakeDynamicClient) {
	var groups []runtime.Object
	var others []string
	for _, document := range documents {
		if object := jobstest.Parse(t, document); object.GetKind() == "PodGroup" || object.GetKind() == "Pod" {
			groups = append(groups, object)
		} else {
			others = append(others, document)
		}
	}
	f, wakes = jobstest.New(t, systems.All, others...), &atomic.Int32{}
	kinds := map[schema.GroupVersionResource]string{{Version: "v1", Resource: "pods"}: "PodList"}
	kubernetes := fake.NewClientset()
	for _, version := range []string{
		"scheduling.volcano.sh/v1beta1", "scheduling.x-k8s.io/v1alpha1", "scheduling.sigs.k8s.io/v1alpha1", "scheduling.k8s.io/v1alpha2", "scheduling.k8s.io/v1alpha3",
	} {
		group, version, _ := strings.Cut(version, "/")
		kinds[schema.GroupVersionResource{Group: group, Version: version, Resource: "podgroups"}] = "PodGroupList"
		if slices.ContainsFunc(documents, func(document string) bool {
			return group == "scheduling.k8s.io" && strings.Contains(document, group+"/"+version)
		}) {
			kubernetes.Resources = append(kubernetes.Resources, &metav1.APIResourceList{
				GroupVersion: group + "/" + version, APIResources: []metav1.APIResource{{Name: "podgroups"}},
			})
		}
	}
	client = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, groups...)
	g, err := gangs.New(gangs.Config{Jobs: jobs.NewStarts(f.Registry), Dynamic: client, Discovery: kubernetes.Discovery(), Clock: f.Clock, Wake: func() { wakes.Add(1) }})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	return g, wakes, f, client
}

func pod(labels, annotations string, owners ...string) string {
	return "{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {" + labels + "}, annotations: {" + annotations + "}, ownerReferences: [" + strings.Join(owners, ", ") + "]}}"
}

func podGroup(version, spec string) string {
	return "{apiVersion: " + version + ", kind: PodGroup, metadata: {name: train}, spec: {" + spec + "}}"
}

func TestNativeGangs(t *testing.T) {
	const (
		volcano      = "scheduling.k8s.io/group-name: train"
		indexed      = `batch.kubernetes.io/job-completion-index: "0"`
		job          = `{apiVersion: batch/v1, kind: Job, name: train, uid: u, controller: true}`
		ofJobSet     = `jobset.sigs.k8s.io/jobset-name: llm, jobset.sigs.k8s.io/replicatedjob-name: node, jobset.sigs.k8s.io/job-index: "1"`
		ofMPISet     = `jobset.sigs.k8s.io/jobset-name: deepspeed, jobset.sigs.k8s.io/job-index: "0", jobset.sigs.k8s.io/replicatedjob-name: `
		ofPyTorchJob = `training.kubeflow.org/operator-name: pytorchjob-controller, training.kubeflow.org/replica-index: "1"`
		ofMPIJob     = `training.kubeflow.org/operator-name: mpi-operator, training.kubeflow.org/job-name: tf, training.kubeflow.org/job-role: `
		ofRayCluster = `ray.io/cluster: rc, ray.io/node-type: worker`
	)
	controller := func(version, kind, name string) string {
		return "{apiVersion: " + version + ", kind: " + kind + ", name: " + name + ", uid: u, controller: true}"
	}
	jobSet, mpiLauncher := controller("batch/v1", "Job", "llm-node-1"), controller("batch/v1", "Job", "tf-launcher")
	mpiJob, rayCluster := controller("kubeflow.org/v2beta1", "MPIJob", "tf"), controller("ray.io/v1", "RayCluster", "rc")
	pyTorchJob := func(name string) string { return controller("kubeflow.org/v1", "PyTorchJob", name) }
	change := func(document, from, to string) string {
		require.Contains(t, document, from)
		return strings.Replace(document, from, to, 1)
	}
	for name, test := range map[string]struct {
		object, pod string
		want        podlist.NativeGang
	}{
		"a PodGroup of Volcano": {podGroup("scheduling.volcano.sh/v1beta1", "minMember: 4"), pod("", volcano),
			podlist.NativeGang{Name: "ml/podgroups.scheduling.volcano.sh/train", Size: 4}},
		"a PodGroup of Volcano as an elastic vcjob makes it": {podGroup("scheduling.volcano.sh/v1beta1", "minMember: 2, minTaskMember: {worker: 4}"), pod("", volcano),
			podlist.NativeGang{Name: "ml/podgroups.scheduling.volcano.sh/train", Size: 2}},
		"a PodGroup of Volcano for a single pod":  {podGroup("scheduling.volcano.sh/v1beta1", "minMember: 1"), pod("", volcano), podlist.NativeGang{}},
		"a PodGroup of Volcano that there is not": {jobstest.JobSet, pod("", volcano), podlist.NativeGang{}},
		"a PodGroup whose minimum is no number":   {podGroup("scheduling.volcano.sh/v1beta1", "minMember: all"), pod("", volcano), podlist.NativeGang{}},
		"a PodGroup of the coscheduling plugin": {podGroup("scheduling.x-k8s.io/v1alpha1", "minMember: 3"), pod("scheduling.x-k8s.io/pod-group: train", ""),
			podlist.NativeGang{Name: "ml/podgroups.scheduling.x-k8s.io/train", Size: 3}},
		"a PodGroup of Koordinator": {podGroup("scheduling.sigs.k8s.io/v1alpha1", "minMember: 2"), pod("pod-group.scheduling.sigs.k8s.io: train", ""),
			podlist.NativeGang{Name: "ml/podgroups.scheduling.sigs.k8s.io/train", Size: 2}},
		"a pod group of Kueue": {jobstest.JobSet, pod("kueue.x-k8s.io/pod-group-name: g", `kueue.x-k8s.io/pod-group-total-count: "3"`),
			podlist.NativeGang{Name: "ml/kueue.x-k8s.io/pod-group-name/g", Size: 3}},
		"a pod group of Kueue that is admitted as it comes": {jobstest.JobSet,
			pod("kueue.x-k8s.io/pod-group-name: g", `kueue.x-k8s.io/pod-group-total-count: "3", kueue.x-k8s.io/pod-group-fast-admission: "true"`), podlist.NativeGang{}},
		"a pod group of Kueue that serves": {jobstest.JobSet,
			pod("kueue.x-k8s.io/pod-group-name: g", `kueue.x-k8s.io/pod-group-total-count: "3", kueue.x-k8s.io/pod-group-serving: "true"`), podlist.NativeGang{}},
		"an Indexed Job, whose pods may work on their own": {jobstest.IndexedJob, pod("", indexed, job), podlist.NativeGang{}},
		"a JobSet": {jobstest.JobSet, pod(ofJobSet, "", jobSet), podlist.NativeGang{Name: "ml/jobset/llm", Size: 6, IsAssumed: true}},
		"a JobSet in order": {change(jobstest.JobSet, "spec:\n", "spec:\n  startupPolicy: {startupPolicyOrder: InOrder}\n"), pod(ofJobSet, "", jobSet),
			podlist.NativeGang{Name: "ml/jobset/llm/node", Size: 6, IsAssumed: true}},
		"a JobSet of a TrainJob": {jobstest.JobSetOfTrainJob, pod(ofJobSet, "", jobSet), podlist.NativeGang{Name: "ml/jobset/llm", Size: 6, IsAssumed: true}},
		"a node of a TrainJob for MPI": {jobstest.JobSetOfMPITrainJob, pod(ofMPISet+"node", "", controller("batch/v1", "Job", "deepspeed-node-0")),
			podlist.NativeGang{Name: "ml/jobset/deepspeed", Size: 4, IsAssumed: true}},
		"the launcher of a TrainJob for MPI, which trains": {jobstest.JobSetOfMPITrainJob, pod(ofMPISet+"launcher", "", controller("batch/v1", "Job", "deepspeed-launcher-0")),
			podlist.NativeGang{Name: "ml/jobset/deepspeed", Size: 4, IsAssumed: true}},
		"a launcher that other Jobs wait for": {change(jobstest.JobSetOfMPITrainJob, "spec:\n", "spec:\n  startupPolicy: {startupPolicyOrder: InOrder}\n"),
			pod(ofMPISet+"launcher", "", controller("batch/v1", "Job", "deepspeed-launcher-0")), podlist.NativeGang{}},
		"a PyTorchJob": {jobstest.PyTorchJob, pod(ofPyTorchJob, "", pyTorchJob("bert")), podlist.NativeGang{Name: "ml/pytorchjob/bert", Size: 4, IsAssumed: true}},
		"an elastic PyTorchJob": {jobstest.ElasticPyTorchJob, pod(ofPyTorchJob, "", pyTorchJob("imagenet")),
			podlist.NativeGang{Name: "ml/pytorchjob/imagenet", Size: 2, IsAssumed: true}},
		"an elastic MPIJob":                     {jobstest.ElasticMPIJob, pod(ofMPIJob+"worker", "", mpiJob), podlist.NativeGang{Name: "ml/mpijob/tf", Size: 2, IsAssumed: true}},
		"the launcher of an MPIJob comes alone": {jobstest.ElasticMPIJob, pod(ofMPIJob+"launcher", "", mpiLauncher), podlist.NativeGang{}},
		"a TFJob":                               {jobstest.TFJob, pod("", "", controller("kubeflow.org/v1", "TFJob", "ctr")), podlist.NativeGang{Name: "ml/tfjob/ctr", Size: 7, IsAssumed: true}},
		"a JAXJob": {jobstest.JAXJob, pod("", "", controller("kubeflow.org/v1", "JAXJob", "gemma")),
			podlist.NativeGang{Name: "ml/jaxjob/gemma", Size: 3, IsAssumed: true}},
		"workers of an MPIJob of Arena": {jobstest.ArenaMPIJob, pod("mpi_job_name: resnet50", "", controller("apps/v1", "StatefulSet", "resnet50-worker")),
			podlist.NativeGang{Name: "ml/mpijob-v1alpha1/resnet50", Size: 2, IsAssumed: true}},
		"a group of a LeaderWorkerSet": {jobstest.LeaderWorkerSet,
			pod(`leaderworkerset.sigs.k8s.io/name: vllm, leaderworkerset.sigs.k8s.io/group-index: "1"`, "", controller("apps/v1", "StatefulSet", "vllm-1")),
			podlist.NativeGang{Name: "ml/leaderworkerset/vllm/1", Size: 3, IsAssumed: true}},
		"a RayCluster begins with what it has": {jobstest.RayCluster, pod(ofRayCluster, "", rayCluster), podlist.NativeGang{}},
		"a RayCluster that wants to be a gang": {change(jobstest.RayCluster, "uid: uid-rc", `uid: uid-rc, labels: {ray.io/gang-scheduling-enabled: "true"}`), pod(ofRayCluster, "", rayCluster),
			podlist.NativeGang{Name: "ml/raycluster/rc", Size: 3, IsAssumed: true}},
	} {
		t.Run(name, func(t *testing.T) {
			g, _, f := newGangs(t, test.object)
			member := jobstest.ParsePod(t, test.pod)
			f.Eventually(func() bool { return g.Find(member) == test.want }, "the gang is known")
			assert.Equal(t, test.want.Name, g.NameOf(member))
			elsewhere := member.DeepCopy()
			elsewhere.Namespace = "other"
			if test.want.Name != "" {
				assert.True(t, strings.HasPrefix(test.want.Name, "ml/"), "no pod of another namespace can be in a gang of this name")
				assert.NotEqual(t, test.want.Name, g.Find(elsewhere).Name)
			}
		})
	}
}

func TestGangsOfKubernetes(t *testing.T) {
	const ofJob = `apiVersion: v1, kind: Pod, metadata: {name: p, uid: u-p, annotations: {batch.kubernetes.io/job-completion-index: "0"},
		ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: u, controller: true}]}`
	const group = "ml/podgroups.scheduling.k8s.io/train"
	for name, test := range map[string]struct {
		documents []string
		want      podlist.NativeGang
		reads     int
	}{
		"Kubernetes 1.36": {[]string{podGroup("scheduling.k8s.io/v1alpha2", "schedulingPolicy: {gang: {minCount: 4}}"), "{" + ofJob + ", spec: {schedulingGroup: {podGroupName: train}}}"},
			podlist.NativeGang{Name: group, Size: 4}, 1},
		"Kubernetes 1.37": {[]string{podGroup("scheduling.k8s.io/v1alpha3", "schedulingPolicy: {gang: {minCount: 4}}"), "{" + ofJob + ", spec: {schedulingGroup: {podGroupName: train}}}"},
			podlist.NativeGang{Name: group, Size: 4}, 1},
		"a group that is no gang": {[]string{podGroup("scheduling.k8s.io/v1alpha3", "schedulingPolicy: {basic: {}}"), "{" + ofJob + ", spec: {schedulingGroup: {podGroupName: train}}}"},
			podlist.NativeGang{}, 1},
		"a pod of no group":   {[]string{podGroup("scheduling.k8s.io/v1alpha2", "schedulingPolicy: {gang: {minCount: 4}}"), "{" + ofJob + "}"}, podlist.NativeGang{}, 1},
		"without the feature": {[]string{"{" + ofJob + "}"}, podlist.NativeGang{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g, wakes, f, client := newGangsWith(t, test.documents...)
			f.Eventually(func() bool { return wakes.Load() > 0 }, "it is known whether Kubernetes has groups")
			first, second := jobstest.ParsePod(t, "{"+ofJob+"}"), jobstest.ParsePod(t, "{"+strings.Replace(ofJob, "name: p, uid: u-p", "name: q, uid: u-q", 1)+"}")
			f.Eventually(func() bool { return g.Find(first) == test.want }, "the gang is known")
			assert.Equal(t, test.want, g.Find(second), "pods of one controller are in one group")
			assert.Equal(t, test.want.Name, g.NameOf(second))
			reads := 0
			for _, action := range client.Actions() {
				if action.GetResource().Resource == "pods" {
					reads++
				}
			}
			assert.Equal(t, test.reads, reads)
		})
	}
}

func TestNothingIsBoughtBeforeItIsKnownWhetherKubernetesHasGroups(t *testing.T) {
	f := jobstest.New(t, systems.All)
	g, err := gangs.New(gangs.Config{
		Jobs: jobs.NewStarts(f.Registry), Dynamic: dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()), Discovery: fake.NewClientset().Discovery(), Clock: f.Clock, Wake: func() {},
	})
	require.NoError(t, err)
	member := jobstest.ParsePod(t, pod("", ""))
	assert.Equal(t, podlist.UnknownSize, g.Find(member).Size)
	assert.Equal(t, g.Find(member).Name, g.NameOf(member))
}

// ofGroup returns a pod of a PodGroup of Volcano.
func ofGroup(t *testing.T, namespace, name string) *corev1.Pod {
	member := jobstest.ParsePod(t, pod("", "scheduling.k8s.io/group-name: "+name))
	member.Namespace = namespace
	return member
}

func TestPodsDoNotWaitForAnObjectThatThereIsNot(t *testing.T) {
	g, wakes, f := newGangs(t)
	member := ofGroup(t, "ml", "train")
	first := g.Find(member)
	assert.Equal(t, podlist.NativeGang{Name: "ml/podgroups.scheduling.volcano.sh/train", Size: podlist.UnknownSize}, first)
	f.Eventually(func() bool { return wakes.Load() == 2 }, "a loop is asked for once it is known that there is no group")
	assert.Equal(t, podlist.NativeGang{}, g.Find(member))
	assert.Empty(t, g.NameOf(member))
}

func TestPodsWaitForAWhileForAnObjectThatCannotBeRead(t *testing.T) {
	g, _, f, client := newGangsWith(t)
	var refused atomic.Int32
	client.PrependReactor("get", "podgroups", func(clienttesting.Action) (bool, runtime.Object, error) {
		refused.Add(1)
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "podgroups"}, "train", errors.New("no role"))
	})
	member := ofGroup(t, "ml", "train")
	assert.Equal(t, podlist.UnknownSize, g.Find(member).Size)
	f.Eventually(func() bool { return refused.Load() > 0 }, "it was tried")
	f.Eventually(func() bool {
		f.Clock.Step(time.Second)
		return g.Find(member) == podlist.NativeGang{}
	}, "its pods are pods like any other after a while")
	assert.Empty(t, g.NameOf(member))
}

func TestAnObjectThatCannotBeReadIsNotReadForEver(t *testing.T) {
	g, _, f, client := newGangsWith(t)
	var refused atomic.Int32
	client.PrependReactor("get", "podgroups", func(clienttesting.Action) (bool, runtime.Object, error) {
		refused.Add(1)
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "podgroups"}, "train", errors.New("no role"))
	})
	g.Find(ofGroup(t, "ml", "train"))
	f.Eventually(func() bool { f.Clock.Step(time.Second); return refused.Load() > 2 }, "it is tried again")
	quiet := func() bool { // for so long that it would have been tried again
		before := refused.Load()
		for range 10 {
			f.Clock.Step(5 * time.Minute)
			time.Sleep(10 * time.Millisecond)
		}
		return refused.Load() == before
	}
	f.Eventually(quiet, "it is forgotten with its pods")
}

// withGroups returns Gangs of a Kubernetes with pod groups, which run until the test ends, a pod of a gang of four, what has
// discovery fail, and counts how often it has, and the client of pods.
func withGroups(t *testing.T, failsAtFirst bool) (
	g *gangs.Gangs, member *corev1.Pod, f *jobstest.Fixture, fails *atomic.Bool, failed *atomic.Int32, client *dynamicfake.FakeDynamicClient,
) {
	const pod = `apiVersion: v1, kind: Pod, metadata: {name: p, uid: u-p, annotations: {batch.kubernetes.io/job-completion-index: "0"},
		ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: u, controller: true}]}`
	f, fails, failed = jobstest.New(t, systems.All), &atomic.Bool{}, &atomic.Int32{}
	fails.Store(failsAtFirst)
	kubernetes := fake.NewClientset()
	kubernetes.Resources = []*metav1.APIResourceList{{GroupVersion: "scheduling.k8s.io/v1alpha3", APIResources: []metav1.APIResource{{Name: "podgroups"}}}}
	kubernetes.PrependReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) {
		if fails.Load() {
			failed.Add(1)
			return true, nil, apierrors.NewInternalError(errors.New("etcd is away"))
		}
		return false, nil, nil
	})
	client = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		{Version: "v1", Resource: "pods"}: "PodList", {Group: "scheduling.k8s.io", Version: "v1alpha3", Resource: "podgroups"}: "PodGroupList",
	}, jobstest.Parse(t, podGroup("scheduling.k8s.io/v1alpha3", "schedulingPolicy: {gang: {minCount: 4}}")), jobstest.Parse(t, "{"+pod+", spec: {schedulingGroup: {podGroupName: train}}}"))
	g, err := gangs.New(gangs.Config{Jobs: jobs.NewStarts(f.Registry), Dynamic: client, Discovery: kubernetes.Discovery(), Clock: f.Clock, Wake: func() {}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	t.Cleanup(func() { cancel(); assert.NoError(t, <-ended) })
	return g, jobstest.ParsePod(t, "{"+pod+"}"), f, fails, failed, client
}

func TestAPodThatIsGoneIsNotReadAgainButForOthersOfItsController(t *testing.T) {
	g, member, f, _, _, client := withGroups(t, false)
	f.Eventually(func() bool { return g.Find(member).Size == 4 }, "the gang is known")
	gone := member.DeepCopy()
	gone.Name, gone.UID, gone.OwnerReferences[0].UID = "gone", "u-gone", "u-other"
	client.ClearActions()
	reads := func() (reads int) {
		for _, action := range client.Actions() {
			if action.GetResource().Resource == "pods" {
				reads++
			}
		}
		return reads
	}
	require.Equal(t, podlist.UnknownSize, g.Find(gone).Size)
	f.Eventually(func() bool { return reads() == 1 }, "read")
	for range 20 {
		f.Clock.Step(time.Minute)
		time.Sleep(5 * time.Millisecond) // for a retry, which there must not be
	}
	assert.Equal(t, 1, reads())
	left := member.DeepCopy()
	left.OwnerReferences[0].UID = "u-other"
	f.Eventually(func() bool { return g.Find(left).Size == 4 }, "the others are in their gang")
}

func TestAFailedDiscoveryForgetsNoPodGroups(t *testing.T) {
	g, member, f, fails, failed, _ := withGroups(t, false)
	f.Eventually(func() bool { return g.Find(member).Size == 4 }, "the gang is known")
	fails.Store(true)
	f.Eventually(func() bool { f.Clock.Step(time.Minute); return failed.Load() > 0 }, "Kubernetes is asked again")
	f.Eventually(func() bool { return g.Find(member).Size == 4 }, "the gang is still known")
}

func TestPodsOfAGroupWaitUntilItIsKnownThatKubernetesHasGroups(t *testing.T) {
	g, member, f, fails, failed, _ := withGroups(t, true)
	f.Eventually(func() bool { return failed.Load() > 0 && g.Find(member).Size == podlist.UnknownSize }, "asked for")
	fails.Store(false)
	waited := time.Duration(0)
	f.Eventually(func() bool {
		f.Clock.Step(100 * time.Millisecond)
		waited += 100 * time.Millisecond
		return g.Find(member).Size == 4
	}, "the gang is known")
	assert.Less(t, waited, time.Minute, "it is asked again soon")
}

func TestPodsOfAGroupWaitForAWhileIfItCannotBeKnownWhetherKubernetesHasGroups(t *testing.T) {
	g, member, f, _, failed, _ := withGroups(t, true)
	f.Eventually(func() bool { return failed.Load() > 0 && g.Find(member).Size == podlist.UnknownSize }, "asked for")
	waited := time.Duration(0)
	f.Eventually(func() bool {
		f.Clock.Step(time.Second)
		waited += time.Second
		return g.Find(member) == podlist.NativeGang{}
	}, "its pods are pods like any other after a while")
	assert.GreaterOrEqual(t, waited, 10*time.Second)
}

func TestATenantWithThousandsOfGroupsDelaysNoOther(t *testing.T) {
	const many = 3000
	g, _, f, client := newGangsWith(t, podGroup("scheduling.volcano.sh/v1beta1", "minMember: 4"))
	var reads atomic.Int32
	var readOfOther atomic.Int32
	client.PrependReactor("get", "podgroups", func(action clienttesting.Action) (bool, runtime.Object, error) {
		n := reads.Add(1)
		if action.GetNamespace() == "ml" {
			readOfOther.CompareAndSwap(0, n)
		}
		return false, nil, nil
	})
	for i := range many {
		g.Find(ofGroup(t, "crowd", fmt.Sprint("group-", i)))
	}
	before := reads.Load()
	f.Eventually(func() bool { return g.Find(ofGroup(t, "ml", "train")).Size == 4 }, "the other tenant's gang is known")
	const workers = 8
	assert.LessOrEqual(t, readOfOther.Load()-before, int32(2*workers), "of %d reads, only those under way and those of one turn came first", many)
	assert.Less(t, reads.Load(), int32(many), "the others still wait")
}
