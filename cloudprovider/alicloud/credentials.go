package alicloud

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	sdkerrors "github.com/aliyun/alibaba-cloud-sdk-go/sdk/errors"
	"golang.org/x/sync/singleflight"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// credentialsFresh is how long credentials are used before the provider is asked again. The SDK's providers renew
	// 180 s before the end, so together they never sign with what has expired.
	credentialsFresh = 30 * time.Second
	// credentialsGrace is how long the last good credentials serve while renewing fails; less than those 180 s.
	credentialsGrace = 120 * time.Second
)

// credentialCache makes a provider of the SDK safe for concurrent use: the SDK's have no locks, and block on the
// network without a context. One renewal runs at a time, for all who wait. A caller that gives up leaves at once; the
// renewal itself ends by the SDK's own timeout (15 s).
type credentialCache struct {
	provider credentials.CredentialsProvider
	clock    clock.PassiveClock
	renewals singleflight.Group

	mu      sync.Mutex
	current credentials.Credentials
	renewed time.Time
}

// get returns credentials to sign with, or an *Error of class Unauthorized, or Unavailable where trying again may help.
func (c *credentialCache) get(ctx context.Context) (credentials.Credentials, error) {
	if creds, age, ok := c.cached(); ok && age < credentialsFresh {
		return creds, nil
	}
	select {
	case r := <-c.renewals.DoChan("", c.renew):
		if r.Err == nil {
			return r.Val.(credentials.Credentials), nil
		}
		if creds, age, ok := c.cached(); ok && age < credentialsGrace {
			klog.FromContext(ctx).Error(r.Err, "Renewing the credentials failed; the last ones still serve", "age", age)
			return creds, nil
		}
		return credentials.Credentials{}, ownCopy(r.Err)
	case <-ctx.Done():
		return credentials.Credentials{}, givenUp("credentials", "GetCredentials", ctx.Err())
	}
}

// ownCopy is for one of those who waited for the same renewal: each enters into its error what became of its own request.
func ownCopy(err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	own := *e
	return &own
}

func (c *credentialCache) cached() (creds credentials.Credentials, age time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current, c.clock.Since(c.renewed), !c.renewed.IsZero()
}

func (c *credentialCache) renew() (any, error) {
	got, err := c.provider.GetCredentials()
	if err == nil && got == nil {
		err = errors.New("the provider returned none")
	}
	if err != nil {
		return nil, credentialsError(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current, c.renewed = *got, c.clock.Now()
	return *got, nil
}

func credentialsError(err error) *Error {
	e := &Error{Service: "credentials", Action: "GetCredentials", Code: CodeCredentials, Class: Unauthorized,
		Message: redact(err.Error())}
	var refused *sdkerrors.ServerError
	var network net.Error
	var file *fs.PathError // what lies below it passes for a network's error
	switch {
	case errors.As(err, &refused):
		e.Status, e.RequestID = refused.HttpStatus(), refused.RequestId()
		e.Message = redact(refused.Message())
		if refused.ErrorCode() != "" {
			e.Code = refused.ErrorCode()
		}
		if e.Status >= 500 {
			e.Class = Unavailable
		}
	case errors.As(err, &file):
	case errors.As(err, &network):
		e.Class = Unavailable
		if dns := (*net.DNSError)(nil); errors.As(err, &dns) {
			e.cause = dns // what lies around it has the URL of the request
		}
	}
	return e
}

// defaultCredentials is the SDK's default chain with two differences. The STS endpoint can be chosen. And where RRSA
// is configured nothing comes after it: the SDK's chain goes on to the next provider after one failed exchange and
// then keeps to that one, which on ACK is the node's own RAM role.
func defaultCredentials(region, stsEndpoint string) credentials.CredentialsProvider {
	if os.Getenv("ALIBABA_CLOUD_ACCESS_KEY_ID") == "" {
		if oidc, err := oidcCredentials(region, stsEndpoint); err == nil {
			return oidc
		}
	}
	return &restartingChain{}
}

// oidcCredentials fails where the environment does not have all that RRSA needs.
func oidcCredentials(region, stsEndpoint string) (credentials.CredentialsProvider, error) {
	builder := credentials.NewOIDCCredentialsProviderBuilder().
		WithRoleSessionName("gpu-spot-autoscaler").
		WithSTSEndpoint(stsEndpoint)
	if os.Getenv("ALIBABA_CLOUD_STS_REGION") == "" {
		builder = builder.WithStsRegion(region)
	}
	return builder.Build()
}

// restartingChain is the SDK's default chain, begun anew after a failure: the SDK's own stays with the provider that
// failed last.
type restartingChain struct {
	chain credentials.CredentialsProvider
}

func (r *restartingChain) GetCredentials() (*credentials.Credentials, error) {
	if r.chain == nil {
		r.chain = credentials.NewDefaultCredentialsProvider()
	}
	creds, err := r.chain.GetCredentials()
	if err != nil {
		r.chain = nil
	}
	return creds, err
}

func (r *restartingChain) GetProviderName() string { return "default" }
