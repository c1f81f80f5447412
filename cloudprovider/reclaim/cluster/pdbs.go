package cluster

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
)

// PDBsOf returns the PodDisruptionBudgets of the pod.
func (c *Cluster) PDBsOf(pod *corev1.Pod) []*policyv1.PodDisruptionBudget {
	pdbs, err := c.pdbs.Lister().GetPodPodDisruptionBudgets(pod)
	if err != nil {
		return nil // it has none
	}
	return pdbs
}

// HasPDB returns whether the PodDisruptionBudget still exists, changed or not.
func (c *Cluster) HasPDB(pdb *policyv1.PodDisruptionBudget) bool {
	now, err := c.pdbs.Lister().PodDisruptionBudgets(pdb.Namespace).Get(pdb.Name)
	return err == nil && now.UID == pdb.UID
}
