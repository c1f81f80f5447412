package releaseall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/systems"
)

// parallelism is how many requests of a step are under way at once.
const parallelism = 16

// releaser does the work, step by step. Each step may be interrupted at any time and begun again: what is done already is found so.
// Until the last step an autoscaler that is started again goes on with whatever is left.
type releaser struct {
	flags
	clients
	clock    clock.WithTicker
	progress io.Writer
	jobs     *jobs.Registry
	cluster  jobs.Cluster
	systems  []jobs.System

	// contest is why an autoscaler will act that nobody has stopped, empty if none will.
	contest string

	mu     sync.Mutex
	report Report
}

// newReleaser returns a releaser whose Events are recorded as long as ctx lasts.
func newReleaser(ctx context.Context, f flags, c clients, clk clock.WithTicker, progress io.Writer) (r *releaser, err error) {
	r = &releaser{flags: f, clients: c, clock: clk, progress: progress}
	r.report = Report{DryRun: f.dryRun, Namespace: f.namespace, Name: f.name, Jobs: []Job{}, Nodes: []Node{}, ConfigMaps: []string{}, Faults: []string{}, Notes: []string{}}
	r.cluster = jobs.Cluster{Dynamic: c.objects, Client: c.kube, Clock: clk}
	r.systems = systems.All(r.cluster)
	r.jobs, err = jobs.New(jobs.Config{
		Cluster: r.cluster, Systems: r.systems, Metadata: c.metadata, Recorder: &recorder{ctx: ctx, client: c.kube, clock: clk},
	})
	return r, err
}

// run does all of it. The error says why it could not begin or go on; what could not be released is in the report.
func (r *releaser) run(ctx context.Context) error {
	if r.dryRun {
		return r.release(ctx, nil)
	}
	r.say("Stopping the autoscaler %s/%s", r.namespace, r.name)
	if err := r.stopDeployment(ctx); err != nil {
		return err
	}
	lease := newLease(r.kube, r.namespace, r.name, r.clock)
	r.say("Taking the lease %s/%s", r.namespace, r.name)
	rival, err := lease.take(ctx)
	if err != nil {
		return fmt.Errorf("take the lease %s/%s: %w", r.namespace, r.name, err)
	}
	err = lease.hold(ctx, func(ctx context.Context) error {
		if err := lease.awaitEndOf(ctx, rival); err != nil {
			return err
		}
		return r.release(ctx, rival)
	})
	if err != nil {
		return err // the lease expires, and whoever takes it goes on with what is left
	}
	return r.leave(ctx, lease, rival)
}

// release is what is done while no autoscaler acts.
func (r *releaser) release(ctx context.Context, rival *rival) error {
	instances, err := r.readInstances(ctx)
	if err != nil {
		r.fault("The cost ledger cannot be read, so it is not known which instances stay: %v", err)
	}
	for _, step := range []func(context.Context, sets.Set[string]) error{r.unmarkNodes, r.unwarnPods, r.unholdJobs} {
		if err := step(ctx, instances); err != nil {
			r.fault("%v", err)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("not all is released: %w; run the command again", context.Cause(ctx))
		}
	}
	if !r.dryRun { // what is kept is needed by whoever acts later
		if err := r.findContest(ctx, rival); err != nil {
			return err
		}
	}
	return r.removeState(ctx)
}

// findContest looks for an autoscaler that will act though nobody has stopped it, and notes it as a fault.
func (r *releaser) findContest(ctx context.Context, rival *rival) error {
	if r.contest != "" {
		return nil
	}
	replicas, err := r.replicas(ctx)
	switch {
	case err != nil:
		return err
	case rival != nil:
		r.contest = fmt.Sprintf("%s still led after the Deployment was stopped: another autoscaler uses the lease %s/%s. Stop it, and run this command again", rival.identity, r.namespace, r.name)
	case replicas > 0:
		r.contest = fmt.Sprintf("Something has scaled the Deployment %s/%s to %d again, perhaps a tool that applies it from a repository. Have it leave the Deployment alone, and run this command again", r.namespace, r.name, replicas)
	default:
		return nil
	}
	r.fault("%s", r.contest)
	return nil
}

// leave ends what keeps autoscalers from acting, unless one would act that nobody has stopped.
func (r *releaser) leave(ctx context.Context, lease *lease, rival *rival) error {
	if err := r.findContest(ctx, rival); err != nil {
		return err
	}
	if r.contest == "" {
		if err := lease.remove(ctx); err != nil {
			return fmt.Errorf("remove the lease %s/%s: %w", r.namespace, r.name, err)
		}
		r.report.Lease = "removed"
		return nil
	}
	until, err := lease.keep(ctx)
	if err != nil {
		return fmt.Errorf("keep the lease %s/%s: %w", r.namespace, r.name, err)
	}
	r.report.Lease = "held until " + until.UTC().Format(timeFormat)
	r.note("No autoscaler acts for the next hour. To have one act earlier: kubectl -n %s delete lease %s", r.namespace, r.name)
	return nil
}

// say tells on standard error what is being done.
func (r *releaser) say(format string, args ...any) { fmt.Fprintf(r.progress, format+"\n", args...) }

// fault notes what could not be released.
func (r *releaser) fault(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Faults = append(r.report.Faults, fmt.Sprintf(format, args...))
}

// note notes what the operator has to know.
func (r *releaser) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Notes = append(r.report.Notes, fmt.Sprintf(format, args...))
}

// orCause returns why ctx has ended instead of an error that may only be due to that.
func orCause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return err
}
