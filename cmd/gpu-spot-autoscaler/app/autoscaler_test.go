package app

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/autoscaler/cluster-autoscaler/core"
	"k8s.io/autoscaler/cluster-autoscaler/metrics"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/pricing"
)

func TestALeaderThatMayNotListEndsWithAnError(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("list", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(action.GetResource().GroupResource(), "", errors.New("no role"))
	})
	factory := informers.NewSharedInformerFactory(client, 0)
	factory.Core().V1().Pods().Informer()
	factory.Core().V1().Nodes().Informer()
	ended := make(chan error, 1)
	go func() {
		ended <- whileListed(t.Context(), time.Second, []informers.SharedInformerFactory{factory}, func(context.Context) error {
			t.Error("the work begins without the nodes")
			return nil
		})
	}()
	select {
	case err := <-ended:
		assert.ErrorContains(t, err, "Node")
		assert.ErrorContains(t, err, "do the roles allow it?")
	case <-time.After(30 * time.Second):
		t.Fatal("still waits for its informers")
	}
}

func TestTheErrorOfTheLeadersWorkIsReturned(t *testing.T) {
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	factory.Core().V1().Nodes().Informer()
	failure := errors.New("failure")
	assert.ErrorIs(t, whileListed(t.Context(), time.Minute, []informers.SharedInformerFactory{factory}, func(context.Context) error { return failure }), failure)
}

// startedCore notes that it was started.
type startedCore struct {
	core.Autoscaler
	started bool
}

func (c *startedCore) Start() error {
	c.started = true
	return errors.New("it is not to start")
}

func TestCoreDoesNotStartOnceLeadershipHasEnded(t *testing.T) {
	prices := pricing.NewBook(pricing.BookOptions{})
	prices.SetOfferings([]pricing.Offering{{InstanceType: "ecs.gn7i-c8g1.2xlarge", Zone: "cn-test-a"}}, nil) // nobody looks its price up
	c := &startedCore{}
	p := &parts{core: c, prices: prices}
	ctx, lose := context.WithCancel(t.Context())
	lose()
	require.NoError(t, p.loop(ctx, nil))
	assert.False(t, c.started)
}

// slowCloud answers to nothing before its context ends.
type slowCloud struct{ ess.Cloud }

func (slowCloud) ScalingGroups(ctx context.Context, _ alicloud.GroupFilter) ([]alicloud.ScalingGroup, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestTheProviderEndsWithTheLeadershipThoughNoLoopHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider, err := ess.New(ess.Config{
			Cloud: slowCloud{}, Prices: pricing.NewBook(pricing.BookOptions{}), Events: discardedEvents{}, Clock: clock.RealClock{}, ClusterName: "test",
		})
		require.NoError(t, err)
		ctx, lose := context.WithCancel(t.Context())
		lose()
		p := &parts{provider: provider}
		require.NoError(t, p.lead(ctx, &replica{health: metrics.NewHealthCheck(time.Hour, time.Hour)}))
		assert.ErrorIs(t, provider.RefreshUntil(t.Context()), context.Canceled, "what the provider still does for others ends")
	})
}
