package externalgrpc

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apiv1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider/externalgrpc/protos"
	"k8s.io/autoscaler/cluster-autoscaler/config"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/ess"
)

func TestTheClientSeesTheOfferings(t *testing.T) {
	f := newFixture(t)
	require.NoError(t, f.client.Refresh())
	require.Len(t, f.client.NodeGroups(), 2)
	group := f.group("a")
	assert.Equal(t, 10, group.MaxSize())
	size, err := group.TargetSize()
	require.NoError(t, err)
	assert.Equal(t, 3, size)
	instances, err := group.Nodes()
	require.NoError(t, err)
	assert.Len(t, instances, 3)

	info, err := group.TemplateNodeInfo()
	require.NoError(t, err)
	assert.Equal(t, "a", info.Node().Labels["type"])
	assert.Equal(t, "gpu", info.Node().Spec.Taints[0].Key)

	of, err := f.client.NodeGroupForNode(nodeNamed("b2"))
	require.NoError(t, err)
	assert.Equal(t, "b", of.Id())
	of, err = f.client.NodeGroupForNode(nodeNamed("of-another-pool"))
	require.NoError(t, err)
	assert.Nil(t, of)
}

func TestEachRefreshBeginsALoopWithTheNodesOfTheCluster(t *testing.T) {
	f := newFixture(t)
	require.NoError(t, f.client.Refresh())
	require.NoError(t, f.client.Refresh())
	require.Len(t, f.provider.loops, 2)
	assert.ElementsMatch(t, []string{"a1", "a2", "a3", "b1", "b2", "b3"}, f.provider.loops[1])
	assert.Equal(t, 2, f.provider.refreshes)

	f.provider.refreshing = func() error { return errors.New("no pool could be read") }
	assert.ErrorContains(t, f.client.Refresh(), "no pool could be read")
}

func TestARefreshThatOutlastsTheClientGoesOnAndTheNextCallWaitsForIt(t *testing.T) {
	f := newFixture(t)
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f.provider.refreshing = func() error { <-release; return nil }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := f.server.Refresh(ctx, nil)
		assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
		again := make(chan error, 1)
		go func() {
			_, err := f.server.Refresh(t.Context(), nil)
			again <- err
		}()
		synctest.Wait()
		close(release)
		require.NoError(t, <-again)
		assert.Equal(t, 1, f.provider.refreshCount())
	})
}

func TestNodesThatAreNoCapacityAreOfNoNodeGroup(t *testing.T) {
	f := newFixture(t)
	f.provider.reclaiming.Insert("a1")
	f.provider.stopped.Insert("a2")
	require.NoError(t, f.client.Refresh())
	for name, expected := range map[string]bool{"a1": false, "a2": false, "a3": true} {
		group, err := f.client.NodeGroupForNode(nodeNamed(name))
		require.NoError(t, err)
		assert.Equal(t, expected, group != nil, name)
	}
}

func TestAPurchaseIsAnsweredBeforeItIsSent(t *testing.T) {
	f := newFixture(t)
	require.NoError(t, f.client.Refresh())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { f.server.Run(ctx); close(ended) }()
	<-f.provider.gathering
	require.NoError(t, f.group("a").IncreaseSize(2))
	assert.Equal(t, map[string]int{"a": 2}, f.bought)
	size, err := f.group("a").TargetSize()
	require.NoError(t, err)
	assert.Equal(t, 5, size, "it counts at once, so that the client does not buy again")
	<-f.provider.sent
	cancel()
	<-ended
}

func TestNothingIsBoughtForAClientThatHasGivenUp(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.server.NodeGroupIncreaseSize(ctx, &protos.NodeGroupIncreaseSizeRequest{Id: "a", Delta: 2})
	assert.Equal(t, codes.Canceled, status.Code(err))
	assert.Empty(t, f.bought)
}

func TestNodesAreGivenBack(t *testing.T) {
	f := newFixture(t)
	require.NoError(t, f.client.Refresh())
	require.NoError(t, f.group("a").DeleteNodes([]*apiv1.Node{nodeNamed("a1"), nodeNamed("a3")}))
	assert.Equal(t, []string{"a1", "a3"}, f.given)
	_, err := f.raw.NodeGroupDeleteNodes(t.Context(), &protos.NodeGroupDeleteNodesRequest{Id: "gone"})
	assert.Equal(t, codes.NotFound, status.Code(err))
}

func TestARemovalThatOutlastsTheClientIsNoErrorForWhichItsNodesWouldTakePodsAgain(t *testing.T) {
	f := newFixture(t)
	synctest.Test(t, func(t *testing.T) {
		accept := make(chan struct{})
		f.removing = func() error { <-accept; return nil }
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err := f.server.NodeGroupDeleteNodes(ctx, &protos.NodeGroupDeleteNodesRequest{Id: "a", Nodes: []*protos.ExternalGrpcNode{{ProviderID: "a1", Name: "a1"}}})
		require.NoError(t, err)
		assert.NoError(t, ctx.Err(), "the client still listens")
		assert.Empty(t, f.given)
		close(accept)
		synctest.Wait()
		assert.Equal(t, []string{"a1"}, f.given, "it goes on")
	})
}

func TestNodesOfARemovalThatIsRefusedAfterItsAnswerTakePodsAgain(t *testing.T) {
	f := newFixture(t)
	synctest.Test(t, func(t *testing.T) {
		refuse := make(chan struct{})
		f.removing = func() error { <-refuse; return errors.New("the scaling group is busy") }
		f.provider.stopped.Insert("a2")
		var sent []*protos.ExternalGrpcNode
		for _, name := range []string{"a1", "a2", "a3"} {
			sent = append(sent, &protos.ExternalGrpcNode{ProviderID: name, Name: name})
			f.taint(name)
		}
		require.NoError(t, f.kube.Tracker().Delete(apiv1.SchemeGroupVersion.WithResource("nodes"), "", "a3"))
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err := f.server.NodeGroupDeleteNodes(ctx, &protos.NodeGroupDeleteNodesRequest{Id: "a", Nodes: sent})
		require.NoError(t, err)
		cancel()
		assert.Equal(t, []string{"kept", taints.ToBeDeletedTaint}, f.taintsOf("a1"), "while it may be given back")
		close(refuse)
		synctest.Wait()
		assert.Equal(t, []string{"kept"}, f.taintsOf("a1"))
		assert.Equal(t, []string{"kept", taints.ToBeDeletedTaint}, f.taintsOf("a2"), "it does not serve")
	})
}

// lateRefusal has the removal of a node refused when the test says so, after the client was told that it is done.
func (f *fixture) lateRefusal(t *testing.T, node string) (refuse func()) {
	t.Helper()
	refused := make(chan struct{})
	f.removing = func() error { <-refused; return errors.New("the scaling group is busy") }
	f.taint(node)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := f.server.NodeGroupDeleteNodes(ctx, &protos.NodeGroupDeleteNodesRequest{Id: "a", Nodes: []*protos.ExternalGrpcNode{{ProviderID: node, Name: node}}})
	require.NoError(t, err)
	return func() { close(refused) }
}

func TestANodeThatIsNotGivenBackIsOpenedOnceTheAPIServerAnswers(t *testing.T) {
	f := newFixture(t)
	synctest.Test(t, func(t *testing.T) {
		refuse := f.lateRefusal(t, "a1")
		f.failNodes(func(asked int) bool { return asked < 10 })
		refuse()
		time.Sleep(30 * time.Second)
		require.Equal(t, []string{"kept", taints.ToBeDeletedTaint}, f.taintsOf("a1"))
		time.Sleep(30 * time.Second)
		assert.Equal(t, []string{"kept"}, f.taintsOf("a1"))
	})
}

func TestTheProcessEndsOnceTheNodesAreOpenThatAreNotGivenBack(t *testing.T) {
	for name, test := range map[string]struct {
		fails  func(asked int) bool
		taints []string
		took   time.Duration
	}{
		"at once":                                 {func(int) bool { return false }, []string{"kept"}, 0},
		"as soon as the API server answers":       {func(asked int) bool { return asked == 0 }, []string{"kept"}, untaintRetry},
		"without, if the API server is not there": {func(int) bool { return true }, []string{"kept", taints.ToBeDeletedTaint}, lastUntaints},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			synctest.Test(t, func(t *testing.T) {
				refuse := f.lateRefusal(t, "a1")
				f.failNodes(test.fails)
				began, finished := time.Now(), make(chan struct{})
				go func() { f.server.Finish(); close(finished) }()
				synctest.Wait()
				select {
				case <-finished:
					t.Fatal("the removal has not ended")
				default:
				}
				refuse() // as the end of the provider does
				<-finished
				assert.Equal(t, test.took, time.Since(began))
				f.failNodes(func(int) bool { return false })
				assert.Equal(t, test.taints, f.taintsOf("a1"))
			})
		})
	}
}

// taint gives the node in the cluster the client's taint, and another.
func (f *fixture) taint(name string) {
	f.Helper()
	node, err := f.kube.CoreV1().Nodes().Get(f.Context(), name, metav1.GetOptions{})
	require.NoError(f, err)
	node.Spec.Taints = []apiv1.Taint{{Key: "kept", Effect: apiv1.TaintEffectNoSchedule}, {Key: taints.ToBeDeletedTaint, Effect: apiv1.TaintEffectNoSchedule}}
	require.NoError(f, f.kube.Tracker().Update(apiv1.SchemeGroupVersion.WithResource("nodes"), node, ""))
}

// failNodes has the requests fail that write Nodes, by how many there were before.
func (f *fixture) failNodes(fails func(asked int) bool) {
	asked := 0
	f.kube.PrependReactor("update", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		asked++
		return fails(asked - 1), nil, apierrors.NewInternalError(errors.New("etcd is away"))
	})
}

// taintsOf returns the keys of the taints that the node has in the cluster.
func (f *fixture) taintsOf(name string) (keys []string) {
	f.Helper()
	node, err := f.kube.CoreV1().Nodes().Get(f.Context(), name, metav1.GetOptions{})
	require.NoError(f, err)
	for _, taint := range node.Spec.Taints {
		keys = append(keys, taint.Key)
	}
	return keys
}

func TestARemovalThatIsRefusedInTimeIsAnError(t *testing.T) {
	f := newFixture(t)
	require.NoError(t, f.client.Refresh())
	f.removing = func() error { return ess.ErrBelowMinimum }
	assert.ErrorContains(t, f.group("a").DeleteNodes([]*apiv1.Node{nodeNamed("a1")}), ess.ErrBelowMinimum.Error())
}

func TestTheMinimumOfThePoolBindsItsOfferings(t *testing.T) {
	f := newFixture(t)
	// The pool has six nodes in two offerings, and needs five.
	f.provider.pools["a"] = ess.PoolStatus{ID: "pool", Size: 6, MinSize: 5}
	require.NoError(t, f.client.Refresh())
	assert.Equal(t, 2, f.group("a").MinSize())
	f.provider.pools["a"] = ess.PoolStatus{ID: "pool", Size: 6}
	require.NoError(t, f.client.Refresh())
	assert.Zero(t, f.group("a").MinSize())
}

func TestOptionsOfThePoolReachTheClientAndACooldownKeepsItsNodes(t *testing.T) {
	f := newFixture(t)
	f.provider.InsertNodeGroup(f.provider.BuildNodeGroup("a", 0, 10, 3, true, false, "a", &config.NodeGroupAutoscalingOptions{
		ScaleDownUnneededTime: time.Minute, ScaleDownUnreadyTime: 2 * time.Minute, MaxNodeProvisionTime: 3 * time.Minute,
		ScaleDownGpuUtilizationThreshold: 0.25, ScaleDownUtilizationThreshold: 0.5,
	}))
	require.NoError(t, f.client.Refresh())
	options, err := f.group("a").GetOptions(config.NodeGroupAutoscalingOptions{ScaleDownUnneededTime: time.Hour})
	require.NoError(t, err)
	assert.Equal(t, &config.NodeGroupAutoscalingOptions{
		ScaleDownUnneededTime: time.Minute, ScaleDownUnreadyTime: 2 * time.Minute, MaxNodeProvisionTime: 3 * time.Minute,
		ScaleDownGpuUtilizationThreshold: 0.25, ScaleDownUtilizationThreshold: 0.5,
	}, options)

	f.provider.pools["a"] = ess.PoolStatus{ID: "pool", Size: 3, Cooldown: ptr.To(10 * time.Minute), LastScaleUp: f.clock.Now()}
	options, err = f.group("a").GetOptions(config.NodeGroupAutoscalingOptions{})
	require.NoError(t, err)
	assert.Greater(t, options.ScaleDownUnneededTime, 24*time.Hour)
	assert.Equal(t, 3*time.Minute, options.MaxNodeProvisionTime)

	f.clock.Step(11 * time.Minute)
	options, err = f.group("a").GetOptions(config.NodeGroupAutoscalingOptions{})
	require.NoError(t, err)
	assert.Equal(t, time.Minute, options.ScaleDownUnneededTime)
}

func TestWhatIsNotImplementedIsSaidSo(t *testing.T) {
	assert.Equal(t, codes.Unimplemented, status.Code(answer(cloudprovider.ErrNotImplemented)))
	assert.Equal(t, codes.FailedPrecondition, status.Code(answer(ess.ErrBelowMinimum)))
	assert.NoError(t, answer(nil))
}

func TestTheEndOfTheClientIsNotThatOfTheProvider(t *testing.T) {
	f := newFixture(t)
	require.NoError(t, f.client.Cleanup())
	require.NoError(t, f.client.Refresh())
}

func TestPoolsAreReadWhileNoClientDoes(t *testing.T) {
	f := newFixture(t)
	require.NoError(t, f.client.Refresh())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { f.server.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	require.Eventually(t, f.clock.HasWaiters, timeout, time.Millisecond)
	f.clock.Step(absence)
	assert.Eventually(t, func() bool { return f.provider.refreshCount() == 2 }, timeout, time.Millisecond)
}
