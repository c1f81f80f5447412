package paging

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"
)

// Batches calls fetch with at most size ids at a time, several calls at once, and returns all results in the order of the
// ids. Ids that repeat are asked for once; empty ids are left out.
func Batches[T any](ctx context.Context, ids []string, size int, fetch func(ctx context.Context, ids []string) ([]T, error)) ([]T, error) {
	var batches [][]string
	for batch := range slices.Chunk(Distinct(ids), size) {
		batches = append(batches, batch)
	}
	results := make([][]T, len(batches))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
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

// Distinct returns the ids in their order, without repetitions and without empty ones.
func Distinct(ids []string) []string {
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
