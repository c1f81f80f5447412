package cluster

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
)

// BudgetsOf returns the PodDisruptionBudgets of the pod.
func (c *Cluster) BudgetsOf(pod *corev1.Pod) []*policyv1.PodDisruptionBudget {
	budgets, err := c.budgets.Lister().GetPodPodDisruptionBudgets(pod)
	if err != nil {
		return nil // it has none
	}
	return budgets
}

// HasBudget returns whether the PodDisruptionBudget still exists, changed or not.
func (c *Cluster) HasBudget(budget *policyv1.PodDisruptionBudget) bool {
	now, err := c.budgets.Lister().PodDisruptionBudgets(budget.Namespace).Get(budget.Name)
	return err == nil && now.UID == budget.UID
}
