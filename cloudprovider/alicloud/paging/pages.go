package paging

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Page is one page of a numbered listing.
type Page[T any] struct {
	Items []T
	// Size is how many items a full page holds. The service may return smaller pages than were asked for.
	Size int
	// Total is how many items the whole listing had when the page was made.
	Total int
}

// maxReadings is how often a numbered listing is read before it counts as incomplete.
const maxReadings = 3

// Numbered fetches all pages of the call's listing, the first alone and the others concurrently. It returns their items sorted by
// key and without duplicates. Pages count from 1. size is the expected size of a page, for services that do not say.
//
// A listing that changes meanwhile moves items from page to page, so that one could be missed. If the totals of the pages show
// a change, the pages that were made before it are fetched once more, and the items of both rounds are returned. So an item that
// has just disappeared may be listed once too often. If fewer items were found than there were all the time, everything is read
// again, and finally the error says so. Only a change that leaves the total as it was, as one item in place of another, may hide
// an item.
func Numbered[T any](ctx context.Context, call Call, size int, key func(T) string,
	fetch func(ctx context.Context, number int) (Page[T], error)) ([]T, error) {
	var l *listing[T]
	for range maxReadings {
		l = &listing[T]{fetch: fetch, key: key, found: map[string]T{}, totals: map[int]int{}}
		if err := l.read(ctx, size); err != nil {
			return nil, err
		}
		if len(l.found) >= l.least {
			return l.items(), nil
		}
	}
	return nil, call.incomplete("the pages have %d items of %d", len(l.found), l.least)
}

// listing collects the pages of one listing. get and getAll are safe for concurrent use.
type listing[T any] struct {
	fetch func(ctx context.Context, number int) (Page[T], error)
	key   func(T) string

	mu    sync.Mutex
	found map[string]T
	// total is the Total of the page that was received last, totals that of each page, and least the smallest ever.
	total  int
	totals map[int]int
	least  int
}

// read fetches all pages, and those again that were made before the listing changed.
func (l *listing[T]) read(ctx context.Context, size int) error {
	first, err := l.get(ctx, 1)
	if err != nil {
		return err
	}
	if first.Size > 0 {
		size = first.Size
	}
	if err := l.getAll(ctx, l.stale(size)); err != nil {
		return err
	}
	if !l.changed() {
		return nil
	}
	// Replies may overtake each other. One more request tells which total is the newest.
	if _, err := l.get(ctx, 1); err != nil {
		return err
	}
	return l.getAll(ctx, l.stale(size))
}

func (l *listing[T]) get(ctx context.Context, number int) (Page[T], error) {
	p, err := l.fetch(ctx, number)
	if err != nil {
		return p, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, item := range p.Items {
		l.found[l.key(item)] = item
	}
	if len(l.totals) == 0 || p.Total < l.least {
		l.least = p.Total
	}
	l.total = p.Total
	l.totals[number] = p.Total
	return p, nil
}

// changed returns whether the pages have different totals.
func (l *listing[T]) changed() bool {
	for _, total := range l.totals {
		if total != l.total {
			return true
		}
	}
	return false
}

// stale returns the pages that are missing or that have another total than the last one received.
func (l *listing[T]) stale(size int) []int {
	var numbers []int
	for n := 1; n <= (l.total+size-1)/size; n++ {
		if total, ok := l.totals[n]; !ok || total != l.total {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

func (l *listing[T]) getAll(ctx context.Context, numbers []int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for _, n := range numbers {
		group.Go(func() error {
			_, err := l.get(ctx, n)
			return err
		})
	}
	return group.Wait()
}

func (l *listing[T]) items() []T {
	items := make([]T, 0, len(l.found))
	for _, item := range l.found {
		items = append(items, item)
	}
	slices.SortFunc(items, func(a, b T) int { return cmp.Compare(l.key(a), l.key(b)) })
	return items
}
