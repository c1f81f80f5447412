package supervisor

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	quota "k8s.io/apiserver/pkg/quota/v1"
)

// quotaError says that a namespace may not have all pods of a job.
type quotaError struct {
	quota, namespace string
	fit, pods        int
}

func (e *quotaError) Error() string {
	return fmt.Sprintf("ResourceQuota %s of namespace %s leaves room for %d of %d pods", e.quota, e.namespace, e.fit, e.pods)
}

// inQuota returns how many of the job's pods the ResourceQuotas of its namespace let in, one after the other, beside the pods
// that exist and those that are offered to other jobs. The error is a quotaError where not all are let in.
func (m *gangMaker) inQuota(j *heldJob, offers *offers, pods []*corev1.Pod) (fit int, err error) {
	quotas, err := m.quotas.ResourceQuotas(j.job.Namespace).List(labels.Everything())
	if err != nil || len(quotas) == 0 {
		return len(pods), err
	}
	fit = len(pods)
	for _, quota := range quotas {
		in, countErr := offers.letIn(quota, j, pods)
		if countErr != nil {
			return 0, countErr
		}
		if in < fit {
			fit, err = in, &quotaError{quota: quota.Name, namespace: quota.Namespace, fit: in, pods: len(pods)}
		}
	}
	return fit, err
}

// offers is what the gangs for which capacity is looked for would use of ResourceQuotas. It is for one look at the held jobs,
// in which it counts the gangs once for each quota.
type offers struct {
	held      heldSet
	evaluator quota.Evaluator
	byQuota   map[types.NamespacedName]*quotaOffers
}

// quotaOffers is what the gangs would use of one quota.
type quotaOffers struct {
	quota *corev1.ResourceQuota
	used  corev1.ResourceList
}

func (m *gangMaker) offers(held heldSet) *offers {
	return &offers{held: held, evaluator: m.evaluator, byQuota: map[types.NamespacedName]*quotaOffers{}}
}

// letIn returns how many of the job's pods the quota lets in, after those that exist and those of other jobs' gangs.
func (o *offers) letIn(bound *corev1.ResourceQuota, j *heldJob, pods []*corev1.Pod) (in int, err error) {
	offered, err := o.of(bound)
	if err != nil {
		return 0, err
	}
	own, err := o.usage(bound, j.gang)
	if err != nil {
		return 0, err
	}
	used := quota.Add(bound.Status.Used, quota.Subtract(offered.used, own))
	for i, pod := range pods {
		usage, err := o.usageOf(bound, pod)
		if err != nil {
			return 0, err
		}
		used = quota.Add(used, usage)
		if allowed, _ := quota.LessThanOrEqual(quota.Mask(used, quota.ResourceNames(usage)), bound.Status.Hard); !allowed {
			return i, nil
		}
	}
	return len(pods), nil
}

// of returns what all gangs of the quota's namespace use of it.
func (o *offers) of(bound *corev1.ResourceQuota) (*quotaOffers, error) {
	name := types.NamespacedName{Namespace: bound.Namespace, Name: bound.Name}
	if known := o.byQuota[name]; known != nil {
		return known, nil
	}
	offered := &quotaOffers{quota: bound}
	for _, j := range o.held {
		if j.job.Namespace != bound.Namespace {
			continue
		}
		usage, err := o.usage(bound, j.gang)
		if err != nil {
			return nil, err
		}
		offered.used = quota.Add(offered.used, usage)
	}
	o.byQuota[name] = offered
	return offered, nil
}

// replace takes in that the job has another gang than before, nil for none.
func (o *offers) replace(j *heldJob, before *gang) {
	if j.gang == before {
		return
	}
	for _, offered := range o.byQuota {
		if offered.quota.Namespace != j.job.Namespace {
			continue
		}
		was, _ := o.usage(offered.quota, before) // counted before without an error, or not at all
		is, _ := o.usage(offered.quota, j.gang)
		offered.used = quota.Add(quota.Subtract(offered.used, was), is)
	}
}

// usage returns what the gang uses of the quota, nothing for no gang.
func (o *offers) usage(bound *corev1.ResourceQuota, g *gang) (used corev1.ResourceList, err error) {
	if g == nil {
		return nil, nil
	}
	for _, pod := range g.pods {
		usage, err := o.usageOf(bound, pod)
		if err != nil {
			return nil, err
		}
		used = quota.Add(used, usage)
	}
	return used, nil
}

// usageOf returns what the pod uses of the quota, as the API server would count it: nothing where the quota is not about it.
func (o *offers) usageOf(bound *corev1.ResourceQuota, pod *corev1.Pod) (corev1.ResourceList, error) {
	matches, err := o.evaluator.Matches(bound, pod)
	if err != nil {
		return nil, fmt.Errorf("ResourceQuota %s: %w", bound.Name, err)
	}
	if !matches {
		return nil, nil
	}
	usage, err := o.evaluator.Usage(pod)
	if err != nil {
		return nil, fmt.Errorf("ResourceQuota %s: %w", bound.Name, err)
	}
	return quota.RemoveZeros(quota.Mask(usage, quota.ResourceNames(bound.Status.Hard))), nil
}
