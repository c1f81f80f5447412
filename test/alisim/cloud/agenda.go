package cloud

import (
	"container/heap"
	"time"
)

// agenda is what the cloud will do by itself, by time. Entries due at the same moment are done in the order they
// were made, which keeps a world deterministic.
type agenda struct {
	entries entries
	made    uint64
}

type entry struct {
	due   time.Time
	order uint64
	do    func(now time.Time)
}

func (a *agenda) add(due time.Time, do func(now time.Time)) {
	a.made++
	heap.Push(&a.entries, entry{due: due, order: a.made, do: do})
}

// next returns when the first entry is due; false where there is none.
func (a *agenda) next() (time.Time, bool) {
	if len(a.entries) == 0 {
		return time.Time{}, false
	}
	return a.entries[0].due, true
}

// pop takes the first entry off if it is due.
func (a *agenda) pop(now time.Time) (func(now time.Time), bool) {
	due, any := a.next()
	if !any || due.After(now) {
		return nil, false
	}
	return heap.Pop(&a.entries).(entry).do, true
}

// entries implements heap.Interface.
type entries []entry

func (e entries) Len() int      { return len(e) }
func (e entries) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e entries) Less(i, j int) bool {
	if e[i].due.Equal(e[j].due) {
		return e[i].order < e[j].order
	}
	return e[i].due.Before(e[j].due)
}
func (e *entries) Push(x any) { *e = append(*e, x.(entry)) }
func (e *entries) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	(*e)[last] = entry{}
	*e = (*e)[:last]
	return x
}
