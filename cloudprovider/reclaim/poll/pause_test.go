package poll

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/podindex"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

// newPoller returns a Poller for a cluster of these Nodes.
func newPoller(t *testing.T, cloud Cloud, nodes ...*corev1.Node) *Poller {
	t.Helper()
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	pods, err := podindex.New(factory.Core().V1().Pods().Informer(), noJobs{})
	require.NoError(t, err)
	view, err := cluster.New(factory, pods, "cn-beijing", noJobs{})
	require.NoError(t, err)
	for _, node := range nodes {
		require.NoError(t, factory.Core().V1().Nodes().Informer().GetIndexer().Add(node))
	}
	notices, err := notice.NewStore(notice.Config{Cluster: view})
	require.NoError(t, err)
	return New(Config{
		Cloud: cloud, Cluster: view, Notices: notices, Removals: notice.NewRemovals(view, clock.RealClock{}), Listener: listener{notices}, Clock: clock.RealClock{},
		Interval: DefaultInterval, Pools: noPools{},
	})
}

// noPools have been read, and list nothing.
type noPools struct{}

func (noPools) FirstRead() <-chan struct{} {
	read := make(chan struct{})
	close(read)
	return read
}

func (noPools) Lists(string) bool { return false }

type noJobs struct{}

func (noJobs) Member(*corev1.Pod) jobs.Membership { return jobs.Membership{} }
func (noJobs) UnitOf(*corev1.Pod) string          { return "" }

// listener only enters what is announced.
type listener struct{ notices *notice.Store }

func (l listener) Announce(_ context.Context, announcements ...notice.Announcement) {
	for _, a := range announcements {
		l.notices.Add(a)
	}
}
func (listener) Judged(string) {}
func (listener) Listed()       {}

// recycling is a Cloud in which the instances are recycling.
type recycling []alicloud.Instance

func (c recycling) RecyclingInstances(context.Context) ([]alicloud.Instance, error) { return c, nil }
func (c recycling) Instances(context.Context, []string) ([]alicloud.Instance, error) {
	return c, nil
}

func TestPollsAreAsFrequentAsReclaimsAreLikely(t *testing.T) {
	labelled := func(key, value string) func(*corev1.Node) {
		return func(node *corev1.Node) { node.Labels = map[string]string{key: value} }
	}
	aged := func(age time.Duration) func(*corev1.Node) {
		return func(node *corev1.Node) { node.CreationTimestamp = metav1.NewTime(time.Now().Add(-age)) }
	}
	young := aged(time.Minute)
	for name, tc := range map[string]struct {
		node     []func(*corev1.Node)
		reclaim  string
		requests int
		want     time.Duration
	}{
		"spot":                         {[]func(*corev1.Node){young, labelled("node.alibabacloud.com/spot-strategy", "SpotAsPriceGo")}, "", 1, 2 * time.Second},
		"spot, by our label":           {[]func(*corev1.Node){young, labelled("gpu-spot.autoscaling/purchase-option", "spot")}, "", 1, 2 * time.Second},
		"perhaps spot":                 {[]func(*corev1.Node){young}, "", 1, 2 * time.Second},
		"on-demand":                    {[]func(*corev1.Node){young, labelled("node.alibabacloud.com/spot-strategy", "NoSpot")}, "", 1, 10 * time.Second},
		"on-demand, by our label":      {[]func(*corev1.Node){young, labelled("gpu-spot.autoscaling/purchase-option", "on-demand")}, "", 1, 10 * time.Second},
		"of another cloud":             {[]func(*corev1.Node){young, func(node *corev1.Node) { node.Spec.ProviderID = "kind://a" }}, "", 1, 10 * time.Second},
		"of another region":            {[]func(*corev1.Node){young, func(node *corev1.Node) { node.Spec.ProviderID = "cn-shanghai.i-a" }}, "", 1, 10 * time.Second},
		"about to lose its protection": {[]func(*corev1.Node){aged(59 * time.Minute)}, "", 1, 2 * time.Second},
		"just unprotected":             {[]func(*corev1.Node){aged(61 * time.Minute)}, "", 1, time.Second},
		"long unprotected":             {[]func(*corev1.Node){aged(71 * time.Minute)}, "", 1, 2 * time.Second},
		"a reclaim is under way":       {[]func(*corev1.Node){young}, "a", 1, time.Second},
		"a reclaim elsewhere":          {[]func(*corev1.Node){young}, "foreign", 1, 2 * time.Second},
		"a thousand are":               {[]func(*corev1.Node){young}, "a", 10, 2 * time.Second},
		"ten thousand are":             {[]func(*corev1.Node){young}, "a", 100, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{ProviderID: "cn-beijing.i-a"}}
			for _, change := range tc.node {
				change(node)
			}
			var cloud recycling
			if tc.reclaim != "" {
				cloud = recycling{{ID: "i-" + tc.reclaim, Status: "Running", LockReasons: []string{alicloud.LockRecycling}}}
			}
			p := newPoller(t, cloud, node)
			_, err := p.poll(t.Context())
			require.NoError(t, err)
			assert.Equal(t, tc.want, p.pause(tc.requests))
		})
	}
}

func TestAPollCountsItsRequests(t *testing.T) {
	for listed, want := range map[int]int{0: 2, 1: 1, 100: 1, 101: 2, 1000: 10} {
		var cloud recycling
		for i := range listed {
			cloud = append(cloud, alicloud.Instance{ID: fmt.Sprintf("i-%d", i), Status: "Running", LockReasons: []string{alicloud.LockRecycling}})
		}
		requests, err := newPoller(t, cloud).poll(t.Context())
		require.NoError(t, err)
		assert.Equal(t, want, requests, "%d listed", listed)
	}
}
