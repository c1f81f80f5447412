package rpc

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	sdkcredentials "github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// away is the network and the source of credentials. Neither answers, and requests are counted.
type away struct{ requests int }

func (a *away) RoundTrip(*http.Request) (*http.Response, error) {
	a.requests++
	return nil, errors.New("connection reset by peer")
}

func (*away) GetCredentials() (*sdkcredentials.Credentials, error) {
	return nil, &timeoutError{errors.New("STS is away")}
}

func (*away) GetProviderName() string { return "away" }

type timeoutError struct{ error }

func (*timeoutError) Timeout() bool   { return true }
func (*timeoutError) Temporary() bool { return true }

func TestOnlyARequestThatWasSentMayHaveBeenCarriedOut(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx       context.Context
		change    func(*Options)
		prepare   func(*Caller)
		class     alicloud.Class
		uncertain bool
		requests  int
	}{
		"it was sent and not answered":        {ctx: t.Context(), class: alicloud.Unavailable, uncertain: true, requests: 2},
		"the caller gave up before its turn":  {ctx: ended, class: alicloud.Unavailable},
		"there are no credentials to sign it": {ctx: t.Context(), change: func(o *Options) { o.Credentials = &away{} }, class: alicloud.Unavailable},
		"there is no connection to send it on": {ctx: t.Context(), class: alicloud.Invalid, prepare: func(c *Caller) {
			c.connections = &pool{make: func() (*connection, error) { return nil, errors.New("no such region") }}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			network := &away{}
			options := Options{
				Region: "cn-test-1", Transport: network, Credentials: sdkcredentials.NewStaticAKCredentialsProvider("key", "secret"),
				Retry: wait.Backoff{Duration: time.Millisecond, Steps: 2},
			}
			if test.change != nil {
				test.change(&options)
			}
			c, err := New(options)
			require.NoError(t, err)
			if test.prepare != nil {
				test.prepare(c)
			}
			_, err = c.Call(test.ctx, alicloud.ServiceESS, "ScaleWithAdjustment", nil)
			var e *alicloud.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, test.class, e.Class)
			assert.Equal(t, test.uncertain, e.Uncertain)
			assert.Equal(t, test.requests, network.requests)
		})
	}
}
