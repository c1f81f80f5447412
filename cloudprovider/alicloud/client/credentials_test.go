package client

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
)

func sessionCredentials(token string) credentials.CredentialsProvider {
	return credentials.NewStaticSTSCredentialsProvider(testKey, testSecret, token)
}

func TestStaticCredentialsOfTheEnvironment(t *testing.T) {
	noCredentials(t)
	t.Setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", testKey)
	t.Setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", testSecret)
	w := newWire(t, func(url.Values) answer { return ok(object{}) })
	_, err := w.client(func(o *rpc.Options) { o.Credentials = nil }).Scale(t.Context(), buy("t"))
	require.NoError(t, err)
	assert.Equal(t, testKey, w.seen("ScaleWithAdjustment")[0].Get("AccessKeyId"))
}

// noCredentials empties the environment of all that the chain looks at.
func noCredentials(t *testing.T) {
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "ALIBABA_CLOUD_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("HOME", t.TempDir())
}

// sts is Alibaba's token service, over TLS; its certificate is trusted until the test ends.
type sts struct {
	*httptest.Server
	assumed atomic.Int32
	answer  func(call int32, form url.Values) (int, any)
}

func newSTS(t *testing.T, reply func(call int32, form url.Values) (int, any)) *sts {
	s := &sts{answer: reply}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.NoError(t, r.ParseForm())
		assert.Equal(t, "AssumeRoleWithOIDC", r.Form.Get("Action"))
		assert.Equal(t, "acs:ram::1:role/autoscaler", r.Form.Get("RoleArn"))
		status, body := s.answer(s.assumed.Add(1), r.Form)
		w.WriteHeader(status)
		_, _ = w.Write(mustJSON(body))
	}))
	t.Cleanup(s.Close)

	// The SDK builds the transport of each exchange from the default one.
	transport := http.DefaultTransport.(*http.Transport)
	before := transport.TLSClientConfig
	transport.TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	t.Cleanup(func() { transport.TLSClientConfig = before })
	return s
}

func withRRSA(t *testing.T) (tokenFile string) {
	noCredentials(t)
	tokenFile = filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(tokenFile, []byte("jwt-1"), 0o600))
	t.Setenv("ALIBABA_CLOUD_ROLE_ARN", "acs:ram::1:role/autoscaler")
	t.Setenv("ALIBABA_CLOUD_OIDC_PROVIDER_ARN", "acs:ram::1:oidc-provider/ack")
	t.Setenv("ALIBABA_CLOUD_OIDC_TOKEN_FILE", tokenFile)
	return tokenFile
}

func assumedRole(call int32, lifetime time.Duration) any {
	return object{"RequestId": "r", "Credentials": object{"AccessKeyId": fmt.Sprint("STS.", call), "AccessKeySecret": testSecret,
		"SecurityToken": fmt.Sprint("session-", call), "Expiration": time.Now().Add(lifetime).UTC().Format("2006-01-02T15:04:05Z")}}
}

func TestRRSA(t *testing.T) {
	tokenFile := withRRSA(t)
	var tokens []string
	s := newSTS(t, func(call int32, form url.Values) (int, any) {
		tokens = append(tokens, form.Get("OIDCToken"))
		return 200, assumedRole(call, 170*time.Second) // so short that the SDK wants to renew at once
	})
	w := newWire(t, func(url.Values) answer { return ok(object{}) })
	clk := clocktesting.NewFakeClock(time.Now())
	c := w.client(func(o *rpc.Options) {
		o.Credentials, o.Clock = nil, clk
		o.Endpoints.STS = strings.TrimPrefix(s.URL, "https://")
	})
	var group sync.WaitGroup
	for n := range 20 {
		group.Go(func() {
			_, err := c.Scale(t.Context(), buy(fmt.Sprint(n)))
			assert.NoError(t, err)
		})
	}
	group.Wait()
	exchanged := s.assumed.Load()
	first := w.seen("ScaleWithAdjustment")
	assert.Equal(t, "session-1", first[0].Get("SecurityToken"))
	assert.Equal(t, "STS.1", first[0].Get("AccessKeyId"))

	require.NoError(t, os.WriteFile(tokenFile, []byte("jwt-2"), 0o600)) // the kubelet rotates it
	clk.Step(30 * time.Second)                                          // after which credentials are read again
	_, err := c.Scale(t.Context(), buy("later"))                        // is signed with the old ones meanwhile
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := c.Scale(t.Context(), buy("again"))
		sent := w.seen("ScaleWithAdjustment")
		return err == nil && sent[len(sent)-1].Get("AccessKeyId") != fmt.Sprint("STS.", exchanged)
	}, 10*time.Second, 10*time.Millisecond)
	assert.Greater(t, s.assumed.Load(), exchanged)
	assert.Equal(t, "jwt-1", tokens[0])
	assert.Equal(t, "jwt-2", tokens[len(tokens)-1], "the token is read anew")
	sent := w.seen("ScaleWithAdjustment")
	last := sent[len(sent)-1]
	assert.Equal(t, strings.Replace(last.Get("AccessKeyId"), "STS.", "session-", 1), last.Get("SecurityToken"))
}

func TestRRSAFailures(t *testing.T) {
	tests := []struct {
		name   string
		status int
		code   string
		class  alicloud.Class
		calls  int32
	}{
		{"a role that does not trust us is final", 400, "AuthenticationFail.NoPermission", alicloud.Unauthorized, 1},
		{"a role that is not there is final", 404, "EntityNotExist.Role", alicloud.Unauthorized, 1},
		{"a token that is refused is final", 400, "InvalidParameter.OIDCToken", alicloud.Unauthorized, 1},
		{"a service that throttles by its code is tried again", 400, "Throttling.User", alicloud.Throttled, 3},
		{"a service that throttles by its status is tried again", 429, "TooMany", alicloud.Throttled, 3},
		{"a service that is down is tried again", 503, "ServiceUnavailable", alicloud.Unavailable, 3},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			withRRSA(t)
			s := newSTS(t, func(int32, url.Values) (int, any) {
				return test.status, object{"RequestId": "r-9", "Code": test.code, "Message": "no"}
			})
			w := newWire(t, func(url.Values) answer { return ok(object{}) })
			_, err := w.client(func(o *rpc.Options) {
				o.Credentials, o.Endpoints.STS = nil, strings.TrimPrefix(s.URL, "https://")
			}).Scale(t.Context(), buy("t"))
			var e *alicloud.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, test.class, e.Class)
			assert.Equal(t, test.code, e.Code)
			assert.Equal(t, "r-9", e.RequestID)
			assert.Equal(t, test.calls, s.assumed.Load())
			assert.Empty(t, w.seen("ScaleWithAdjustment"), "nothing is sent unsigned, and no other role is used")
		})
	}
}
