package remover

import (
	"context"

	"github.com/google/uuid"
	"k8s.io/klog/v2"
)

// split tells the instances of scaling groups from those that were bought by RunInstances and are in none yet.
func (r *Remover) split(ids []string) (attached, unattached []string) {
	for _, id := range ids {
		if r.isUnattached(id) {
			unattached = append(unattached, id)
		} else {
			attached = append(attached, id)
		}
	}
	return attached, unattached
}

func (r *Remover) isUnattached(id string) bool { return r.config.Store.Last().Instances[id].Unattached }

// deleteUnattached gives back instances that are in no scaling group, so that ESS cannot remove them. One that ESS is attaching at this moment is
// deleted too, and leaves its scaling group by the health check.
func (r *Remover) deleteUnattached(ctx context.Context, poolID string, ids []string) error {
	token := uuid.NewString()
	call := r.unlessOccupied(ids, func() error {
		return r.untilAnswered(ctx, func(ctx context.Context) error { return r.config.Cloud.Delete(ctx, ids, token) })
	})
	if err := r.retry(ctx, poolID, call, func() error { return nil }); err != nil {
		return err
	}
	r.config.Removals.Accepted(poolID, "", ids)
	klog.FromContext(ctx).Info("Gave back instances that were in no scaling group", "pool", poolID, "instances", ids)
	r.config.Removed(ids)
	return nil
}
