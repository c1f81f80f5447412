package app

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
)

// errLostLease is returned if another process may be the leader by now.
var errLostLease = errors.New("lost the leader lease")

// lead does the work while this process holds the lease, or at once if leader election is disabled, and returns the work's error. It calls
// standBy when another process leads.
// It holds the lease until the work has ended, so that two processes never work at the same time, and then releases it. If the lease
// could not be renewed, lead returns errLostLease without waiting for the work.
func lead(ctx context.Context, config *Config, watchdog *leaderelection.HealthzAdaptor, standBy func(), work func(context.Context) error) error {
	if !config.LeaderElection.LeaderElect {
		return work(ctx)
	}
	lock, err := resourcelock.New(config.LeaderElection.ResourceLock,
		config.LeaderElection.ResourceNamespace, config.LeaderElection.ResourceName,
		config.ElectionClient.CoreV1(), config.ElectionClient.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: config.Identity})
	if err != nil {
		return fmt.Errorf("make the leader lease: %w", err)
	}

	// The election outlives ctx until the work is done.
	election, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	started, done := make(chan struct{}), make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: options.Name, Lock: lock, WatchDog: watchdog, ReleaseOnCancel: true,
		LeaseDuration: config.LeaderElection.LeaseDuration.Duration,
		RenewDeadline: config.LeaderElection.RenewDeadline.Duration,
		RetryPeriod:   config.LeaderElection.RetryPeriod.Duration,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(held context.Context) {
				close(started)
				held, cancel := context.WithCancel(held)
				defer context.AfterFunc(ctx, cancel)()
				defer release()
				done <- work(held)
			},
			OnStoppedLeading: func() { klog.FromContext(ctx).Info("Stopped leading") },
			OnNewLeader: func(identity string) {
				if identity != "" && identity != config.Identity { // a lease that was released has no holder
					standBy()
				}
			},
		},
	})
	if err != nil {
		return fmt.Errorf("--leader-elect: %w", err)
	}
	watchdog.SetLeaderElection(elector)

	// A process that does not lead yet has nothing to finish.
	defer context.AfterFunc(ctx, func() {
		select {
		case <-started:
		default:
			release()
		}
	})()
	elector.Run(election)
	return outcome(election, started, done)
}

// outcome returns why the election ended.
func outcome(election context.Context, started <-chan struct{}, done <-chan error) error {
	if election.Err() == nil {
		return errLostLease
	}
	select {
	case err := <-done:
		return err
	default:
	}
	select {
	case <-started: // the work began just as ctx ended
		return <-done
	default:
		return nil // ctx ended before this process led
	}
}
