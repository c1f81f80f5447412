package credentials

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdkcredentials "github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// scripted is a provider without any lock, like the SDK's.
type scripted struct {
	calls int
	get   func(call int) (*sdkcredentials.Credentials, error)
}

func (s *scripted) GetCredentials() (*sdkcredentials.Credentials, error) {
	s.calls++
	return s.get(s.calls)
}
func (s *scripted) GetProviderName() string { return "scripted" }

func TestCredentialsAreSharedAndRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clk := clocktesting.NewFakeClock(time.Unix(1e9, 0))
		p := &scripted{get: func(call int) (*sdkcredentials.Credentials, error) {
			return &sdkcredentials.Credentials{AccessKeyId: fmt.Sprint("key-", call)}, nil
		}}
		cache := NewCache(p, clk)
		get := func() string {
			creds, err := cache.Get(t.Context())
			assert.NoError(t, err)
			return creds.AccessKeyId
		}
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() { get() })
		}
		group.Wait()
		first := get()
		clk.Step(freshFor - time.Second)
		assert.Equal(t, first, get())
		clk.Step(time.Second)
		get()
		synctest.Wait() // for the renewal in the background
		assert.NotEqual(t, first, get(), "the provider is asked again")
		clk.Step(graceFor)
		before := p.calls
		assert.Equal(t, fmt.Sprint("key-", before+1), get(), "credentials that may expire soon are not used while they are renewed")
	})
}

func TestNobodyWaitsForARenewalWhileTheLastCredentialsAreValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clk := clocktesting.NewFakeClock(time.Unix(1e9, 0))
		hang := 15 * time.Second // as long as the SDK lets it
		p := &scripted{get: func(call int) (*sdkcredentials.Credentials, error) {
			if call > 1 {
				time.Sleep(hang)
			}
			return &sdkcredentials.Credentials{AccessKeyId: fmt.Sprint("key-", call)}, nil
		}}
		cache := NewCache(p, clk)
		get := func() (key string, took time.Duration) {
			began := time.Now()
			creds, err := cache.Get(t.Context())
			require.NoError(t, err)
			return creds.AccessKeyId, time.Since(began)
		}
		get()
		clk.Step(graceFor - time.Second)
		for range 3 {
			key, took := get()
			assert.Equal(t, "key-1", key)
			assert.Zero(t, took)
		}
		clk.Step(time.Second)
		key, took := get()
		assert.Equal(t, "key-2", key, "it waits for the renewal that is under way")
		assert.Equal(t, hang, took)
	})
}

func TestFailingRenewal(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	p := &scripted{get: func(call int) (*sdkcredentials.Credentials, error) {
		if call > 1 {
			return nil, errors.New("STS is away, Signature=abc")
		}
		return &sdkcredentials.Credentials{AccessKeyId: "key"}, nil
	}}
	cache := NewCache(p, clk)
	_, err := cache.Get(t.Context())
	require.NoError(t, err)
	clk.Step(graceFor - time.Second)
	creds, err := cache.Get(t.Context())
	require.NoError(t, err, "the last good credentials serve for a while")
	assert.Equal(t, "key", creds.AccessKeyId)
	clk.Step(time.Second)
	_, err = cache.Get(t.Context())
	assert.Equal(t, alicloud.Unauthorized, alicloud.ClassOf(err))
	assert.NotContains(t, err.Error(), "abc")
}

func TestWhoWaitsForTheSameRenewalGetsAnErrorOfItsOwn(t *testing.T) {
	release := make(chan struct{})
	p := &scripted{get: func(int) (*sdkcredentials.Credentials, error) { <-release; return nil, errors.New("STS is away") }}
	cache := NewCache(p, clocktesting.NewFakeClock(time.Unix(1e9, 0)))
	errs := make(chan error, 2)
	for range cap(errs) {
		go func() {
			_, err := cache.Get(t.Context())
			var e *alicloud.Error
			if errors.As(err, &e) {
				e.Uncertain = true // as each call does
			}
			errs <- err
		}()
	}
	time.AfterFunc(100*time.Millisecond, func() { close(release) })
	assert.NotSame(t, <-errs, <-errs)
}

func TestWaitingForCredentialsObeysTheContext(t *testing.T) {
	release := make(chan struct{})
	p := &scripted{get: func(int) (*sdkcredentials.Credentials, error) {
		<-release
		return nil, nil
	}}
	cache := NewCache(p, clocktesting.NewFakeClock(time.Unix(1e9, 0)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := cache.Get(ctx)
	assert.ErrorIs(t, err, context.Canceled)
	close(release)
	_, err = cache.Get(t.Context())
	assert.Equal(t, alicloud.Unauthorized, alicloud.ClassOf(err), "no credentials are no success")
}

func TestAnSTSHostThatDoesNotExistIsAWrongRegion(t *testing.T) {
	err := errorOf(&url.Error{Op: "Post", URL: "https://sts.cn-nowhere.aliyuncs.com", Err: &net.DNSError{Err: "no such host", IsNotFound: true}})
	assert.Equal(t, alicloud.WrongRegion, alicloud.Diagnose(err).Reason)
}
