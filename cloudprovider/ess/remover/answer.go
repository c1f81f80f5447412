package remover

import (
	"context"
	"time"

	"gpu-spot-autoscaler/cloudprovider/work"
)

// lastAnswer is how long a request that is under way when its context ends may still take.
const lastAnswer = 5 * time.Second

// untilAnswered sends a request unless ctx has ended. If ctx ends meanwhile, the request has lastAnswer to be answered: the cloud may carry it
// out without anybody to read the answer, and then it would not be written on the Nodes that their instances are being given back.
func (r *Remover) untilAnswered(ctx context.Context, send func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		_ = work.Sleep(own, r.config.Clock, lastAnswer) // ends with the request, too
		cancel()
	})
	defer stop()
	return send(own)
}
