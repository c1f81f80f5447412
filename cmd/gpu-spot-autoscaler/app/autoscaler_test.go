package app

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/autoscaler/cluster-autoscaler/core"
	"k8s.io/autoscaler/cluster-autoscaler/metrics"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/podindex"
	"gpu-spot-autoscaler/cloudprovider/reclaim"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/reclaim/poll"
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
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{ProviderID: "cn-beijing.i-a"}})
	p, removals := endingParts(t, client)
	removals.Note([]string{"i-a"})
	ctx, lose := context.WithCancel(t.Context())
	lose()
	require.NoError(t, p.lead(ctx, &replica{health: metrics.NewHealthCheck(time.Hour, time.Hour)}))
	assert.ErrorIs(t, p.provider.RefreshUntil(t.Context()), context.Canceled, "what the provider still does for others ends")
	node, err := client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	assert.NotEmpty(t, node.Annotations[api.AnnotationRemoved], "what was given back last is written on its Node")
}

// endingParts returns the parts that end with the leadership.
func endingParts(t *testing.T, client kubernetes.Interface) (*parts, *notice.Removals) {
	t.Helper()
	provider, err := ess.New(ess.Config{
		Cloud: slowCloud{}, Prices: pricing.NewBook(pricing.BookOptions{}), Events: discardedEvents{}, Clock: clock.RealClock{}, ClusterName: "test",
	})
	require.NoError(t, err)
	factory := informers.NewSharedInformerFactory(client, 0)
	registry := &jobs.Registry{}
	pods, err := podindex.New(factory.Core().V1().Pods().Informer(), registry)
	require.NoError(t, err)
	view, err := cluster.New(factory, pods, "cn-beijing", registry)
	require.NoError(t, err)
	notices, err := notice.NewStore(notice.Config{Cluster: view})
	require.NoError(t, err)
	removals := notice.NewRemovals(view, clock.RealClock{})
	reclaimer, err := reclaim.New(reclaim.Config{
		Cluster: view, Notices: notices, Removals: removals, Cloud: struct{ poll.Cloud }{}, Jobs: registry, Client: client,
		Recorder: &record.FakeRecorder{},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
		_ = reclaimer.Run(ctx) // ends its queues
	})
	return &parts{provider: provider, reclaimer: reclaimer}, removals
}
