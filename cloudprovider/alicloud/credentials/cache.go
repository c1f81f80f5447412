// Package credentials finds the access keys that sign requests to Alibaba Cloud, and keeps them fresh.
package credentials

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"sync"
	"time"

	sdkcredentials "github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	sdkerrors "github.com/aliyun/alibaba-cloud-sdk-go/sdk/errors"
	"golang.org/x/sync/singleflight"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

const (
	// freshFor is how long credentials are used before the provider is asked again. The SDK's providers renew them 180 s
	// before they expire, so expired credentials are never used.
	freshFor = 30 * time.Second
	// graceFor is how long the last good credentials are used while they are renewed, or while renewing fails. It is less than
	// those 180 s.
	graceFor = 120 * time.Second
)

// Cache makes a provider of the SDK safe for concurrent use. The SDK's providers have no locks, and they wait for the
// network without a context. One renewal runs at a time, for all callers. A caller whose context ends returns at once; the
// renewal itself ends by the SDK's own timeout of 15 s.
type Cache struct {
	provider sdkcredentials.CredentialsProvider
	clock    clock.PassiveClock
	renewals singleflight.Group

	mu      sync.Mutex
	current sdkcredentials.Credentials
	renewed time.Time
}

// NewCache returns a cache of what the provider returns. It does not ask the provider yet.
func NewCache(provider sdkcredentials.CredentialsProvider, clk clock.PassiveClock) *Cache {
	return &Cache{provider: provider, clock: clk}
}

// Get returns credentials to sign with, or an *alicloud.Error of class Unauthorized, or of class Throttled or Unavailable if
// trying again may help. Every caller gets an error of its own. Get waits for a renewal only if there are no credentials that
// will be valid for some time. Otherwise it lets the renewal run in the background.
func (c *Cache) Get(ctx context.Context) (sdkcredentials.Credentials, error) {
	creds, age, ok := c.cached()
	if ok && age < freshFor {
		return creds, nil
	}
	renewal := c.renewals.DoChan("", func() (any, error) { return c.renew(klog.FromContext(ctx)) })
	if ok && age < graceFor {
		return creds, nil
	}
	select {
	case r := <-renewal:
		if r.Err != nil {
			return sdkcredentials.Credentials{}, copyOf(r.Err)
		}
		return r.Val.(sdkcredentials.Credentials), nil
	case <-ctx.Done():
		return sdkcredentials.Credentials{}, alicloud.Canceled(alicloud.ServiceCredentials, action, ctx.Err())
	}
}

// copyOf returns a copy of the error of a renewal that several callers waited for: each of them completes its own.
func copyOf(err error) error {
	var e *alicloud.Error
	if !errors.As(err, &e) {
		return err
	}
	own := *e
	return &own
}

func (c *Cache) cached() (creds sdkcredentials.Credentials, age time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current, c.clock.Since(c.renewed), !c.renewed.IsZero()
}

func (c *Cache) renew(logger klog.Logger) (any, error) {
	got, err := c.provider.GetCredentials()
	if err == nil && got == nil {
		err = errors.New("the provider returned none")
	}
	if err != nil {
		failure := errorOf(err)
		if _, age, ok := c.cached(); ok && age < graceFor {
			logger.Error(failure, "Renewing the credentials failed; using the last ones", "age", age)
		}
		return nil, failure
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current, c.renewed = *got, c.clock.Now()
	return *got, nil
}

// action is what errors of this package name as the call that failed.
const action = "GetCredentials"

// errorOf turns an error of the SDK's into one that names cause and class and has no secret.
func errorOf(err error) *alicloud.Error {
	e := &alicloud.Error{Service: alicloud.ServiceCredentials, Action: action, Code: alicloud.CodeCredentials,
		Class: alicloud.Unauthorized, Message: alicloud.Redact(err.Error())}
	var refused *sdkerrors.ServerError
	var network net.Error
	var file *fs.PathError // checked before network, since the error in it is a net.Error as well
	switch {
	case errors.As(err, &refused):
		e.Status, e.RequestID = refused.HttpStatus(), refused.RequestId()
		e.Message = alicloud.Redact(refused.Message())
		if refused.ErrorCode() != "" {
			e.Code = refused.ErrorCode()
		}
		if class := alicloud.ClassOfReply(e.Status, e.Code); class == alicloud.Throttled || class == alicloud.Unavailable {
			e.Class = class
		}
	case errors.As(err, &file):
	case errors.As(err, &network):
		e.Class = alicloud.Unavailable
		if dns := (*net.DNSError)(nil); errors.As(err, &dns) {
			e.Err = dns // the errors around it have the URL of the request
		}
	}
	return e
}
