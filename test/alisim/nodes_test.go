package alisim_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/nodes"
	"gpu-spot-autoscaler/test/alisim/temper"
)

// cluster is a Registrar that remembers, and that fails as often as told.
type cluster struct {
	mu      sync.Mutex
	up      map[string]nodes.Machine
	failing int
	calls   []string
}

func newCluster() *cluster { return &cluster{up: map[string]nodes.Machine{}} }

func (c *cluster) Up(_ context.Context, m nodes.Machine) error {
	return c.do("up "+m.InstanceID, func() { c.up[m.InstanceID] = m })
}

func (c *cluster) Down(_ context.Context, id string) error {
	return c.do("down "+id, func() { delete(c.up, id) })
}

func (c *cluster) Wait() {}

func (c *cluster) do(call string, work func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, call)
	if c.failing > 0 {
		c.failing--
		return errors.New("the apiserver is not there")
	}
	work()
	return nil
}

func (c *cluster) machines() []nodes.Machine {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []nodes.Machine
	for _, m := range c.up {
		list = append(list, m)
	}
	return list
}

func (c *cluster) called() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.calls)
}

// eventually lets the goroutines that carry nodes do their work, a little time passing for those that wait to retry.
func (s *sim) eventually(what func() bool) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { s.clock.Step(10 * time.Millisecond); return what() }, 10*time.Second, time.Millisecond)
}

const bootDelay = 20 * time.Second

func startWithCluster(t *testing.T, c *cluster) *sim {
	w := testWorld()
	w.BootDelay = metav1.Duration{Duration: bootDelay}
	w.Pools[0].Tags["k8s.io/cluster-autoscaler/node-template/label/tier"] = "gold"
	w.Pools[0].ConfigurationTags["k8s.io/cluster-autoscaler/node-template/label/tier"] = "iron"
	w.Pools[0].ConfigurationTags["k8s.io/cluster-autoscaler/node-template/taint/gpu"] = "yes:NoSchedule"
	w.Pools[0].ConfigurationTags["k8s.io/cluster-autoscaler/node-template/taint/broken"] = "no effect"
	w.Pools[0].ConfigurationTags["k8s.io/cluster-autoscaler/node-template/resources/aliyun.com/gpu-mem"] = "16"
	w.Pools[0].Node = alisim.Node{Labels: map[string]string{"rack": "7"}, Taints: []string{"own=1:NoExecute"}}
	return startWorld(t, w, alisim.Options{Nodes: c})
}

func TestBootedInstancesBecomeNodesAndReleasedOnesGo(t *testing.T) {
	c := newCluster()
	s := startWithCluster(t, c)
	s.buy(spotGroup, 2)
	s.pass(bootDelay - time.Second)
	assert.Empty(t, c.called(), "it takes its time to boot")
	s.pass(time.Second)
	require.Len(t, c.machines(), 2)

	m := c.machines()[0]
	assert.Equal(t, []any{region, zoneA, small, alisim.SpotAsPriceGo, spotGroup}, []any{m.Region, m.Zone, m.InstanceType, m.SpotStrategy, m.PoolID})
	assert.Equal(t, []any{8, 32.0, 1, "T4", 16.0}, []any{m.VCPU, m.MemoryGiB, m.GPUs, m.GPUModel, m.GPUMemGiB})
	assert.Equal(t, map[string]string{"workload": "training", "tier": "gold", "rack": "7"}, m.Labels, "the group's tag wins")
	assert.Equal(t, []corev1.Taint{
		{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}, {Key: "own", Value: "1", Effect: corev1.TaintEffectNoExecute},
	}, m.Taints)
	assert.Equal(t, map[string]string{"aliyun.com/gpu-mem": "16"}, m.Resources)

	reclaiming := ids(s.members(spotGroup))[0]
	require.NoError(t, s.Reclaim(reclaiming))
	s.pass(noticeDelay)
	require.Len(t, c.machines(), 1)
	assert.NotEqual(t, reclaiming, c.machines()[0].InstanceID)
}

func TestAnInstanceReleasedBeforeItBootedIsNeverANode(t *testing.T) {
	c := newCluster()
	s := startWithCluster(t, c)
	s.buy(spotGroup, 1)
	_, err := s.removeInstances(spotGroup, ids(s.members(spotGroup)))
	require.NoError(t, err)
	s.pass(bootDelay)
	s.Stop()
	assert.Empty(t, c.called())
}

func TestNodesAreTriedAgain(t *testing.T) {
	c := newCluster()
	c.failing = 3
	s := startWithCluster(t, c)
	s.buy(spotGroup, 1)
	s.pass(bootDelay)
	s.eventually(func() bool { return len(c.machines()) == 1 })
	assert.Len(t, c.called(), 4)
}

func TestNothingRunsOnAfterStop(t *testing.T) {
	c := newCluster()
	c.failing = 1 << 30
	s := startWithCluster(t, c)
	s.buy(spotGroup, 5)
	s.pass(bootDelay)
	s.Stop()
	before := len(c.called())
	s.clock.Step(time.Hour)
	assert.Len(t, c.called(), before)
	s.Stop() // again is harmless
}

func TestTheEndOfTheContextEndsTheWorld(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	srv, err := alisim.Start(ctx, testWorld(), alisim.Options{})
	require.NoError(t, err)
	cancel()
	srv.Stop()
	assert.NoFileExists(t, srv.CAFile())
}

func TestAWorldThatIsWrongDoesNotStart(t *testing.T) {
	w := testWorld()
	w.Region = ""
	_, err := alisim.Start(context.Background(), w, alisim.Options{})
	assert.ErrorContains(t, err, "region")
	_, err = alisim.Start(context.Background(), testWorld(), alisim.Options{Listen: "127.0.0.1:99999"})
	assert.Error(t, err)
}

func TestTheTemperDecidesWhoDeletesNodes(t *testing.T) {
	w := testWorld()
	w.Temper = temper.Lenient()
	assert.Nil(t, w.Registrar().Controller)
	w.Temper, w.Speed = temper.Strict(), 10
	assert.Equal(t, &nodes.Controller{Period: 30 * time.Second, Grace: 5 * time.Second}, w.Registrar().Controller)
}
