package app

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	componentconfig "k8s.io/component-base/config"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
)

func candidate(client *fake.Clientset, identity string) *Config {
	return &Config{ElectionClient: client, Identity: identity, Options: &options.Options{
		LeaderElection: componentconfig.LeaderElectionConfiguration{
			LeaderElect:       true,
			LeaseDuration:     metav1.Duration{Duration: 15 * time.Second},
			RenewDeadline:     metav1.Duration{Duration: 10 * time.Second},
			RetryPeriod:       metav1.Duration{Duration: 2 * time.Second},
			ResourceLock:      resourcelock.LeasesResourceLock,
			ResourceName:      options.Name,
			ResourceNamespace: "kube-system",
		},
	}}
}

func holder(t *testing.T, client *fake.Clientset) string {
	t.Helper()
	lease, err := client.CoordinationV1().Leases("kube-system").Get(context.Background(), options.Name, metav1.GetOptions{})
	require.NoError(t, err)
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

func watchdog() *leaderelection.HealthzAdaptor {
	return leaderelection.NewLeaderHealthzAdaptor(time.Second)
}

// The clock of these tests is that of their bubble, so they take no time.

func TestLeaseIsHeldUntilTheWorkEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var duringWindUp string
		err := lead(ctx, candidate(client, "a"), watchdog(), func() {}, func(ctx context.Context) error {
			time.Sleep(time.Minute) // many renewals
			cancel()
			<-ctx.Done()
			time.Sleep(time.Minute) // the loop under way, longer than a lease lasts unrenewed
			duringWindUp = holder(t, client)
			return nil
		})
		assert.NoError(t, err)
		assert.Equal(t, "a", duringWindUp)
		assert.Empty(t, holder(t, client), "given back")
	})
}

func TestErrorOfTheWorkEndsTheLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, broken := fake.NewClientset(), errors.New("broken")
		err := lead(t.Context(), candidate(client, "a"), watchdog(), func() {}, func(context.Context) error { return broken })
		assert.ErrorIs(t, err, broken)
		assert.Empty(t, holder(t, client))
	})
}

func TestOnlyTheLeaderWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		first, endFirst := context.WithCancel(t.Context())
		defer endFirst()
		go func() {
			_ = lead(first, candidate(client, "a"), watchdog(), func() {}, func(ctx context.Context) error { <-ctx.Done(); return nil })
		}()
		synctest.Wait()

		// One that is told to end while it waits has not worked, and ends well.
		waiting, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		unexpected := errors.New("two leaders")
		var standsBy atomic.Bool
		assert.NoError(t, lead(waiting, candidate(client, "b"), watchdog(), func() { standsBy.Store(true) }, func(context.Context) error { return unexpected }))
		assert.True(t, standsBy.Load(), "it has seen that another one leads")

		// Another takes over as soon as the lease is given back.
		time.AfterFunc(time.Minute, endFirst)
		began := time.Now()
		err := lead(t.Context(), candidate(client, "c"), watchdog(), func() {}, func(context.Context) error {
			assert.Equal(t, "c", holder(t, client))
			return nil
		})
		assert.NoError(t, lead(t.Context(), candidate(fake.NewClientset(), "d"), watchdog(), func() { t.Error("it leads itself") }, func(context.Context) error {
			time.Sleep(time.Second)
			return nil
		}))
		assert.NoError(t, err)
		assert.Less(t, time.Since(began), time.Minute+10*time.Second)
	})
}

func TestLostLeaseEndsAtOnceAndBadly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var cut atomic.Bool
		client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return cut.Load(), nil, errors.New("no connection")
		})
		var ended time.Duration
		began := time.Now()
		done := make(chan struct{})
		err := lead(t.Context(), candidate(client, "a"), watchdog(), func() {}, func(ctx context.Context) error {
			defer close(done)
			cut.Store(true)
			<-ctx.Done() // told to end, too
			ended = time.Since(began)
			time.Sleep(time.Hour) // but does not
			return nil
		})
		assert.ErrorIs(t, err, errLostLease)
		assert.Less(t, time.Since(began), time.Minute)
		<-done
		assert.Less(t, ended, time.Minute)
	})
}

func TestWithoutElectionTheWorkIsDoneAtOnce(t *testing.T) {
	config := candidate(fake.NewClientset(), "a")
	config.LeaderElection.LeaderElect = false
	broken := errors.New("broken")
	assert.ErrorIs(t, lead(t.Context(), config, watchdog(), func() {}, func(context.Context) error { return broken }), broken)
}

func TestNothingIsWaitedForAfterTheLeaseWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		wait := func() error { <-end; return errors.New("the servers have ended") }
		lost := make(chan struct{})
		close(lost)
		assert.Equal(t, errLostLease, unlessLost(lost, wait))
		close(end)
		assert.ErrorContains(t, unlessLost(nil, wait), "the servers have ended")
	})
}
