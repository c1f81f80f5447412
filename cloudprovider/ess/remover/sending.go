package remover

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/work"
)

// sending are the calls that remove instances of one pool.
type sending struct {
	*Remover
	poolID string
	// queue are the instances of the calls that are to be sent, in order.
	queue [][]string
	// notYet were refused because of a state that their instances will leave.
	notYet []refusedCall
	delays wait.Backoff
	// failed are the errors by instance.
	failed map[string]error
}

type refusedCall struct {
	ids []string
	err error
}

// removeAll sends as few calls as possible. A call that is refused is divided, so that one instance that cannot be removed does
// not keep the others. An instance that cannot be removed yet is tried again after the others. The errors are by instance.
func (r *Remover) removeAll(ctx context.Context, poolID string, ids []string) map[string]error {
	s := &sending{
		Remover: r, poolID: poolID, queue: slices.Collect(slices.Chunk(ids, alicloud.MaxRemoveBatch)), delays: retries(), failed: map[string]error{},
	}
	for len(s.queue) > 0 {
		chunk := s.queue[0]
		s.queue = s.queue[1:]
		attached, unattached := r.split(chunk)
		switch {
		case len(attached) > 0 && len(unattached) > 0:
			s.insert(attached, unattached)
		case len(unattached) > 0:
			s.settle(ctx, chunk, r.deleteUnattached(ctx, poolID, chunk))
		default:
			s.settle(ctx, chunk, r.removeChunk(ctx, poolID, chunk))
		}
		if len(s.queue) == 0 && len(s.notYet) > 0 {
			s.repeat(ctx)
		}
	}
	return s.failed
}

// insert has calls sent next.
func (s *sending) insert(calls ...[]string) { s.queue = append(calls, s.queue...) }

// settle decides by the outcome of a call what becomes of its instances.
func (s *sending) settle(ctx context.Context, chunk []string, err error) {
	occupied, isOccupied := errors.AsType[*occupiedError](err)
	switch {
	case err == nil:
	case isOccupied:
		s.keep(ctx, chunk, occupied)
	case len(chunk) > 1 && mayConcernOne(err):
		s.insert(divide(chunk, err)...)
	case isNotYet(err) && ctx.Err() == nil:
		s.notYet = append(s.notYet, refusedCall{chunk, err})
	default:
		s.giveUp(ctx, chunk, err)
	}
}

// keep removes only those of the instances on which no pods run.
func (s *sending) keep(ctx context.Context, chunk []string, occupied *occupiedError) {
	klog.FromContext(ctx).Info("Keeping instances of a purchase that came short, because pods run on them by now", "pool", s.poolID,
		"instances", sets.List(occupied.ids))
	s.config.Removals.Keep(s.poolID, occupied.ids)
	if rest := sets.New(chunk...).Difference(occupied.ids); rest.Len() > 0 {
		s.insert(sets.List(rest))
	}
	for id := range occupied.ids {
		s.failed[id] = occupied
	}
}

// giveUp enters that the instances stay.
func (s *sending) giveUp(ctx context.Context, chunk []string, err error) {
	klog.FromContext(ctx).Error(err, "Cannot give back instances", "pool", s.poolID, "instances", chunk)
	s.config.Removals.Refused(s.poolID, chunk, err)
	for _, id := range chunk {
		s.failed[id] = err
	}
}

// repeat has what could not be removed yet sent again after a while. If the context ends meanwhile, the refusal says more than that.
func (s *sending) repeat(ctx context.Context) {
	isOver := work.Sleep(ctx, s.config.Clock, s.delays.Step()) != nil
	for _, call := range s.notYet {
		if isOver {
			s.giveUp(ctx, call.ids, call.err)
		} else {
			s.queue = append(s.queue, call.ids)
		}
	}
	s.notYet = nil
}
