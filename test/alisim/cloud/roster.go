package cloud

import (
	"cmp"
	"slices"
)

// Ordered is a thing that was made in the cloud, with its place in the order of making.
type Ordered interface {
	comparable
	Ordinal() uint64
}

// Roster lists things in the order in which they were made, so that a page of thousands costs no more than the page.
// Adding and removing move at most the pointers behind the place.
type Roster[T Ordered] struct{ Items []T }

// Place returns where the thing with the ordinal stands, or would stand, and whether it is listed.
func (r *Roster[T]) Place(ordinal uint64) (int, bool) {
	return slices.BinarySearchFunc(r.Items, ordinal, func(item T, ordinal uint64) int {
		return cmp.Compare(item.Ordinal(), ordinal)
	})
}

// Add is idempotent.
func (r *Roster[T]) Add(item T) {
	if at, found := r.Place(item.Ordinal()); !found {
		r.Items = slices.Insert(r.Items, at, item)
	}
}

// Remove does nothing where the item is not listed.
func (r *Roster[T]) Remove(item T) {
	if at, found := r.Place(item.Ordinal()); found {
		r.Items = slices.Delete(r.Items, at, at+1)
	}
}

// Len is the number of items.
func (r *Roster[T]) Len() int { return len(r.Items) }

// After returns at most size items that were made after the one with the given ordinal, and whether there are more.
func (r *Roster[T]) After(ordinal uint64, size int) (items []T, more bool) {
	from, found := r.Place(ordinal)
	if found {
		from++
	}
	rest := r.Items[from:]
	if len(rest) > size {
		return rest[:size], true
	}
	return rest, false
}
