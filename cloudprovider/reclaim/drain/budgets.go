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

// budgets keep evictions from being requested that the API server would refuse, going by the PodDisruptionBudgets that the
// informer shows. In a reclaim of a thousand Nodes such requests were half of all. It is safe for concurrent use.
type budgets struct {
	cluster *cluster.Cluster
	clock   clock.PassiveClock

	mu sync.Mutex
	// taken are by budget.
	taken map[types.UID]taken
	// waiting are the Nodes whose pods wait for a budget.
	waiting map[types.UID]sets.Set[string]
}

// taken is how many evictions were requested of those that one version of a budget allows.
type taken struct {
	version   string
	evictions int32
	// asked is when the last of them was, whatever the version.
	asked time.Time
}

func newBudgets(c *cluster.Cluster, clk clock.PassiveClock) *budgets {
	return &budgets{cluster: c, clock: clk, taken: map[types.UID]taken{}, waiting: map[types.UID]sets.Set[string]{}}
}

// only returns the budget of the pod, nil if it has none. A pod that has several cannot be evicted, and one that is not ready is
// evicted whatever its budget allows, if that has enough others or says so: both are left to the API server.
// Source: EvictionREST.Create of pkg/registry/core/pod/storage.
func (b *budgets) only(pod *corev1.Pod) *policyv1.PodDisruptionBudget {
	all := b.cluster.BudgetsOf(pod)
	if len(all) != 1 || isNotReady(pod) {
		return nil
	}
	return all[0]
}

// isNotReady goes by a condition that says so: that of a pod that is ready is not kept by the informers of this process.
func isNotReady(pod *corev1.Pod) bool {
	_, ready := podutil.GetPodCondition(&pod.Status, corev1.PodReady)
	return pod.Status.Phase == corev1.PodPending || ready != nil && ready.Status != corev1.ConditionTrue
}

// take counts an eviction of the pod that is requested now, if its budget allows that. Otherwise it returns when the eviction is to be
// requested at the latest, and the pod's Node is among those that changed returns once the budget allows more.
func (b *budgets) take(pod *corev1.Pod) (again time.Time, taken bool) {
	budget := b.only(pod)
	if budget == nil {
		return time.Time{}, true
	}
	now := b.clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.taken[budget.UID]
	if t.version != budget.ResourceVersion {
		t.version, t.evictions = budget.ResourceVersion, 0
	}
	if t.evictions >= allowedBy(budget) && now.Sub(t.asked) < askAnyway {
		if b.waiting[budget.UID] == nil {
			b.waiting[budget.UID] = sets.New[string]()
		}
		b.waiting[budget.UID].Insert(pod.Spec.NodeName)
		return t.asked.Add(askAnyway), false
	}
	t.evictions++
	t.asked = now
	b.taken[budget.UID] = t
	return time.Time{}, true
}

// allowedBy returns how many pods may be evicted. A budget whose status is older than its spec allows none.
// Source: checkAndDecrement of pkg/registry/core/pod/storage.
func allowedBy(budget *policyv1.PodDisruptionBudget) int32 {
	if budget.Status.ObservedGeneration < budget.Generation {
		return 0
	}
	return budget.Status.DisruptionsAllowed
}

// changed returns the Nodes whose pods wait for the budget, if that allows evictions or is gone.
func (b *budgets) changed(budget *policyv1.PodDisruptionBudget) []string {
	gone := !b.cluster.HasBudget(budget)
	b.mu.Lock()
	defer b.mu.Unlock()
	if gone {
		delete(b.taken, budget.UID)
	} else if allowedBy(budget) == 0 {
		return nil
	}
	nodes := b.waiting[budget.UID]
	delete(b.waiting, budget.UID)
	return sets.List(nodes)
}

// forget drops the Node from those that wait.
func (b *budgets) forget(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for budget, nodes := range b.waiting {
		if nodes.Delete(node); nodes.Len() == 0 {
			delete(b.waiting, budget)
		}
	}
}

// BudgetChanged returns the Nodes that are to be looked at because of the PodDisruptionBudget.
func (d *Drainer) BudgetChanged(budget *policyv1.PodDisruptionBudget) (nodes []string) {
	return d.budgets.changed(budget)
}
