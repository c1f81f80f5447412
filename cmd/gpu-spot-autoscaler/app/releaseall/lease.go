package releaseall

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

const (
	// identityPrefix begins the identity of every run of this command.
	identityPrefix = "release-all_"
	// leaseDuration, renewDeadline and retryPeriod are the defaults of the autoscaler. If the command is killed, an autoscaler that is
	// started again leads after leaseDuration.
	leaseDuration, renewDeadline, retryPeriod = 15 * time.Second, 10 * time.Second, 2 * time.Second
	// quiet is how long the lease has to be free before it is taken. An autoscaler that runs without being a pod of the Deployment takes
	// it within that time, and is known by that. Candidates try every retryPeriod, and up to leaderelection.JitterFactor times later.
	quiet = 8 * time.Second
	// patience is how long a leader may go on after the pods of the Deployment are gone.
	patience = 20 * time.Second
	// keepFor is how long the lease is left held if an autoscaler would lead otherwise that nobody has stopped.
	keepFor = time.Hour
)

// lease is the leader's lease. While this process holds it no autoscaler acts: a leader that finds another holder ends before the
// duration of its lease is over, and the others wait for as long as the holder says.
// Source: tryAcquireOrRenew and isLeaseValid in k8s.io/client-go/tools/leaderelection.
type lease struct {
	lock   *resourcelock.LeaseLock
	leases typedcoordinationv1.LeaseInterface
	clock  clock.WithTicker
	// exists is whether there was a lease when it was read last.
	exists bool
}

func newLease(client kubernetes.Interface, namespace, name string, clk clock.WithTicker) *lease {
	host, _ := os.Hostname()
	return &lease{
		lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Client: client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identityPrefix + host + "_" + string(uuid.NewUUID())},
		},
		leases: client.CoordinationV1().Leases(namespace), clock: clk,
	}
}

// rival is an autoscaler that led although the pods of the Deployment were gone.
type rival struct {
	identity string
	// endsBy is when it has ended for certain.
	endsBy time.Time
}

// take takes the lease once it has been free or expired for a while. A leader that goes on is deprived of it, and returned.
func (l *lease) take(ctx context.Context) (*rival, error) {
	ticker := l.clock.NewTicker(time.Second)
	defer ticker.Stop()
	begun := l.clock.Now()
	var seen resourcelock.LeaderElectionRecord
	seenAt, freeSince := begun, time.Time{}
	for {
		record, err := l.read(ctx)
		if err != nil {
			return nil, err
		}
		now := l.clock.Now()
		if *record != seen {
			seen, seenAt = *record, now
		}
		duration := time.Duration(record.LeaseDurationSeconds) * time.Second
		isOfThisCommand := strings.HasPrefix(record.HolderIdentity, identityPrefix)
		isFree := record.HolderIdentity == "" || now.Sub(seenAt) >= duration
		switch {
		case !isFree && isOfThisCommand && duration == keepFor:
			// A former run has kept it: free it, so that an autoscaler that waits for it shows.
			if err := ignoreRace(l.write(ctx, record, "", time.Second)); err != nil {
				return nil, err
			}
			freeSince = time.Time{}
		case !isFree && isOfThisCommand && now.Sub(begun) >= patience:
			return nil, fmt.Errorf("the command runs already, as %s", record.HolderIdentity)
		case !isFree && now.Sub(begun) >= patience:
			err := l.write(ctx, record, l.lock.Identity(), leaseDuration)
			if err == nil {
				return &rival{record.HolderIdentity, now.Add(duration)}, nil
			} else if err := ignoreRace(err); err != nil {
				return nil, err
			}
			continue // it has just renewed the lease
		case !isFree:
			freeSince = time.Time{}
		case freeSince.IsZero():
			freeSince = now
		case now.Sub(freeSince) >= quiet:
			err := l.write(ctx, record, l.lock.Identity(), leaseDuration)
			if err == nil {
				return nil, nil
			} else if err := ignoreRace(err); err != nil {
				return nil, err
			}
			freeSince = time.Time{}
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return nil, fmt.Errorf("%w; it is held by %q", context.Cause(ctx), record.HolderIdentity)
		}
	}
}

// read returns an empty record if there is no lease.
func (l *lease) read(ctx context.Context) (*resourcelock.LeaderElectionRecord, error) {
	record, _, err := l.lock.Get(ctx)
	if l.exists = err == nil; apierrors.IsNotFound(err) {
		return &resourcelock.LeaderElectionRecord{}, nil
	}
	return record, err
}

// write writes the holder into the lease as it was read last.
func (l *lease) write(ctx context.Context, before *resourcelock.LeaderElectionRecord, holder string, duration time.Duration) error {
	now := metav1.NewTime(l.clock.Now())
	record := resourcelock.LeaderElectionRecord{
		HolderIdentity: holder, LeaseDurationSeconds: int(duration / time.Second), AcquireTime: now, RenewTime: now,
		LeaderTransitions: before.LeaderTransitions + 1,
	}
	if !l.exists {
		return l.lock.Create(ctx, record)
	}
	return l.lock.Update(ctx, record)
}

// ignoreRace ignores that somebody else has written, made or removed the lease since it was read.
func ignoreRace(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// hold does the work while it renews the lease, which has been taken. If the lease is lost, the context of the work ends.
func (l *lease) hold(ctx context.Context, work func(context.Context) error) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	started, done := make(chan struct{}), make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: "release-all", Lock: l.lock, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(held context.Context) {
				close(started)
				defer end()
				err := work(held)
				// Only here is it known which context ended first: the end of the work ends ctx too.
				if held.Err() != nil && ctx.Err() == nil {
					err = errors.Join(errors.New("somebody else has taken the lease, or it could not be renewed: run the command again"), err)
				}
				done <- err
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	elector.Run(ctx)
	select {
	case <-started:
		return <-done
	default:
		return fmt.Errorf("renew the lease: %w", context.Cause(ctx))
	}
}

// awaitEndOf waits until the rival has ended for certain.
func (l *lease) awaitEndOf(ctx context.Context, rival *rival) error {
	if rival == nil {
		return nil
	}
	select {
	case <-l.clock.After(rival.endsBy.Sub(l.clock.Now())):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of %s: %w", rival.identity, context.Cause(ctx))
	}
}

// remove removes the lease, unless somebody else has it by now.
func (l *lease) remove(ctx context.Context) error {
	current, err := l.leases.Get(ctx, l.lock.LeaseMeta.Name, metav1.GetOptions{})
	if err != nil || ptr.Deref(current.Spec.HolderIdentity, "") != l.lock.Identity() {
		return ignoreRace(err)
	}
	return ignoreRace(l.leases.Delete(ctx, current.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &current.UID, ResourceVersion: &current.ResourceVersion},
	}))
}

// keep leaves the lease held until the time that it returns.
func (l *lease) keep(ctx context.Context) (until time.Time, err error) {
	record, err := l.read(ctx)
	if err != nil {
		return time.Time{}, err
	}
	until = l.clock.Now().Add(keepFor)
	return until, l.write(ctx, record, l.lock.Identity(), keepFor)
}
