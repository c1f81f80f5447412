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

// ranked is a queue from which the item of the least rank is taken first. The rank is the one that the item had when it was added.
// The workqueue calls it under a lock, and adds no item that is in it already.
type ranked[T comparable] struct {
	rank  func(T) Rank
	items items[T]
}

func (q *ranked[T]) Touch(T)     {}
func (q *ranked[T]) Push(item T) { heap.Push(&q.items, entry[T]{item, q.rank(item)}) }
func (q *ranked[T]) Len() int    { return len(q.items) }
func (q *ranked[T]) Pop() T      { return heap.Pop(&q.items).(entry[T]).item }

type entry[T any] struct {
	item T
	rank Rank
}

// items is a heap.
type items[T any] []entry[T]

func (s items[T]) Len() int           { return len(s) }
func (s items[T]) Less(i, j int) bool { return s[i].rank.compare(s[j].rank) < 0 }
func (s items[T]) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *items[T]) Push(x any)        { *s = append(*s, x.(entry[T])) }

func (s *items[T]) Pop() any {
	last := len(*s) - 1
	item := (*s)[last]
	(*s)[last] = entry[T]{} // so that nothing is kept alive
	*s = (*s)[:last]
	return item
}
