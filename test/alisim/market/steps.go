package market

import (
	"cmp"
	"slices"
	"time"
)

// step is a value that holds from a market time on.
type step[T any] struct {
	at    time.Duration
	value T
}

// steps are the change points of a value, sorted by time.
type steps[T any] []step[T]

// at returns the last step not after t, false before the first one.
func (s steps[T]) at(t time.Duration) (step[T], bool) {
	i := s.firstAfter(t)
	if i == 0 {
		return step[T]{}, false
	}
	return s[i-1], true
}

// after returns the time of the first step after t, false where there is none.
func (s steps[T]) after(t time.Duration) (time.Duration, bool) {
	i := s.firstAfter(t)
	if i == len(s) {
		return 0, false
	}
	return s[i].at, true
}

func (s steps[T]) firstAfter(t time.Duration) int {
	i, _ := slices.BinarySearchFunc(s, t, func(e step[T], t time.Duration) int {
		if e.at <= t {
			return -1
		}
		return 1
	})
	return i
}

// sort orders the steps by time; of several at one time the last added wins.
func (s steps[T]) sort() {
	slices.SortStableFunc(s, func(a, b step[T]) int { return cmp.Compare(a.at, b.at) })
}

// earlier returns the earlier of two moments that may be missing.
func earlier(a time.Time, aOK bool, b time.Time, bOK bool) (time.Time, bool) {
	if !aOK || (bOK && b.Before(a)) {
		return b, bOK
	}
	return a, aOK
}
