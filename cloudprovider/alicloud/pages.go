package alicloud

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// listConcurrency is how many pages or batches of one listing are fetched at once.
const listConcurrency = 8

// page is one page of a numbered listing.
type page[T any] struct {
	items []T
	// size is how many items a full page holds; the service may grant fewer than were asked for.
	size int
	// total is how many items there were in all when the page was made.
	total int
}

// listing gathers the pages of one listing. Its methods are safe for concurrent use.
type listing[T any] struct {
	fetch func(ctx context.Context, number int) (page[T], error)
	key   func(T) string

	mu    sync.Mutex
	found map[string]T
	// total is that of the page that came last, madeAt the total each page was made under.
	total  int
	madeAt map[int]int
}

// listPages fetches all pages, the first alone and the rest concurrently, and returns what they hold, without
// duplicates, by key.
//
// A listing that changes underway moves items from page to page, so that one could be missed. The pages that were made
// before the change are therefore fetched once more; what both rounds found is kept. An instance that has just gone
// may so be listed for one more round, which is harmless; one that lives is not missed, which would not be.
func listPages[T any](ctx context.Context, size int, key func(T) string, fetch func(ctx context.Context, number int) (page[T], error)) ([]T, error) {
	l := &listing[T]{fetch: fetch, key: key, found: map[string]T{}, madeAt: map[int]int{}}
	first, err := l.get(ctx, 1)
	if err != nil {
		return nil, err
	}
	if first.size > 0 {
		size = first.size
	}
	if err := l.getAll(ctx, l.stale(size)); err != nil {
		return nil, err
	}
	if l.changed() {
		// Replies overtake each other, so which total is the newest only one more request can tell.
		if _, err := l.get(ctx, 1); err != nil {
			return nil, err
		}
		if err := l.getAll(ctx, l.stale(size)); err != nil {
			return nil, err
		}
	}
	return l.items(), nil
}

func (l *listing[T]) get(ctx context.Context, number int) (page[T], error) {
	p, err := l.fetch(ctx, number)
	if err != nil {
		return p, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, item := range p.items {
		l.found[l.key(item)] = item
	}
	l.total = p.total
	l.madeAt[number] = p.total
	return p, nil
}

// changed says whether the pages were made under different totals.
func (l *listing[T]) changed() bool {
	for _, total := range l.madeAt {
		if total != l.total {
			return true
		}
	}
	return false
}

// stale are the pages that are missing, or were made under another total than the last.
func (l *listing[T]) stale(size int) []int {
	var numbers []int
	for n := 1; n <= (l.total+size-1)/size; n++ {
		if made, ok := l.madeAt[n]; !ok || made != l.total {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

func (l *listing[T]) getAll(ctx context.Context, numbers []int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(listConcurrency)
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

// inBatches calls fetch with at most size ids at a time, several at once, and returns all results in the order of the
// ids. Repeated and empty ids are asked for once and not at all.
func inBatches[T any](ctx context.Context, ids []string, size int, fetch func(ctx context.Context, ids []string) ([]T, error)) ([]T, error) {
	var batches [][]string
	for batch := range slices.Chunk(distinct(ids), size) {
		batches = append(batches, batch)
	}
	results := make([][]T, len(batches))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(listConcurrency)
	for i, batch := range batches {
		group.Go(func() (err error) {
			results[i], err = fetch(ctx, batch)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(results...), nil
}

func distinct(ids []string) []string {
	seen := make(map[string]bool, len(ids))
	var out []string
	for _, id := range ids {
		if id != "" && !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out
}
