package scaling

import "gpu-spot-autoscaler/test/alisim/cloud"

// Listing lists members, and counts the spot instances among them.
type Listing struct {
	cloud.Roster[*Member]
	// Spot is how many of them are spot instances.
	Spot int
}

// Add is idempotent.
func (r *Listing) Add(i *Member) {
	if _, found := r.Place(i.Ordinal()); !found && i.IsSpot() {
		r.Spot++
	}
	r.Roster.Add(i)
}

// Remove does nothing where the member is not listed.
func (r *Listing) Remove(i *Member) {
	if _, found := r.Place(i.Ordinal()); found && i.IsSpot() {
		r.Spot--
	}
	r.Roster.Remove(i)
}

// list shows a member in DescribeScalingInstances, if it is still one.
func (i *Member) list() {
	s := i.Group.scaling
	if i.Lifecycle == "" {
		return
	}
	s.listed.Add(i)
	i.Group.Listed.Add(i)
	s.listedBy[i.ID] = i
}

// unlist shows it no more.
func (i *Member) unlist() {
	s := i.Group.scaling
	s.listed.Remove(i)
	i.Group.Listed.Remove(i)
	delete(s.listedBy, i.ID)
}
