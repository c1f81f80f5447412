package mark

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// noteWorkers is how many Nodes NoteRemovals writes on at the same time.
const noteWorkers = 16

// NoteRemovals writes on all Nodes when ESS last accepted to remove their instances, where that is not written yet. It returns the first error
// after it has tried all of them.
func (m *Marker) NoteRemovals(ctx context.Context) error {
	var group errgroup.Group
	group.SetLimit(noteWorkers)
	for _, node := range m.config.Removals.Unwritten() {
		group.Go(func() error { return m.noteRemoved(ctx, node) })
	}
	return group.Wait()
}
