package app

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	testingclock "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// pods are an agent with a Node, and who asks it. It is morning.
type pods struct {
	*agent
	node *memoryNode
	http.Handler
}

func newPods() *pods {
	n := newMemoryNode(time.Hour, nil)
	a := newAgent(&instance{}, n, testingclock.NewFakeClock(morning), usualPace)
	return &pods{a, n, a.handler(a.podOfThisNode)}
}

// ask sends a request from an address to the node's, which is 10.0.0.5.
func (p *pods) ask(from, method, path, body string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, path, strings.NewReader(body))
	request.RemoteAddr = net.JoinHostPort(from, "1234")
	local := &net.TCPAddr{IP: net.ParseIP("10.0.0.5"), Port: 8790}
	answer := httptest.NewRecorder()
	p.ServeHTTP(answer, request.WithContext(context.WithValue(request.Context(), http.LocalAddrContextKey, local)))
	return answer
}

func TestPodsAreToldTheDeadlineAndTheSecondsLeft(t *testing.T) {
	for name, c := range map[string]struct {
		deadline time.Time
		want     string
	}{
		"no notice":      {time.Time{}, `{"deadline": null, "seconds_left": null}`},
		"a notice":       {morning.Add(5 * time.Minute), `{"deadline": "2026-01-05T09:05:00Z", "seconds_left": 300}`},
		"the end is now": {morning.Add(-time.Minute), `{"deadline": "2026-01-05T08:59:00Z", "seconds_left": 0}`},
	} {
		p := newPods()
		p.learn(t.Context(), c.deadline)
		answer := p.ask("127.0.0.1", "GET", "/v1/reclaim", "")
		assert.Equal(t, 200, answer.Code, name)
		assert.Equal(t, "application/json", answer.Header().Get("Content-Type"), name)
		assert.JSONEq(t, c.want, answer.Body.String(), name)
	}
}

func TestPodsAreToldTheIntervalThatTheyAreAdvised(t *testing.T) {
	p := newPods()
	p.node.node.Annotations = map[string]string{api.AnnotationCheckpointIntervals: aPod + "=56m40s,host=1m0s,odd," + anotherPod + "=soon"}
	ctx, cancel := context.WithCancel(t.Context())
	var loops sync.WaitGroup
	loops.Go(func() { p.keepIntervals(ctx) })
	assert.Eventually(t, func() bool { return p.intervalOf(aPod) > 0 }, 10*time.Second, time.Millisecond)
	cancel()
	loops.Wait()
	for from, want := range map[string]string{
		aPod:       `{"deadline": null, "seconds_left": null, "checkpoint_interval_seconds": 3400}`,
		anotherPod: `{"deadline": null, "seconds_left": null}`,
		"10.0.0.5": `{"deadline": null, "seconds_left": null, "checkpoint_interval_seconds": 60}`,
	} {
		assert.JSONEq(t, want, p.ask(from, "GET", "/v1/reclaim", "").Body.String(), from)
	}
}

func TestAcknowledgementIsTakenOnlyWhenItIsWritten(t *testing.T) {
	for name, c := range map[string]struct {
		from, body string
		api        error
		want       int
	}{
		"an id":                         {aPod, `{"id": "a"}`, nil, 204},
		"a pod":                         {aPod, `{"namespace": "default", "pod": "train-0"}`, nil, 204},
		"an id, from the node":          {"10.0.0.5", `{"id": "a"}`, nil, 204},
		"a pod, from the node":          {"10.0.0.5", `{"namespace": "default", "pod": "train-0"}`, nil, 409},
		"an id that nobody asked for":   {aPod, `{"id": "b"}`, nil, 409},
		"an id, from another":           {anotherPod, `{"id": "a"}`, nil, 409},
		"a pod, from another":           {anotherPod, `{"namespace": "default", "pod": "train-0"}`, nil, 409},
		"the API server is away":        {aPod, `{"id": "a"}`, errAway, 503},
		"no body":                       {aPod, ``, nil, 400},
		"no JSON":                       {aPod, `id=a`, nil, 400},
		"an unknown field":              {aPod, `{"ID2": "a"}`, nil, 400},
		"an id of another kind":         {aPod, `{"id": 1}`, nil, 400},
		"a forged list":                 {aPod, `{"id": "a,b"}`, nil, 400},
		"a forged caller":               {aPod, `{"id": "a@10.1.2.8"}`, nil, 400},
		"a body without end":            {aPod, `{"id": "` + strings.Repeat("a", maxRequestBody) + `"}`, nil, 413},
		"a body without end, not asked": {anotherPod, `{"id": "` + strings.Repeat("a", maxRequestBody) + `"}`, nil, 413},
	} {
		p := newPods()
		p.node.node.Annotations = awaitedFrom("a", aPod, api.CallerHost)
		p.node.err = c.api
		answer := p.ask(c.from, "POST", "/v1/checkpoint-acknowledged", c.body)
		assert.Equal(t, c.want, answer.Code, "%s: %s", name, answer.Body)
		assert.Equal(t, c.want == 204, p.node.node.Annotations[api.AnnotationCheckpointAcknowledged] != "", name)
	}
}

func TestAcknowledgementIsWrittenWithTheAddressOfItsCaller(t *testing.T) {
	p := newPods()
	p.node.node.Annotations = awaitedFrom("a", aPod, "fd00::7", api.CallerHost)
	for _, from := range []string{"::ffff:" + aPod, "fd00:0::7", "10.0.0.5"} {
		assert.Equal(t, 204, p.ask(from, "POST", "/v1/checkpoint-acknowledged", `{"id": "a"}`).Code, from)
	}
	assert.Equal(t, "a@10.1.2.7,a@fd00::7,a@host", p.node.node.Annotations[api.AnnotationCheckpointAcknowledged])
}

func TestOnlyPodsOfTheNodeAreAnsweredWhereThatCanBeTold(t *testing.T) {
	flannel, terway := []string{"10.1.2.0/24", "fd00::/64"}, []string(nil)
	given := []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}
	for name, c := range map[string]struct {
		from     string
		podCIDRs []string
		allow    []netip.Prefix
		unread   bool
		want     int
	}{
		"a pod of the node":                 {from: "10.1.2.7", podCIDRs: flannel, want: 200},
		"a pod of the node, by IPv6":        {from: "fd00::7", podCIDRs: flannel, want: 200},
		"a pod of the node, mapped":         {from: "::ffff:10.1.2.7", podCIDRs: flannel, want: 200},
		"a pod of another node":             {from: "10.1.3.7", podCIDRs: flannel, want: 403},
		"another node":                      {from: "10.0.0.6", podCIDRs: flannel, want: 403},
		"the node itself":                   {from: "10.0.0.5", podCIDRs: flannel, want: 200},
		"an address that is no pod's":       {from: "127.0.0.1", podCIDRs: flannel, want: 403},
		"anybody if nodes have no network":  {from: "10.1.3.7", podCIDRs: terway, want: 200},
		"anybody before the Node was read":  {from: "10.1.3.7", unread: true, want: 200},
		"networks that cannot be read":      {from: "10.1.3.7", podCIDRs: []string{"?"}, want: 200},
		"who is given":                      {from: "10.9.1.1", podCIDRs: flannel, allow: given, want: 200},
		"who is not given":                  {from: "10.1.2.7", podCIDRs: flannel, allow: given, want: 403},
		"the node itself, though not given": {from: "10.0.0.5", allow: given, want: 200},
	} {
		p := newPods()
		if caller, err := netip.ParseAddr(c.from); err == nil {
			p.node.node.Annotations = awaitedFrom("a", caller.Unmap().String(), api.CallerHost)
		}
		if !c.unread {
			p.self = &node{}
			p.self.Spec.PodCIDRs = c.podCIDRs
		}
		if c.allow != nil {
			p.Handler = p.handler(among(c.allow))
		}
		assert.Equal(t, c.want, p.ask(c.from, "GET", "/v1/reclaim", "").Code, name)
		answer := p.ask(c.from, "POST", "/v1/checkpoint-acknowledged", `{"id": "a"}`)
		assert.Equal(t, c.want == 200, answer.Code == 204, "%s: %d", name, answer.Code)
		assert.Equal(t, 200, p.ask(c.from, "GET", "/healthz", "").Code, "%s: the kubelet asks from anywhere", name)
	}
}

func TestTooManyAcknowledgementsAtOnceAreRefusedToWhoeverSendsThem(t *testing.T) {
	p := newPods()
	p.node.node.Annotations = awaitedFrom("a", aPod, anotherPod, api.CallerHost)
	flood := func(from, body string, times int) (codes map[int]int) {
		codes = map[int]int{}
		for range times {
			codes[p.ask(from, "POST", "/v1/checkpoint-acknowledged", body).Code]++
		}
		return codes
	}
	codes := flood(aPod, `{"id": "a"}`, 3*acknowledgementsBurst)
	assert.Equal(t, map[int]int{204: acknowledgementsBurst, 429: 2 * acknowledgementsBurst}, codes)
	flood("10.0.0.5", `{"id": "forged"}`, 3*requestsBurst)
	flood("10.1.2.9", `{"id": "a"}`, 3*requestsBurst)
	assert.Equal(t, 204, p.ask(anotherPod, "POST", "/v1/checkpoint-acknowledged", `{"id": "a"}`).Code, "another pod is heard")
	assert.Equal(t, 204, p.ask("10.0.0.5", "POST", "/v1/checkpoint-acknowledged", `{"id": "a"}`).Code, "and one on the node's network")
}

func TestTooManyQuestionsAtOnceAreRefusedToWhoeverAsksThem(t *testing.T) {
	p := newPods()
	codes := map[int]int{}
	for range 3 * requestsBurst {
		codes[p.ask(aPod, "GET", "/v1/reclaim", "").Code]++
	}
	assert.Equal(t, map[int]int{200: requestsBurst, 429: 2 * requestsBurst}, codes)
	assert.Equal(t, 200, p.ask(anotherPod, "GET", "/v1/reclaim", "").Code)
	assert.Equal(t, 200, p.ask(aPod, "GET", "/healthz", "").Code)
}

func TestTooManyQuestionsOfTheNodeItselfAreRefused(t *testing.T) {
	p := newPods()
	codes := map[int]int{}
	for range hostRequestsBurst + 100 {
		codes[p.ask("10.0.0.5", "GET", "/v1/reclaim", "").Code]++
	}
	assert.Equal(t, map[int]int{200: hostRequestsBurst, 429: 100}, codes)
	assert.Equal(t, 200, p.ask(aPod, "GET", "/v1/reclaim", "").Code)
	assert.Equal(t, 200, p.ask("10.0.0.5", "GET", "/healthz", "").Code)
}

func TestMetricsTellTheDeadline(t *testing.T) {
	p := newPods()
	p.learn(t.Context(), morning)
	answer := p.ask("10.0.0.9", "GET", "/metrics", "").Body.String()
	assert.Contains(t, answer, "# TYPE gpu_spot_agent_notice_deadline_timestamp_seconds gauge\ngpu_spot_agent_notice_deadline_timestamp_seconds 1767603600\n")
	p.learn(t.Context(), time.Time{})
	assert.Contains(t, p.ask("10.0.0.9", "GET", "/metrics", "").Body.String(), "gpu_spot_agent_notice_deadline_timestamp_seconds 0\n")
}

func TestOtherMethodsAndPathsAreRefused(t *testing.T) {
	p := newPods()
	assert.Equal(t, 405, p.ask("127.0.0.1", "POST", "/v1/reclaim", "").Code)
	assert.Equal(t, 405, p.ask("127.0.0.1", "GET", "/v1/checkpoint-acknowledged", "").Code)
	assert.Equal(t, 404, p.ask("127.0.0.1", "GET", "/v2/reclaim", "").Code)
}

func TestTheAgentWaitsForRequestsUnderWayWhenItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		listener := &pipeListener{accepted: make(chan net.Conn, 1)}
		listener.accepted <- server
		ctx, cancel := context.WithCancel(t.Context())
		ended, answer := make(chan error, 1), make(chan string, 1)
		go func() {
			ended <- serve(ctx, listener, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(shutdownGrace - time.Second) }))
		}()
		go func() {
			_, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: us\r\n\r\n")
			text, _ := io.ReadAll(client)
			answer <- string(text)
		}()
		synctest.Wait()
		began := time.Now()
		cancel()
		assert.NoError(t, <-ended)
		assert.GreaterOrEqual(t, time.Since(began), shutdownGrace-time.Second)
		assert.Contains(t, <-answer, "200 OK")
	})
}

// pipeListener is a listener to which somebody connects for each connection in it.
type pipeListener struct {
	accepted chan net.Conn
	once     sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	if conn, ok := <-l.accepted; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.accepted) })
	return nil
}

func (*pipeListener) Addr() net.Addr { return &net.TCPAddr{} }
