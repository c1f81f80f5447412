package alicloud

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/responses"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Client speaks to Alibaba Cloud in one region. It is safe for concurrent use.
type Client struct {
	options Options
	limits  *limits
	creds   *credentialCache
	// recyclingFilter is the spelling of the filter that was found to work, nil until then.
	recyclingFilter atomic.Pointer[string]
	// currency is that of the account, nil until a price was read.
	currency atomic.Pointer[string]

	mu   sync.Mutex
	idle []*line
}

// New returns a client. It sends nothing yet: wrong credentials show at the first call.
func New(options Options) (*Client, error) {
	options, err := options.complete()
	if err != nil {
		return nil, err
	}
	c := &Client{
		options: options,
		limits:  newLimits(options.Clock, options.RateLimits),
		creds:   &credentialCache{provider: options.Credentials, clock: options.Clock},
	}
	l, err := c.take() // so that a bad region is an error of New
	if err != nil {
		return nil, err
	}
	c.put(l)
	return c, nil
}

// Region is where the client's calls go.
func (c *Client) Region() string { return c.options.Region }

// Close drops the idle connections. Calls under way are not disturbed.
func (c *Client) Close() {
	if t, ok := c.options.Transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// take returns a line nobody else uses; there are as many as there ever were calls at once.
func (c *Client) take() (*line, error) {
	c.mu.Lock()
	if n := len(c.idle); n > 0 {
		l := c.idle[n-1]
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		return l, nil
	}
	c.mu.Unlock()
	return newLine(c.options.Region, c.options.Scheme, c.options.UserAgent, c.options.Transport)
}

func (c *Client) put(l *line) {
	l.ctx, l.reply, l.creds = nil, reply{}, credentials.Credentials{}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = append(c.idle, l)
}

// request is one API call: each attempt is built anew, since the SDK leaves its signature in what it sends.
type request[R responses.AcsResponse] struct {
	service, action string
	build           func() requests.AcsRequest
	response        func() R
}

// send carries out a request, throttled and retried.
//
// Every request may be retried: those that only read, and those that buy or remove because they carry a ClientToken.
func send[R responses.AcsResponse](ctx context.Context, c *Client, r request[R]) (R, error) {
	delays, uncertain := c.options.Retry, false
	for attempt := 1; ; attempt++ {
		response := r.response()
		err := c.attempt(ctx, r.service, r.action, r.build(), response)
		if err == nil {
			return response, nil
		}
		class := ClassOf(err)
		// Without an answer nobody knows what was done; a refusal of a later attempt does not undo it.
		uncertain = uncertain || class == Unavailable
		markUncertain(err, uncertain)
		if ctx.Err() != nil || (class != Throttled && class != Unavailable) || attempt >= c.options.Retry.Steps {
			return response, err
		}
		delay := delays.Step()
		klog.FromContext(ctx).V(3).Info("Retrying a cloud call", "attempt", attempt, "delay", delay, "err", err)
		if sleep(ctx, c.options.Clock, delay) != nil {
			return response, err
		}
	}
}

// attempt sends a request once. Its error is an *Error.
func (c *Client) attempt(ctx context.Context, service, action string, q requests.AcsRequest, response responses.AcsResponse) error {
	if err := c.limits.wait(ctx, service, action); err != nil {
		return givenUp(service, action, err)
	}
	creds, err := c.creds.get(ctx)
	if err != nil {
		return err
	}
	l, err := c.take()
	if err != nil {
		return err
	}
	defer c.put(l)

	timed, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	l.ctx, l.creds = timed, creds
	q.SetDomain(c.endpoint(service))
	q.SetReadTimeout(c.options.Timeout + time.Second) // the context ends first

	began := c.options.Clock.Now()
	err = l.outcome(ctx, service, action, l.sdk.DoAction(q, response))
	c.noteSkew(err, l.reply)
	requestSeconds.WithLabelValues(service, action, codeLabel(err)).Observe(c.options.Clock.Since(began).Seconds())
	return err
}

func (c *Client) endpoint(service string) string {
	switch service {
	case ess:
		return c.options.Endpoints.ESS
	case ecs:
		return c.options.Endpoints.ECS
	default:
		return c.options.Endpoints.VPC
	}
}

// outcome judges an attempt by what came over the wire. The SDK's own error only says whether there was one.
func (l *line) outcome(ctx context.Context, service, action string, sdkErr error) error {
	r := l.reply
	if r.err != nil {
		if ctx.Err() != nil {
			return givenUp(service, action, ctx.Err())
		}
		return noReply(service, action, r.err)
	}
	if r.status == 0 { // the SDK refused before sending
		return invalid(service, action, "%s", l.redact(sdkErr.Error()))
	}
	if !r.isObject() {
		e := &Error{Service: service, Action: action, Code: CodeNotJSON, Status: r.status, Class: Unavailable,
			Message: "the reply is not JSON: " + l.redact(r.excerpt())}
		if r.status >= 400 {
			e.Code, e.Class = CodeHTTP, classOfReply(r.status, "")
		}
		return e
	}
	if r.status >= 200 && r.status < 300 {
		if sdkErr != nil {
			return &Error{Service: service, Action: action, Code: CodeNotJSON, Status: r.status, Class: Unavailable,
				Message: "the reply is not what this action returns: " + l.redact(r.excerpt())}
		}
		return nil
	}
	return l.refusal(service, action)
}

// refusal is the error Alibaba answered with.
func (l *line) refusal(service, action string) error {
	var body struct{ Code, Message, RequestID string }
	_ = json.Unmarshal(l.reply.body, &body) // it is an object; fields of a strange kind stay empty
	e := &Error{Service: service, Action: action, Status: l.reply.status, Code: body.Code, RequestID: body.RequestID,
		Message: l.redact(body.Message), Class: classOfReply(l.reply.status, body.Code)}
	if e.Code == "" {
		e.Code = CodeHTTP
	}
	return e
}

// noteSkew enters how far off our clock is, going by the date of the reply.
func (c *Client) noteSkew(err error, r reply) {
	var e *Error
	if errors.As(err, &e) && !r.date.IsZero() {
		e.Skew = c.options.Clock.Now().Sub(r.date).Round(time.Minute)
	}
}

func (l *line) redact(text string) string {
	return redact(text, l.creds.AccessKeySecret, l.creds.SecurityToken, l.creds.BearerToken)
}

// noReply is the error of a request whose fate is not known.
func noReply(service, action string, err error) error {
	e := &Error{Service: service, Action: action, Code: CodeNetwork, Message: redact(err.Error()), Class: Unavailable, cause: err}
	var netErr net.Error
	if errors.Is(err, context.DeadlineExceeded) || (errors.As(err, &netErr) && netErr.Timeout()) {
		e.Code = CodeTimeout
	}
	return e
}

// givenUp is the error of a call whose caller gave up. Whether the work was done is not known.
func givenUp(service, action string, cause error) error {
	return &Error{Service: service, Action: action, Code: CodeCanceled, Message: cause.Error(), Class: Unavailable, cause: cause}
}

// sleep waits for d on the clock, or returns the context's error.
func sleep(ctx context.Context, clk clock.Clock, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d <= 0 {
		return nil
	}
	timer := clk.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
