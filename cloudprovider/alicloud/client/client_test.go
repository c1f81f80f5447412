package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
)

func buy(token string) alicloud.ScaleRequest {
	return alicloud.ScaleRequest{ScalingGroupID: "asg-1", Delta: 2, ClientToken: token}
}

func TestRetries(t *testing.T) {
	done := ok(object{"ScalingActivityId": "asa-1"})
	tests := []struct {
		name     string
		answers  []answer
		attempts int
		class    alicloud.Class // "" means it succeeds
		code     string
	}{
		{"success is not repeated", []answer{done}, 1, "", ""},
		{"throttling is retried", []answer{refuse(400, "Throttling.User"), done}, 2, "", ""},
		{"a server error is retried", []answer{refuse(500, "InternalError"), done}, 2, "", ""},
		{"an overloaded service is retried", []answer{refuse(503, "ServiceUnavailable"), done}, 2, "", ""},
		{"a broken connection is retried", []answer{{cut: true}, done}, 2, "", ""},
		{"a success that is not JSON is retried", []answer{{status: 200, body: "<html>login</html>"}, done}, 2, "", ""},
		{"an empty success is retried", []answer{{status: 200}, done}, 2, "", ""},
		{"a success that is no object is retried", []answer{{status: 200, body: `"fine"`}, done}, 2, "", ""},
		{"a bad gateway is retried", []answer{{status: 502, body: "<html>bad gateway</html>"}, done}, 2, "", ""},
		{"it ends after the last attempt", []answer{refuse(400, "Throttling.User")}, 3, alicloud.Throttled, "Throttling.User"},
		{"a body that stays strange is unavailable", []answer{{status: 200, body: "<html>"}}, 3, alicloud.Unavailable, alicloud.CodeNotJSON},
		{"a reply of the wrong shape is unavailable", []answer{{status: 200, body: `{"ScalingActivityId":{}}`}}, 3, alicloud.Unavailable, alicloud.CodeNotJSON},
		{"a connection that stays broken is unavailable", []answer{{cut: true}}, 3, alicloud.Unavailable, alicloud.CodeNetwork},
		{"a refusal is final", []answer{refuse(400, "OperationDenied.NoStock")}, 1, alicloud.Stockout, "OperationDenied.NoStock"},
		{"a conflict is the caller's to wait for", []answer{refuse(400, "ScalingActivityInProgress")}, 1, alicloud.Conflict, "ScalingActivityInProgress"},
		{"an unknown code is final", []answer{refuse(400, "Surprise")}, 1, alicloud.Unknown, "Surprise"},
		{"a client error without code is final", []answer{{status: 400, body: "no"}}, 1, alicloud.Unknown, alicloud.CodeHTTP},
		{"a forbidden page is unauthorized", []answer{{status: 403, body: "<html>"}}, 1, alicloud.Unauthorized, alicloud.CodeHTTP},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWire(t, inTurn(test.answers...))
			scaled, err := w.client().Scale(t.Context(), buy("token-1"))

			sent := w.seen("ScaleWithAdjustment")
			assert.Len(t, sent, test.attempts)
			for _, q := range sent {
				assert.Equal(t, "token-1", q.Get("ClientToken"), "a purchase is repeated under its own token only")
			}
			if test.class == "" {
				require.NoError(t, err)
				assert.Equal(t, "asa-1", scaled.ActivityID)
				return
			}
			var e *alicloud.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, test.class, e.Class)
			assert.Equal(t, test.code, e.Code)
			assert.Equal(t, test.class, alicloud.ClassOf(fmt.Errorf("wrapped: %w", err)))
			assert.Contains(t, err.Error(), "ess ScaleWithAdjustment")
		})
	}
}

func TestEveryAttemptIsSignedAnew(t *testing.T) {
	w := newWire(t, inTurn(refuse(503, "ServiceUnavailable"), refuse(503, "ServiceUnavailable"), ok(object{})))
	_, err := w.client().Remove(t.Context(), alicloud.RemoveRequest{ScalingGroupID: "asg-1", InstanceIDs: []string{"i-1"}})
	require.NoError(t, err)
	nonces, tokens := map[string]bool{}, map[string]bool{}
	for _, q := range w.seen("RemoveInstances") {
		nonces[q.Get("SignatureNonce")] = true
		tokens[q.Get("ClientToken")] = true
	}
	assert.Len(t, nonces, 3)
	assert.Len(t, tokens, 1, "one token was made up and kept")
}

func TestTimeoutOfOneAttempt(t *testing.T) {
	w := newWire(t, inTurn(answer{hang: true}, ok(object{"ScalingActivityId": "asa-1"})))
	scaled, err := w.client(func(o *rpc.Options) { o.Timeout = 50 * time.Millisecond }).Scale(t.Context(), buy("t"))
	require.NoError(t, err)
	assert.Equal(t, "asa-1", scaled.ActivityID)

	w = newWire(t, inTurn(answer{hang: true}))
	_, err = w.client(func(o *rpc.Options) { o.Timeout = 20 * time.Millisecond }).Scale(t.Context(), buy("t"))
	var e *alicloud.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, alicloud.CodeTimeout, e.Code)
	assert.Equal(t, alicloud.Unavailable, e.Class)
	assert.Len(t, w.seen("ScaleWithAdjustment"), 3)
}

func TestCancelEndsACall(t *testing.T) {
	tests := []struct {
		name    string
		answer  answer
		options func(*rpc.Options)
	}{
		{"on the wire", answer{hang: true}, func(*rpc.Options) {}},
		{"between attempts", refuse(503, "ServiceUnavailable"), func(o *rpc.Options) { o.Retry.Duration = time.Hour }},
		{"while throttled", ok(object{}), func(o *rpc.Options) {
			o.RateLimits = map[string]rpc.Limit{"ScaleWithAdjustment": {PerSecond: .0001, Burst: 1}}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w := newWire(t, func(url.Values) answer { return test.answer })
			c := w.client(test.options)
			result := make(chan error, 1)
			go func() {
				for {
					if _, err := c.Scale(ctx, buy("t")); err != nil {
						result <- err
						return
					}
				}
			}()
			require.Eventually(t, func() bool { return len(w.seen("ScaleWithAdjustment")) > 0 }, 5*time.Second, time.Millisecond)
			cancel()
			select {
			case err := <-result:
				assert.Equal(t, alicloud.Unavailable, alicloud.ClassOf(err))
				if test.name != "between attempts" { // there the last refusal says more
					assert.ErrorIs(t, err, context.Canceled)
				}
			case <-time.After(5 * time.Second):
				t.Fatal("the call did not end")
			}
			assert.Len(t, w.seen("ScaleWithAdjustment"), 1)
		})
	}
}

func TestADeadContextSendsNothing(t *testing.T) {
	w := newWire(t, func(url.Values) answer { return ok(object{}) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := w.client().ScalingGroups(ctx, alicloud.GroupFilter{})
	assert.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, w.seen("DescribeScalingGroups"))
}

func TestThrottlingFollowsTheClock(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	w := newWire(t, func(url.Values) answer { return ok(object{"ScalingActivityId": "a"}) })
	c := w.client(func(o *rpc.Options) {
		o.Clock = clk
		o.RateLimits = map[string]rpc.Limit{"ScaleWithAdjustment": {PerSecond: 1, Burst: 2}}
	})
	for _, token := range []string{"1", "2"} {
		_, err := c.Scale(t.Context(), buy(token))
		require.NoError(t, err, "the burst goes at once")
	}
	for n := 3; n <= 4; n++ {
		sent := make(chan error, 1)
		go func() {
			_, err := c.Scale(t.Context(), buy(fmt.Sprint(n)))
			sent <- err
		}()
		require.Eventually(t, clk.HasWaiters, 5*time.Second, time.Millisecond)
		assert.Len(t, w.seen("ScaleWithAdjustment"), n-1, "the next has to wait")
		clk.Step(time.Second)
		require.NoError(t, <-sent)
	}
}

func TestManyGoroutines(t *testing.T) {
	instances := scalingInstances(120)
	w := newWire(t, func(q url.Values) answer {
		if q.Get("Action") == "ScaleWithAdjustment" {
			return ok(object{"ScalingActivityId": "asa-" + q.Get("ClientToken")})
		}
		return pageOf(q, "ScalingInstances", "ScalingInstance", instances)
	})
	plenty := rpc.Limit{PerSecond: 1e6, Burst: 1e6}
	c := w.client(func(o *rpc.Options) {
		o.RateLimits = map[string]rpc.Limit{"ScaleWithAdjustment": plenty, "DescribeScalingInstances": plenty}
	})
	var group sync.WaitGroup
	for n := range 100 {
		group.Go(func() {
			token := fmt.Sprint(n)
			scaled, err := c.Scale(t.Context(), buy(token))
			assert.NoError(t, err)
			assert.Equal(t, "asa-"+token, scaled.ActivityID, "replies are not mixed up")
			got, err := c.ScalingInstances(t.Context(), alicloud.InstanceFilter{})
			assert.NoError(t, err)
			assert.Len(t, got, len(instances))
		})
	}
	group.Wait()
}

func TestErrorsTellNoSecrets(t *testing.T) {
	const token = "sts-token-never-shown"
	echo := fmt.Sprintf(`the signature is not right; server string to sign is:POST&%%2F&AccessKeyId%%3D%s%%26SecurityToken%%3D%s`, testKey, token)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	tests := []struct {
		name   string
		answer func(q url.Values) answer
		change func(*rpc.Options)
	}{
		{"in a signature error", func(url.Values) answer {
			return answer{status: 400, body: string(mustJSON(object{"Code": "SignatureDoesNotMatch", "Message": echo}))}
		}, nil},
		{"in an echo of the URL", func(q url.Values) answer {
			return answer{status: 400, body: string(mustJSON(object{"Code": "InvalidParameter", "Message": "bad: ?" + q.Encode()}))}
		}, nil},
		{"in a body that is not JSON", func(q url.Values) answer {
			return answer{status: 200, body: "SecurityToken=" + q.Get("SecurityToken")}
		}, nil},
		{"in a network error", nil, func(o *rpc.Options) { o.Endpoints.ESS = strings.TrimPrefix(closed.URL, "http://") }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			signed := ""
			w := newWire(t, func(q url.Values) answer {
				signed = q.Get("Signature")
				return test.answer(q)
			})
			c := w.client(func(o *rpc.Options) {
				o.Credentials = sessionCredentials(token)
				if test.change != nil {
					test.change(o)
				}
			})
			_, err := c.Scale(t.Context(), buy("t"))
			require.Error(t, err)
			texts := []string{err.Error(), fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", errors.Unwrap(err))}
			for _, text := range texts {
				assert.NotContains(t, text, testSecret)
				assert.NotContains(t, text, token)
				if signed != "" {
					assert.NotContains(t, text, signed)
					assert.NotContains(t, text, url.QueryEscape(signed))
				}
			}
		})
	}
}

func TestHTTPSUnlessToldOtherwise(t *testing.T) {
	w := &wire{t: t, answer: func(url.Values) answer { return ok(object{"ScalingActivityId": "asa-1"}) }}
	w.Server = httptest.NewUnstartedServer(w)
	w.Config.ErrorLog = log.New(io.Discard, "", 0) // the refused handshakes are expected
	w.StartTLS()
	defer w.Close()
	scaled, err := w.client(func(o *rpc.Options) {
		o.Scheme, o.Transport = "", w.Client().Transport
		o.Endpoints.ESS = strings.TrimPrefix(w.URL, "https://")
	}).Scale(t.Context(), buy("t"))
	require.NoError(t, err)
	assert.Equal(t, "asa-1", scaled.ActivityID)

	_, err = w.client(func(o *rpc.Options) { o.Scheme, o.Endpoints.ESS = "https", strings.TrimPrefix(w.URL, "https://") }).Scale(t.Context(), buy("t"))
	assert.Equal(t, alicloud.Unavailable, alicloud.ClassOf(err), "a certificate nobody vouches for is refused")
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	rpc.RegisterMetrics(registry)
	classes := map[string]alicloud.Class{"Throttling.User": alicloud.Throttled, "Other": alicloud.Unavailable, "OK": ""}
	requests := func(code string) uint64 {
		return observations(t, registry, "gpu_spot_cloud_request_duration_seconds",
			map[string]string{"service": "ess", "action": "ScaleWithAdjustment", "code": code, "class": string(classes[code])})
	}
	throttled := func() uint64 {
		return observations(t, registry, "gpu_spot_cloud_throttle_wait_seconds", map[string]string{"service": "ess", "action": "ScaleWithAdjustment"})
	}
	before, throttledBefore := map[string]uint64{}, throttled() // the metrics are those of the process
	for code := range classes {
		before[code] = requests(code)
	}
	w := newWire(t, inTurn(refuse(400, "Throttling.User"), refuse(500, "Surprise"), ok(object{})))
	_, err := w.client().Scale(t.Context(), buy("t"))
	require.NoError(t, err)

	for code := range classes {
		assert.Equal(t, uint64(1), requests(code)-before[code], code)
	}
	assert.Equal(t, uint64(3), throttled()-throttledBefore)
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	assert.Empty(t, problems)
}

func TestRequestsSayWhoMakesThem(t *testing.T) {
	said := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		said <- in.UserAgent()
		_, _ = io.WriteString(out, `{"ScalingActivityId":"asa-1"}`)
	}))
	t.Cleanup(server.Close)
	client := newWire(t, nil).client(func(o *rpc.Options) {
		o.UserAgent, o.Endpoints.ESS = "training-team", strings.TrimPrefix(server.URL, "http://")
	})
	_, err := client.Scale(t.Context(), buy("token-1"))
	require.NoError(t, err)
	assert.Contains(t, <-said, "training-team")
}

func observations(t *testing.T, registry *prometheus.Registry, name string, labels map[string]string) uint64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
	next:
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if labels[label.GetName()] != label.GetValue() {
					continue next
				}
			}
			return metric.GetHistogram().GetSampleCount()
		}
	}
	return 0
}
