package drain

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
)

// askAnyway is how soon an eviction is requested again that the informer says would be refused. The API server decides, and it may
// know better.
const askAnyway = 30 * time.Second

// pdbs keep evictions from being requested that the API server would refuse, going by the PodDisruptionBudgets (PDBs) that
// the informer shows. In a reclaim of a thousand Nodes such requests were half of all. It is safe for concurrent use.
type pdbs struct {
	cluster *cluster.Cluster
	clock   clock.PassiveClock

	mu sync.Mutex
	// requested are by PDB.
	requested map[types.UID]requests
	// waiting are the Nodes whose pods wait for a PDB.
	waiting map[types.UID]sets.Set[string]
}

// requests are the evictions that were requested of those that one version of a PDB allows.
type requests struct {
	version   string
	evictions int32
	// last is when the last of them was, whatever the version.
	last time.Time
}

func newPDBs(c *cluster.Cluster, clk clock.PassiveClock) *pdbs {
	return &pdbs{cluster: c, clock: clk, requested: map[types.UID]requests{}, waiting: map[types.UID]sets.Set[string]{}}
}

// only returns the PDB of the pod, nil if it has none. A pod that has several cannot be evicted, and one that is not ready is
// evicted whatever its PDB allows, if that has enough others or says so: both are left to the API server.
// Source: EvictionREST.Create of pkg/registry/core/pod/storage.
func (b *pdbs) only(pod *corev1.Pod) *policyv1.PodDisruptionBudget {
	all := b.cluster.PDBsOf(pod)
	if len(all) != 1 || isNotReady(pod) {
		return nil
	}
	return all[0]
}

// isNotReady returns whether the pod is known not to be ready. A pod without the condition counts as ready: the informers of this
// process keep the condition only of pods that are not.
func isNotReady(pod *corev1.Pod) bool {
	_, ready := podutil.GetPodCondition(&pod.Status, corev1.PodReady)
	return pod.Status.Phase == corev1.PodPending || ready != nil && ready.Status != corev1.ConditionTrue
}

// take counts an eviction of the pod that is requested now, if its PDB allows that. Otherwise it returns when the eviction is to be
// requested at the latest, and the pod's Node is among those that changed returns once the PDB allows more.
func (b *pdbs) take(pod *corev1.Pod) (again time.Time, allowed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	pdb := b.only(pod) // under the lock: changed comes after what it shows, and finds the Node that waits
	if pdb == nil {
		return time.Time{}, true
	}
	now := b.clock.Now()
	r := b.requested[pdb.UID]
	if r.version != pdb.ResourceVersion {
		r.version, r.evictions = pdb.ResourceVersion, 0
	}
	if r.evictions >= allowedBy(pdb) && now.Sub(r.last) < askAnyway {
		if b.waiting[pdb.UID] == nil {
			b.waiting[pdb.UID] = sets.New[string]()
		}
		b.waiting[pdb.UID].Insert(pod.Spec.NodeName)
		return r.last.Add(askAnyway), false
	}
	r.evictions++
	r.last = now
	b.requested[pdb.UID] = r
	return time.Time{}, true
}

// giveBack takes an eviction out of the count that failed for another reason than the PDB.
func (b *pdbs) giveBack(pod *corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	pdb := b.only(pod)
	if pdb == nil {
		return
	}
	if r := b.requested[pdb.UID]; r.version == pdb.ResourceVersion && r.evictions > 0 {
		r.evictions--
		b.requested[pdb.UID] = r
	}
}

// allowedBy returns how many pods may be evicted. A PDB whose status is older than its spec allows none.
// Source: checkAndDecrement of pkg/registry/core/pod/storage.
func allowedBy(pdb *policyv1.PodDisruptionBudget) int32 {
	if pdb.Status.ObservedGeneration < pdb.Generation {
		return 0
	}
	return pdb.Status.DisruptionsAllowed
}

// changed returns the Nodes whose pods wait for the PDB, if that allows evictions or is gone.
func (b *pdbs) changed(pdb *policyv1.PodDisruptionBudget) []string {
	gone := !b.cluster.HasPDB(pdb)
	b.mu.Lock()
	defer b.mu.Unlock()
	if gone {
		delete(b.requested, pdb.UID)
	} else if allowedBy(pdb) == 0 {
		return nil
	}
	nodes := b.waiting[pdb.UID]
	delete(b.waiting, pdb.UID)
	return sets.List(nodes)
}

// forget forgets that the Node waits.
func (b *pdbs) forget(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for pdb, nodes := range b.waiting {
		if nodes.Delete(node); nodes.Len() == 0 {
			delete(b.waiting, pdb)
		}
	}
}

// PDBChanged returns the Nodes that are to be looked at because of the PodDisruptionBudget.
func (d *Drainer) PDBChanged(pdb *policyv1.PodDisruptionBudget) (nodes []string) {
	return d.pdbs.changed(pdb)
}
