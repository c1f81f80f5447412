package app

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	testingclock "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// world is an agent with a Node, and who asks it. It is morning.
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
		p.learn(c.deadline)
		answer := p.ask("127.0.0.1", "GET", "/v1/reclaim", "")
		assert.Equal(t, 200, answer.Code, name)
		assert.Equal(t, "application/json", answer.Header().Get("Content-Type"), name)
		assert.JSONEq(t, c.want, answer.Body.String(), name)
	}
}

func TestWordIsAcknowledgedOnlyWhenItIsWritten(t *testing.T) {
	for name, c := range map[string]struct {
		body   string
		notice time.Time
		api    error
		want   int
	}{
		"an id":                       {`{"id": "a"}`, morning, nil, 204},
		"a pod":                       {`{"namespace": "default", "pod": "train-0"}`, morning, nil, 204},
		"an id, on a node that stays": {`{"id": "a"}`, time.Time{}, nil, 204},
		"a pod, on a node that stays": {`{"namespace": "default", "pod": "train-0"}`, time.Time{}, nil, 409},
		"the API server is away":      {`{"id": "a"}`, morning, errAway, 503},
		"no body":                     {``, morning, nil, 400},
		"no JSON":                     {`id=a`, morning, nil, 400},
		"an unknown field":            {`{"ID2": "a"}`, morning, nil, 400},
		"an id of another kind":       {`{"id": 1}`, morning, nil, 400},
		"a forged list":               {`{"id": "a,b"}`, morning, nil, 400},
		"a body without end":          {`{"id": "` + strings.Repeat("a", maxRequestBody) + `"}`, morning, nil, 413},
	} {
		p := newPods()
		p.learn(c.notice)
		p.node.err = c.api
		answer := p.ask("127.0.0.1", "POST", "/v1/checkpoint-acknowledged", c.body)
		assert.Equal(t, c.want, answer.Code, "%s: %s", name, answer.Body)
		assert.Equal(t, c.want == 204, p.node.node.Annotations[api.AnnotationCheckpointAcknowledged] != "", name)
	}
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
		"a pod of the node":                   {from: "10.1.2.7", podCIDRs: flannel, want: 200},
		"a pod of the node, by IPv6":          {from: "fd00::7", podCIDRs: flannel, want: 200},
		"a pod of the node, mapped":           {from: "::ffff:10.1.2.7", podCIDRs: flannel, want: 200},
		"a pod of another node":               {from: "10.1.3.7", podCIDRs: flannel, want: 403},
		"another node":                        {from: "10.0.0.6", podCIDRs: flannel, want: 403},
		"the node itself":                     {from: "10.0.0.5", podCIDRs: flannel, want: 200},
		"the node itself, by loopback":        {from: "127.0.0.1", podCIDRs: flannel, want: 200},
		"anybody where nodes have no network": {from: "10.1.3.7", podCIDRs: terway, want: 200},
		"anybody before the Node was read":    {from: "10.1.3.7", unread: true, want: 200},
		"networks that cannot be read":        {from: "10.1.3.7", podCIDRs: []string{"?"}, want: 200},
		"who is given":                        {from: "10.9.1.1", podCIDRs: flannel, allow: given, want: 200},
		"who is not given":                    {from: "10.1.2.7", podCIDRs: flannel, allow: given, want: 403},
		"the node itself, though not given":   {from: "10.0.0.5", allow: given, want: 200},
	} {
		p := newPods()
		p.learn(morning)
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

func TestTooManyWordsAtOnceAreRefused(t *testing.T) {
	p := newPods()
	p.learn(morning)
	codes := map[int]int{}
	for range 3 * wordsBurst {
		codes[p.ask("127.0.0.1", "POST", "/v1/checkpoint-acknowledged", `{"id": "a"}`).Code]++
	}
	assert.GreaterOrEqual(t, codes[204], wordsBurst)
	assert.Positive(t, codes[429])
	assert.Equal(t, 200, p.ask("127.0.0.1", "GET", "/v1/reclaim", "").Code, "questions are cheap")
}

func TestMetricsTellTheDeadline(t *testing.T) {
	p := newPods()
	p.learn(morning)
	answer := p.ask("10.0.0.9", "GET", "/metrics", "").Body.String()
	assert.Contains(t, answer, "# TYPE gpu_spot_agent_notice_deadline_timestamp_seconds gauge\ngpu_spot_agent_notice_deadline_timestamp_seconds 1767603600\n")
	p.learn(time.Time{})
	assert.Contains(t, p.ask("10.0.0.9", "GET", "/metrics", "").Body.String(), "gpu_spot_agent_notice_deadline_timestamp_seconds 0\n")
}

func TestOtherMethodsAndPathsAreRefused(t *testing.T) {
	p := newPods()
	assert.Equal(t, 405, p.ask("127.0.0.1", "POST", "/v1/reclaim", "").Code)
	assert.Equal(t, 405, p.ask("127.0.0.1", "GET", "/v1/checkpoint-acknowledged", "").Code)
	assert.Equal(t, 404, p.ask("127.0.0.1", "GET", "/v2/reclaim", "").Code)
}
