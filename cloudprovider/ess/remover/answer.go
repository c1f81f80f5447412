package remover

import (
	"context"
	"time"

	"gpu-spot-autoscaler/cloudprovider/work"
)

// lastAnswer is for how long a request is waited for that is under way when the process ends. Most take less than a second.
const lastAnswer = 5 * time.Second

// untilAnswered sends a request unless ctx has ended. If it ends meanwhile, the request has lastAnswer to be answered. The cloud carries out one
// that was cut off, too, and it would not be written on the Nodes that their instances are going.
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
