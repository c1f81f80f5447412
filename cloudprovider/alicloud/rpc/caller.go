package rpc

import (
	"context"
	"errors"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/responses"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/alicloud/credentials"
	"gpu-spot-autoscaler/cloudprovider/work"
)

// Caller sends requests to the services of one region. It is safe for concurrent use.
type Caller struct {
	options     Options
	limits      *limits
	credentials *credentials.Cache
	connections *pool
}

// New returns a Caller. It sends nothing yet: wrong credentials show at the first request.
func New(options Options) (*Caller, error) {
	options, err := options.complete()
	if err != nil {
		return nil, err
	}
	connections, err := newPool(options)
	if err != nil {
		return nil, err
	}
	return &Caller{
		options:     options,
		limits:      newLimits(options.Clock, options.RateLimits),
		credentials: credentials.NewCache(options.Credentials, options.Clock),
		connections: connections,
	}, nil
}

// Close closes the idle connections. Requests under way are not disturbed.
func (c *Caller) Close() {
	if t, ok := c.options.Transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// Clock is the clock of the options.
func (c *Caller) Clock() clock.PassiveClock { return c.options.Clock }

// Request is one API call.
type Request[R responses.AcsResponse] struct {
	// Service is alicloud.ServiceESS, ServiceECS or ServiceVPC.
	Service string
	// Action is the name of the API call.
	Action string
	// Build makes the request of one attempt. Each attempt needs a new one, since the SDK leaves its signature in what it sends.
	Build func() requests.AcsRequest
	// Response makes the reply to decode into.
	Response func() R
}

// Send carries out a request within the rate limit, and repeats it as Options.Retry says if it was throttled or not
// answered. Its error is an *alicloud.Error.
func Send[R responses.AcsResponse](ctx context.Context, c *Caller, r Request[R]) (R, error) {
	delays, uncertain := c.options.Retry, false
	for attempt := 1; ; attempt++ {
		response := r.Response()
		sent, err := c.attempt(ctx, r.Service, r.Action, r.Build(), response)
		if err == nil {
			return response, nil
		}
		class := alicloud.ClassOf(err)
		// An attempt that was sent and not answered may have been carried out. That a later attempt is refused does not undo it.
		uncertain = uncertain || sent && class == alicloud.Unavailable
		markUncertain(err, uncertain)
		if ctx.Err() != nil || (class != alicloud.Throttled && class != alicloud.Unavailable) || attempt >= c.options.Retry.Steps {
			return response, err
		}
		delay := delays.Step()
		klog.FromContext(ctx).V(3).Info("Retrying a request to Alibaba Cloud", "attempt", attempt, "delay", delay, "err", err)
		if work.Sleep(ctx, c.options.Clock, delay) != nil {
			return response, err
		}
	}
}

// attempt sends a request once. It returns whether the request may have been sent. Its error is an *alicloud.Error that no other
// call shares.
func (c *Caller) attempt(ctx context.Context, service, action string, q requests.AcsRequest, response responses.AcsResponse) (sent bool, err error) {
	if err := c.limits.wait(ctx, service, action); err != nil {
		return false, alicloud.Canceled(service, action, err)
	}
	creds, err := c.credentials.Get(ctx)
	if err != nil {
		return false, err
	}
	conn, err := c.connections.take()
	if err != nil {
		return false, alicloud.InvalidRequest(service, action, "make a connection: %v", err)
	}
	defer c.connections.put(conn)

	timed, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	conn.ctx, conn.creds = timed, creds
	q.SetDomain(c.options.Endpoints.host(service))
	q.SetReadTimeout(c.options.Timeout + time.Second) // the context ends first

	began := c.options.Clock.Now()
	err = conn.outcome(ctx, service, action, conn.sdk.DoAction(q, response))
	c.addSkew(err, conn.reply)
	code, class := labelsOf(err)
	requestSeconds.WithLabelValues(service, action, code, class).Observe(c.options.Clock.Since(began).Seconds())
	return true, err
}

// addSkew adds to the error how far the local clock is ahead of the date of the reply.
func (c *Caller) addSkew(err error, r reply) {
	var e *alicloud.Error
	if errors.As(err, &e) && !r.date.IsZero() {
		e.Skew = c.options.Clock.Now().Sub(r.date).Round(time.Minute)
	}
}

func markUncertain(err error, uncertain bool) {
	var e *alicloud.Error
	if errors.As(err, &e) {
		e.Uncertain = uncertain
	}
}
