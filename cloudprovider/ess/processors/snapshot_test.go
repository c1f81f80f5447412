package processors

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot/store"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// pair is our store and core's, which have to answer alike whatever is done to both.
type pair struct {
	ours, core clustersnapshot.ClusterSnapshotStore
	random     *rand.Rand
	depth      int
	made       int
	// all that was ever made, there or not
	nodes []*apiv1.Node
	pods  []*apiv1.Pod
}

func newPair(seed uint64) *pair {
	return &pair{ours: NewSnapshotStore(2), core: store.NewDeltaSnapshotStore(1), random: rand.New(rand.NewPCG(seed, seed))}
}

func repelling(pod *apiv1.Pod) {
	pod.Spec.Affinity = &apiv1.Affinity{PodAntiAffinity: &apiv1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []apiv1.PodAffinityTerm{{
			TopologyKey: apiv1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
		}},
	}}
}

func claiming(pod *apiv1.Pod) {
	pod.Spec.Volumes = []apiv1.Volume{{VolumeSource: apiv1.VolumeSource{
		PersistentVolumeClaim: &apiv1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"},
	}}}
}

func (p *pair) newNode() *apiv1.Node {
	p.made++
	p.nodes = append(p.nodes, newNode(fmt.Sprint("n-", p.made), "cpu", "8"))
	return p.nodes[len(p.nodes)-1]
}

func (p *pair) newPod(options ...podOption) *apiv1.Pod {
	p.made++
	if p.random.IntN(4) == 0 {
		options = append(options, repelling)
	}
	if p.random.IntN(8) == 0 {
		options = append(options, claiming)
	}
	p.pods = append(p.pods, newPod(fmt.Sprint("p-", p.made), options...))
	return p.pods[len(p.pods)-1]
}

func pick[T any](random *rand.Rand, list []T) T { return list[random.IntN(len(list))] }

// step does the same to both, something that core might do, and returns what each said.
func (p *pair) step() (what string, ours, core error) {
	both := func(do func(clustersnapshot.ClusterSnapshotStore) error) (error, error) {
		return do(p.ours), do(p.core)
	}
	switch choice := p.random.IntN(12); {
	case choice == 0:
		what = "fork"
		p.depth++
		p.ours.Fork()
		p.core.Fork()
	case choice == 1 && p.depth > 0:
		what = "revert"
		p.depth--
		p.ours.Revert()
		p.core.Revert()
	case choice == 2 && p.depth > 0:
		what = "commit"
		p.depth--
		ours, core = both(func(s clustersnapshot.ClusterSnapshotStore) error { return s.Commit() })
	case choice == 3:
		node := pick(p.random, p.nodes)
		what = "remove " + node.Name
		ours, core = both(func(s clustersnapshot.ClusterSnapshotStore) error { return s.RemoveSchedulerNodeInfo(node.Name) })
	case choice <= 5:
		node := p.newNode()
		if p.random.IntN(3) == 0 {
			node = pick(p.random, p.nodes)
		}
		info := framework.NewNodeInfo(p.newPod(), p.newPod())
		info.SetNode(node)
		what = "add " + node.Name
		ours, core = both(func(s clustersnapshot.ClusterSnapshotStore) error { return s.AddSchedulerNodeInfo(info) })
	case choice <= 7:
		node, pod := pick(p.random, p.nodes), pick(p.random, p.pods)
		what = "remove " + pod.Name + " from " + node.Name
		ours, core = both(func(s clustersnapshot.ClusterSnapshotStore) error {
			return s.ForceRemovePod(pod.Namespace, pod.Name, node.Name)
		})
	default:
		node, pod := pick(p.random, p.nodes), p.newPod()
		what = "put " + pod.Name + " on " + node.Name
		ours, core = both(func(s clustersnapshot.ClusterSnapshotStore) error { return s.ForceAddPod(pod, node.Name) })
	}
	return what, ours, core
}

// describe tells all that can be asked of a store.
func describe(t *testing.T, s clustersnapshot.ClusterSnapshotStore, nodes []*apiv1.Node) map[string][]string {
	t.Helper()
	told := map[string][]string{}
	tell := func(heading string, infos []*framework.NodeInfo, err error) {
		require.NoError(t, err)
		told[heading] = []string{}
		for _, info := range infos {
			var pods []string
			for _, pod := range info.Pods {
				pods = append(pods, pod.Pod.Name)
			}
			told[heading] = append(told[heading], fmt.Sprint(info.Node().Name, slices.Sorted(slices.Values(pods)), info.Requested.ScalarResources))
		}
		slices.Sort(told[heading])
	}
	lister := s.NodeInfos()
	infos, err := lister.List()
	tell("all", infos, err)
	infos, err = lister.HavePodsWithAffinityList()
	tell("affinity", infos, err)
	infos, err = lister.HavePodsWithRequiredAntiAffinityList()
	tell("anti-affinity", infos, err)
	for _, node := range nodes {
		info, err := lister.Get(node.Name)
		told["get"] = append(told["get"], fmt.Sprint(node.Name, err, err == nil && len(info.Pods) > 0))
	}
	told["claim"] = []string{fmt.Sprint(s.StorageInfos().IsPVCUsedByPods("ml/claim"))}
	return told
}

func TestSnapshotStoreAnswersLikeCoresOwn(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p := newPair(seed)
			for range 3 { // loops
				p.depth = 0
				for range p.random.IntN(10) + 1 {
					p.newNode()
				}
				scheduled := []*apiv1.Pod{p.newPod(onNode("elsewhere"))}
				for range 20 {
					scheduled = append(scheduled, p.newPod(onNode(pick(p.random, p.nodes).Name)))
				}
				for _, s := range []clustersnapshot.ClusterSnapshotStore{p.ours, p.core} {
					require.NoError(t, s.SetClusterState(p.nodes, scheduled, nil))
				}
				for i := range 100 {
					what, ours, core := p.step()
					require.Equal(t, core, ours, "step %d: %s", i, what)
					if p.random.IntN(3) > 0 { // else several steps come between two looks
						require.Equal(t, describe(t, p.core, p.nodes), describe(t, p.ours, p.nodes), "after step %d: %s", i, what)
					}
				}
			}
		})
	}
}

func TestSnapshotStoreKeepsTheOrderOfNodes(t *testing.T) {
	s := NewSnapshotStore(1)
	var nodes []*apiv1.Node
	for i := range 10 {
		nodes = append(nodes, newNode(fmt.Sprint("n-", i)))
	}
	require.NoError(t, s.SetClusterState(nodes, nil, nil))
	before := s.list()
	s.Fork()
	require.NoError(t, s.ForceAddPod(newPod("p"), "n-3"))
	after := s.list()
	s.Revert()
	for i := range before {
		assert.Equal(t, before[i].Node().Name, after[i].Node().Name)
	}
	assert.Empty(t, before[3].Pods, "a list handed out does not change")
	assert.Len(t, after[3].Pods, 1)
	assert.Equal(t, before, s.list())
}

func TestSnapshotStoreSumsUpAPodOnce(t *testing.T) {
	s := NewSnapshotStore(4)
	nodes := []*apiv1.Node{newNode("a"), newNode("b")}
	same, changed := newPod("same", onNode("a")), newPod("changed", onNode("a"))
	require.NoError(t, s.SetClusterState(nodes, []*apiv1.Pod{same, changed}, nil))
	podInfos := func() map[string]*framework.PodInfo {
		infos := map[string]*framework.PodInfo{}
		for _, pod := range s.get("a").Pods {
			infos[pod.Pod.Name] = pod
		}
		return infos
	}
	before := maps.Clone(podInfos())
	moreGPUs := newPod("changed", onNode("a"), requesting(string(resourceGPU), "3"))
	require.NoError(t, s.SetClusterState(nodes, []*apiv1.Pod{same, moreGPUs}, nil))
	after := podInfos()
	assert.Same(t, before["same"], after["same"])
	assert.NotSame(t, before["changed"], after["changed"])
	assert.Equal(t, int64(4), s.get("a").Requested.ScalarResources[resourceGPU])
}
