package ess

import "gpu-spot-autoscaler/test/alisim/cloud"

// roll lists members, and counts the spot instances among them.
type roll struct {
	cloud.Roster[*member]
	spot int
}

// Add is idempotent.
func (r *roll) Add(i *member) {
	if _, found := r.Place(i.Ordinal()); !found && i.IsSpot() {
		r.spot++
	}
	r.Roster.Add(i)
}

// Remove does nothing where the member is not listed.
func (r *roll) Remove(i *member) {
	if _, found := r.Place(i.Ordinal()); found && i.IsSpot() {
		r.spot--
	}
	r.Roster.Remove(i)
}

// list shows a member in DescribeScalingInstances, if it is still one.
func (i *member) list() {
	s := i.group.scaling
	if i.lifecycle == "" {
		return
	}
	s.listed.Add(i)
	i.group.listed.Add(i)
	s.listedBy[i.ID] = i
}

// unlist shows it no more.
func (i *member) unlist() {
	s := i.group.scaling
	s.listed.Remove(i)
	i.group.listed.Remove(i)
	delete(s.listedBy, i.ID)
}
