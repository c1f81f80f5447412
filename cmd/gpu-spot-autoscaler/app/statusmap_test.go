package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/problems"
	"gpu-spot-autoscaler/cloudprovider/processors/explain"
	"gpu-spot-autoscaler/cloudprovider/status"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/ack"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/serving"
)

// discardedEvents discards Events.
type discardedEvents struct{}

func (discardedEvents) Eventf(string, string, string, ...any) {}

// reporter is a writer of a board, and its ConfigMap.
func reporter(client *fake.Clientset) *statusWriter {
	return &statusWriter{client: client, namespace: "kube-system", name: "a-status", identity: "a-0",
		board: problems.NewBoard(discardedEvents{}, clock.RealClock{}), clock: clock.RealClock{}}
}

func statusIn(t *testing.T, client *fake.Clientset) string {
	t.Helper()
	configMap, err := client.CoreV1().ConfigMaps("kube-system").Get(context.Background(), "a-status", metav1.GetOptions{})
	require.NoError(t, err)
	return configMap.Data["status"]
}

func TestStatusIsWrittenWhenItChangesAndNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var away atomic.Bool
		var writes atomic.Int32
		client.PrependReactor("update", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			writes.Add(1)
			return away.Load(), nil, errors.New("no connection")
		})
		s := reporter(client)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.run(ctx) }()
		defer func() { cancel(); <-done }()
		synctest.Wait()
		assert.Contains(t, statusIn(t, client), "leader: a-0")
		assert.Contains(t, statusIn(t, client), "ready: false")

		away.Store(true)
		s.board.Update(problems.Poll, problems.Problem{Reason: "clock_skew", Cause: "wrong", Fix: "Set it."})
		time.Sleep(time.Minute)
		away.Store(false)
		time.Sleep(2 * statusPause)
		assert.Contains(t, statusIn(t, client), "reason: clock_skew", "what failed is tried again")

		before := writes.Load()
		time.Sleep(time.Hour)
		assert.InDelta(t, int(time.Hour/statusAge), int(writes.Load()-before), 1, "so that a status without a writer is known")
		s.board.Update(problems.Poll)
		s.board.Update(problems.Refresh)
		time.Sleep(2 * statusPause)
		assert.Contains(t, statusIn(t, client), "ready: true")
		assert.Contains(t, statusIn(t, client), "problems: []")
	})
}

func TestStatusIsBounded(t *testing.T) {
	s := reporter(fake.NewClientset())
	var many []problems.Problem
	for n := range 5000 {
		many = append(many, problems.Problem{Pool: fmt.Sprint("asg-", n), Reason: "tags", Cause: strings.Repeat("é", 5000)})
	}
	s.board.Update(problems.Pools, many...)
	text := s.render(time.Now())
	assert.Less(t, len(text), 200<<10, "an object holds 1 MiB")
	assert.Contains(t, text, "leftOut: 4950")
}

// unlisted are pods that cannot be listed.
type unlisted struct{ corelisters.PodLister }

func (unlisted) List(labels.Selector) ([]*apiv1.Pod, error) { return nil, errors.New("no cache") }

func TestTheStatusSaysWhetherItIsKnownWhichPodsWait(t *testing.T) {
	none := corelisters.NewPodLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}))
	for want, p := range map[string]*parts{
		"":                          {explainer: explain.New(explain.Config{Pods: none})},
		status.PendingUnknownFailed: {explainer: explain.New(explain.Config{Pods: unlisted{}})},
		status.PendingUnknownServed: {},
	} {
		said := &status.Status{Pending: []status.PendingPod{}}
		p.describePending(said)
		assert.Equal(t, want, said.PendingUnknown)
		assert.NotNil(t, said.Pending, "lists are never null")
	}
}

func TestALeaderWithoutACoreSaysWhoExplainsPods(t *testing.T) {
	explanations, answer := &serving.Explanations{}, httptest.NewRecorder()
	(&parts{}).explain(t.Context(), explanations)
	explanations.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, explain.Path+"?namespace=default&name=train-0", nil))
	assert.Equal(t, http.StatusNotImplemented, answer.Code)
	assert.Contains(t, answer.Body.String(), "the Events of the Cluster Autoscaler that is served say it")
}

func TestWhatACKsAutoscalerManages(t *testing.T) {
	for name, test := range map[string]struct {
		namespace string
		data      string
		want      bool
	}{
		"the group":                     {"kube-system", `{"scaling_configurations":{"asg-1":{"id":"asg-1"}}}`, true},
		"another whose name begins so":  {"kube-system", `{"scaling_configurations":{"asg-12":{"id":"asg-12"}}}`, false},
		"where it cannot be looked at":  {"elsewhere", `{"scaling_configurations":{"asg-1":{"id":"asg-1"}}}`, false},
		"what nobody knows the form of": {"kube-system", "asg-1", false},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(&apiv1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: ack.Meta}, Data: map[string]string{"autoscaler-meta": test.data},
			})
			ack := newACKAutoscaler(client, test.namespace)
			ack.informers.Start(t.Context().Done())
			ack.informers.WaitForCacheSync(t.Context().Done())
			assert.Equal(t, test.want, ack.manages("asg-1") != "")
		})
	}
}
