package releaseall

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// newClient returns a fake whose leases, unlike those of the fake that it is made of, refuse updates of what has changed since it was read.
func newClient(objects ...runtime.Object) *fake.Clientset {
	client, updates := fake.NewClientset(objects...), 0
	client.PrependReactor("update", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		update := action.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease)
		stored, err := client.Tracker().Get(action.GetResource(), action.GetNamespace(), update.Name)
		if err != nil {
			return true, nil, err
		}
		version := stored.(*coordinationv1.Lease).ResourceVersion
		if update.ResourceVersion != version {
			return true, nil, apierrors.NewConflict(coordinationv1.Resource("leases"), update.Name, nil)
		}
		renewed := update.DeepCopy()
		updates++
		renewed.ResourceVersion = strconv.Itoa(updates)
		return true, renewed, client.Tracker().Update(action.GetResource(), renewed, action.GetNamespace())
	})
	return client
}

// candidate is an autoscaler that takes part in the election, as the autoscaler does.
type candidate struct {
	leading, ended chan struct{}
	stop           context.CancelFunc
}

// newCandidate runs a candidate until it loses the lease or is stopped, when it releases the lease.
func newCandidate(t *testing.T, client kubernetes.Interface, identity string) *candidate {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour) // the bubble of a test that fails would never end
	c := &candidate{make(chan struct{}), make(chan struct{}), cancel}
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, "kube-system", "autoscaler", client.CoreV1(), client.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: identity})
	require.NoError(t, err)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(c.leading) }, OnStoppedLeading: func() {},
		},
	})
	require.NoError(t, err)
	go func() {
		defer close(c.ended)
		elector.Run(ctx)
	}()
	return c
}

func isClosed(c chan struct{}) bool {
	synctest.Wait()
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func leaseOf(client kubernetes.Interface) *lease {
	return newLease(client, "kube-system", "autoscaler", clock.RealClock{})
}

func TestALeaseThatNobodyWantsIsTakenSoonAndRemovedAfterTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newClient()
		leader := newCandidate(t, client, "pod-a")
		time.Sleep(time.Minute)
		leader.stop() // its pod ends, and it releases the lease
		<-leader.ended

		l, begun := leaseOf(client), time.Now()
		rival, err := l.take(t.Context())
		require.NoError(t, err)
		assert.Nil(t, rival)
		assert.InDelta(t, quiet, time.Since(begun), float64(time.Second))

		require.NoError(t, l.hold(t.Context(), func(ctx context.Context) error {
			newcomer := newCandidate(t, client, "pod-b")
			time.Sleep(time.Hour)
			assert.False(t, isClosed(newcomer.leading), "nobody leads meanwhile")
			newcomer.stop()
			return ctx.Err()
		}))
		require.NoError(t, l.remove(t.Context()))
		_, err = client.CoordinationV1().Leases("kube-system").Get(t.Context(), "autoscaler", metav1.GetOptions{})
		assert.True(t, apierrors.IsNotFound(err))
	})
}

func TestTheLeaseOfALeaderThatWasKilledIsTakenOnceItHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newClient()
		killed := leaseOf(client)
		_, err := killed.read(t.Context())
		require.NoError(t, err)
		require.NoError(t, killed.write(t.Context(), &resourcelock.LeaderElectionRecord{}, "pod-a", leaseDuration))

		begun := time.Now()
		rival, err := leaseOf(client).take(t.Context())
		require.NoError(t, err)
		assert.Nil(t, rival)
		assert.GreaterOrEqual(t, time.Since(begun), leaseDuration)
		assert.Less(t, time.Since(begun), leaseDuration+quiet+3*time.Second)
	})
}

func TestALeaderThatGoesOnElsewhereIsDeprivedOfTheLeaseAndWaitedFor(t *testing.T) {
	for name, waits := range map[string]bool{"that leads already": false, "that waited until the other had ended": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := newClient()
				if waits {
					first := newCandidate(t, client, "pod-a")
					time.Sleep(time.Minute)
					defer func() { <-first.ended }()
					time.AfterFunc(time.Second, first.stop)
				}
				elsewhere := newCandidate(t, client, "elsewhere")
				time.Sleep(500 * time.Millisecond)

				l := leaseOf(client)
				rival, err := l.take(t.Context())
				require.NoError(t, err)
				require.NotNil(t, rival)
				assert.Equal(t, "elsewhere", rival.identity)
				require.NoError(t, l.hold(t.Context(), func(ctx context.Context) error {
					require.NoError(t, l.awaitEndOf(ctx, rival))
					assert.True(t, isClosed(elsewhere.ended), "it acts no more")
					return nil
				}))

				until, err := l.keep(t.Context())
				require.NoError(t, err)
				again := newCandidate(t, client, "elsewhere")
				time.Sleep(time.Until(until) - time.Second)
				assert.False(t, isClosed(again.leading), "it does not lead when it is started again")
				time.Sleep(10 * time.Second)
				assert.True(t, isClosed(again.leading), "but not for ever")
				again.stop()
			})
		})
	}
}

func TestALeaseThatAFormerRunHasKeptIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newClient()
		former := leaseOf(client)
		_, err := former.take(t.Context())
		require.NoError(t, err)
		_, err = former.keep(t.Context())
		require.NoError(t, err)
		standby := newCandidate(t, client, "standby")
		time.Sleep(time.Minute)
		standby.stop()

		begun := time.Now()
		rival, err := leaseOf(client).take(t.Context())
		require.NoError(t, err)
		assert.Nil(t, rival)
		assert.Less(t, time.Since(begun), quiet+3*time.Second)

		// And the one that still waits shows itself.
		_, err = former.keep(t.Context())
		require.NoError(t, err)
		standby = newCandidate(t, client, "standby")
		time.Sleep(time.Minute)
		rival, err = leaseOf(client).take(t.Context())
		require.NoError(t, err)
		require.NotNil(t, rival)
		assert.Equal(t, "standby", rival.identity)
		standby.stop()
	})
}

func TestTheCommandDoesNotRunTwiceAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newClient()
		first := leaseOf(client)
		_, err := first.take(t.Context())
		require.NoError(t, err)
		require.NoError(t, first.hold(t.Context(), func(ctx context.Context) error {
			_, err := leaseOf(client).take(ctx)
			assert.ErrorContains(t, err, "the command runs already, as release-all_")
			return ctx.Err()
		}))
	})
}

// steal takes the lease from whoever holds it, who may renew it meanwhile.
func steal(ctx context.Context, l *lease, thief string) error {
	for {
		record, err := l.read(ctx)
		if err != nil {
			return err
		}
		if err = l.write(ctx, record, thief, leaseDuration); !apierrors.IsConflict(err) {
			return err
		}
	}
}

func TestTheWorkEndsWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newClient()
		l := leaseOf(client)
		_, err := l.take(t.Context())
		require.NoError(t, err)
		err = l.hold(t.Context(), func(ctx context.Context) error {
			assert.NoError(t, steal(ctx, leaseOf(client), "thief"))
			<-ctx.Done()
			return errors.New("not all is done")
		})
		assert.ErrorContains(t, err, "somebody else has taken the lease")
		assert.ErrorContains(t, err, "not all is done")
		require.NoError(t, l.remove(t.Context()))
		kept, err := l.read(t.Context())
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(kept.HolderIdentity, "thief"), "which is not ours to remove")
	})
}
