package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk"
	sdkcredentials "github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
)

// maxReply bounds what is read of one reply, in bytes. A page of 50 scaling groups is about 200 kB.
const maxReply = 32 << 20

// pool holds the idle connections. It grows to the largest number of concurrent requests.
type pool struct {
	make func() (*connection, error)

	mu   sync.Mutex
	idle []*connection
}

// newPool makes the first connection, so that a malformed region is its error.
func newPool(o Options) (*pool, error) {
	p := &pool{make: func() (*connection, error) { return newConnection(o.Region, o.Scheme, o.UserAgent, o.Transport) }}
	first, err := p.make()
	if err != nil {
		return nil, err
	}
	p.idle = []*connection{first}
	return p, nil
}

// take returns a connection that no other request uses until it is put back.
func (p *pool) take() (*connection, error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return c, nil
	}
	p.mu.Unlock()
	return p.make()
}

func (p *pool) put(c *connection) {
	c.ctx, c.reply, c.creds = nil, reply{}, sdkcredentials.Credentials{}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, c)
}

// connection is a client of the SDK, with the transport and the credentials of its current request. The SDK's client is not
// safe for concurrent use and knows no context. So a connection serves one request at a time, and its transport sends the
// SDK's HTTP request under the caller's context. Nothing is left running when the context ends.
type connection struct {
	sdk   *sdk.Client
	base  http.RoundTripper
	creds sdkcredentials.Credentials

	ctx   context.Context
	reply reply
}

// reply is an HTTP reply. It is kept because the SDK's errors contain signed URLs and lack the status.
type reply struct {
	status int
	body   []byte
	// date is the Date header; zero if there is none.
	date time.Time
	// err is why there is no reply. It is the transport's own error, which lacks the URL.
	err error
}

func newConnection(region, scheme, userAgent string, base http.RoundTripper) (*connection, error) {
	c := &connection{base: base}
	config := sdk.NewConfig().WithScheme(scheme).WithUserAgent(userAgent)
	config.Transport = c
	client, err := sdk.NewClientWithOptions(region, config, c)
	if err != nil {
		return nil, fmt.Errorf("alicloud: %w", err)
	}
	client.SetCloseTrace(true)
	c.sdk = client
	return c, nil
}

// GetCredentials returns the credentials of the current request to the SDK.
func (c *connection) GetCredentials() (*sdkcredentials.Credentials, error) {
	creds := c.creds
	return &creds, nil
}

// GetProviderName returns the source of the credentials, which the SDK sends along.
func (c *connection) GetProviderName() string { return c.creds.ProviderName }

// RoundTrip sends the SDK's request, and reads the whole reply, under the caller's context.
func (c *connection) RoundTrip(req *http.Request) (*http.Response, error) {
	response, err := c.base.RoundTrip(req.WithContext(c.ctx))
	if err != nil {
		c.reply = reply{err: err}
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxReply+1))
	if err == nil && len(body) > maxReply {
		err = fmt.Errorf("the reply is longer than %d bytes", maxReply)
	}
	c.reply = reply{status: response.StatusCode, body: body, err: err}
	if at, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		c.reply.date = at
	}
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

// isObject returns whether the body is one JSON object, as every reply of the APIs is.
func (r reply) isObject() bool {
	return bytes.HasPrefix(bytes.TrimSpace(r.body), []byte("{")) && json.Valid(r.body)
}

// excerpt returns the beginning of the body, for an error message.
func (r reply) excerpt() string {
	const maxBytes = 60
	if len(r.body) <= maxBytes {
		return string(r.body)
	}
	return string(slices.Concat(r.body[:maxBytes], []byte("…")))
}
