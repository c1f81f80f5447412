package cluster

import "context"

// Components of a cluster, by the names that [Cluster.Processes] uses too.
const (
	APIServer         = "kube-apiserver"
	Scheduler         = "kube-scheduler"
	ControllerManager = "kube-controller-manager"
	Etcd              = "etcd"
	Kwok              = "kwok"
)

// KillAPIServer ends the API server at once: connections break, and new ones are closed until [Cluster.StartAPIServer].
func (c *Cluster) KillAPIServer(ctx context.Context) error { return c.Kill(ctx, APIServer) }

// StartAPIServer starts the API server again at the same address and returns when it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if err := c.Restart(ctx, APIServer); err != nil {
		return err
	}
	return c.WaitReady(ctx)
}

// Pause stops a component's process until Resume: its connections stay open, and nothing is answered.
func (c *Cluster) Pause(ctx context.Context, component string) error {
	return c.process.do(ctx, "pause", component)
}

// Resume lets a paused component go on.
func (c *Cluster) Resume(ctx context.Context, component string) error {
	return c.process.do(ctx, "resume", component)
}

// Kill ends a component at once and returns when it is gone. Unlike a component that ends by itself it does not take the
// cluster with it.
func (c *Cluster) Kill(ctx context.Context, component string) error {
	return c.process.do(ctx, "stop", component)
}

// Restart starts a component that was killed, without waiting until it is ready.
func (c *Cluster) Restart(ctx context.Context, component string) error {
	return c.process.do(ctx, "start", component)
}
