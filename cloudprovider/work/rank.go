package work

import (
	"cmp"
	"container/heap"
	"time"
)

// Rank is the place of an item in its queue. Items of a mass reclaim that have the same deadline keep the order of their names at
// every step, so that the first Nodes are empty long before the last.
type Rank struct {
	// Later is true for what goes after everything else.
	Later    bool
	Deadline time.Time
	Name     string
}

func (r Rank) compare(other Rank) int {
	if r.Later != other.Later {
		if r.Later {
			return 1
		}
		return -1
	}
	return cmp.Or(r.Deadline.Compare(other.Deadline), cmp.Compare(r.Name, other.Name))
}

// ranked is a queue from which the item of the least rank is taken first. The rank is the one that the item had when it was last added.
// The workqueue calls it under a lock, and pushes no item that is in it already.
type ranked[T comparable] struct {
	rank  func(T) Rank
	items items[T]
}

func newRanked[T comparable](rank func(T) Rank) *ranked[T] {
	return &ranked[T]{rank: rank, items: items[T]{places: map[T]int{}}}
}

// Touch moves an item that is added again to where it belongs by now: its deadline may have been corrected.
func (q *ranked[T]) Touch(item T) {
	if place, waits := q.items.places[item]; waits {
		q.items.entries[place].rank = q.rank(item)
		heap.Fix(&q.items, place)
	}
}

func (q *ranked[T]) Push(item T) { heap.Push(&q.items, entry[T]{item, q.rank(item)}) }
func (q *ranked[T]) Len() int    { return q.items.Len() }
func (q *ranked[T]) Pop() T      { return heap.Pop(&q.items).(entry[T]).item }

type entry[T any] struct {
	item T
	rank Rank
}

// items is a heap that knows the place of each item.
type items[T comparable] struct {
	entries []entry[T]
	places  map[T]int
}

func (s *items[T]) Len() int           { return len(s.entries) }
func (s *items[T]) Less(i, j int) bool { return s.entries[i].rank.compare(s.entries[j].rank) < 0 }

func (s *items[T]) Swap(i, j int) {
	s.entries[i], s.entries[j] = s.entries[j], s.entries[i]
	s.places[s.entries[i].item], s.places[s.entries[j].item] = i, j
}

func (s *items[T]) Push(x any) {
	e := x.(entry[T])
	s.places[e.item] = len(s.entries)
	s.entries = append(s.entries, e)
}

func (s *items[T]) Pop() any {
	last := len(s.entries) - 1
	e := s.entries[last]
	s.entries[last] = entry[T]{} // so that nothing is kept alive
	s.entries = s.entries[:last]
	delete(s.places, e.item)
	return e
}
