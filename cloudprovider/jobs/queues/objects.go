package queues

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	quota "k8s.io/apiserver/pkg/quota/v1"
)

// localQueue is the part of a LocalQueue that says where it leads (apis/kueue/v1beta1/localqueue_types.go, 0.12.3).
type localQueue struct {
	Spec struct {
		ClusterQueue string `json:"clusterQueue"`
		StopPolicy   string `json:"stopPolicy"`
	} `json:"spec"`
}

// clusterQueue is the part of a ClusterQueue that says what it has left (apis/kueue/v1beta1/clusterqueue_types.go, 0.12.3).
type clusterQueue struct {
	Spec struct {
		ResourceGroups []struct {
			CoveredResources []corev1.ResourceName `json:"coveredResources"`
			Flavors          []flavorQuotas        `json:"flavors"`
		} `json:"resourceGroups"`
		Cohort           string `json:"cohort"`
		CohortName       string `json:"cohortName"` // in v1beta2
		QueueingStrategy string `json:"queueingStrategy"`
		StopPolicy       string `json:"stopPolicy"`
	} `json:"spec"`
	Status struct {
		FlavorsReservation []flavorQuotas     `json:"flavorsReservation"`
		PendingWorkloads   int64              `json:"pendingWorkloads"`
		Conditions         []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// flavor is the part of a ResourceFlavor that says whether its nodes have a topology (apis/kueue/v1beta1/resourceflavor_types.go, 0.12.3).
type flavor struct {
	Spec struct {
		TopologyName string `json:"topologyName"`
	} `json:"spec"`
}

// flavorQuotas are the quotas of one flavor, or what is reserved of them, borrowed quota included.
type flavorQuotas struct {
	Name      string `json:"name"`
	Resources []struct {
		Name         corev1.ResourceName `json:"name"`
		NominalQuota resource.Quantity   `json:"nominalQuota"`
		Total        resource.Quantity   `json:"total"`
	} `json:"resources"`
}

func decode(object *unstructured.Unstructured, into any) bool {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into) == nil
}

func isStopped(policy string) bool { return policy != "" && policy != "None" }

func (c *clusterQueue) cohort() string {
	if c.Spec.CohortName != "" {
		return c.Spec.CohortName
	}
	return c.Spec.Cohort
}

// admits returns whether Kueue admits jobs of this queue, and none before the one that comes now: in a StrictFIFO queue those that wait hold
// up all behind them (pkg/queue/cluster_queue.go, 0.12.3).
func (c *clusterQueue) admits() bool {
	for _, condition := range c.Status.Conditions {
		if condition.Type == "Active" && condition.Status == metav1.ConditionFalse {
			return false
		}
	}
	return !isStopped(c.Spec.StopPolicy) && (c.Spec.QueueingStrategy != "StrictFIFO" || c.Status.PendingWorkloads == 0)
}

// hasOnly returns whether all flavors of the queue are among those.
func (c *clusterQueue) hasOnly(flavors sets.Set[string]) bool {
	for _, group := range c.Spec.ResourceGroups {
		for _, quotas := range group.Flavors {
			if !flavors.Has(quotas.Name) {
				return false
			}
		}
	}
	return len(c.Spec.ResourceGroups) > 0
}

// left returns the quota of the flavor that is not reserved. It is negative where more is borrowed than that.
func (c *clusterQueue) left(flavor string) corev1.ResourceList {
	left := corev1.ResourceList{}
	for _, group := range c.Spec.ResourceGroups {
		for _, quotas := range group.Flavors {
			if quotas.Name != flavor {
				continue
			}
			for _, of := range quotas.Resources {
				left[of.Name] = of.NominalQuota
			}
		}
	}
	names := quota.ResourceNames(left)
	for _, reserved := range c.Status.FlavorsReservation {
		if reserved.Name != flavor {
			continue
		}
		for _, of := range reserved.Resources {
			left = quota.Subtract(left, quota.Mask(corev1.ResourceList{of.Name: of.Total}, names))
		}
	}
	return left
}
