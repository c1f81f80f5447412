package alisim

import (
	"cmp"
	"slices"
)

// ordered is a thing that was made in the cloud, with its place in the order of making.
type ordered interface {
	comparable
	ordinal() uint64
}

// roster lists things in the order in which they were made, so that a page of thousands costs no more than the page.
// Adding and removing move at most the pointers behind the place.
type roster[T ordered] struct{ items []T }

func (r *roster[T]) place(ordinal uint64) (int, bool) {
	return slices.BinarySearchFunc(r.items, ordinal, func(item T, ordinal uint64) int {
		return cmp.Compare(item.ordinal(), ordinal)
	})
}

// add is idempotent.
func (r *roster[T]) add(item T) {
	if at, found := r.place(item.ordinal()); !found {
		r.items = slices.Insert(r.items, at, item)
	}
}

// remove does nothing where the item is not listed.
func (r *roster[T]) remove(item T) {
	if at, found := r.place(item.ordinal()); found {
		r.items = slices.Delete(r.items, at, at+1)
	}
}

func (r *roster[T]) len() int { return len(r.items) }

// after returns at most size items that were made after the one with the given ordinal, and whether there are more.
func (r *roster[T]) after(ordinal uint64, size int) (items []T, more bool) {
	from, found := r.place(ordinal)
	if found {
		from++
	}
	rest := r.items[from:]
	if len(rest) > size {
		return rest[:size], true
	}
	return rest, false
}

// page cuts one page out of items; numbers begin at 1. Pages past the end are empty.
func page[T any](items []T, number, size int) []T {
	from := min((number-1)*size, len(items))
	return items[from:min(from+size, len(items))]
}
