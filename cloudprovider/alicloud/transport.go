package alicloud

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
)

// maxReply bounds what is read of one reply, in bytes. A page of 50 groups is about 200 kB.
const maxReply = 32 << 20

// line is one SDK client with the transport and the credentials of the request it is on. The SDK client is not safe
// for concurrent use and knows no context; so each line serves one request at a time, and its transport ties the
// SDK's HTTP request to the caller's context. Nothing is left running when the context ends.
type line struct {
	sdk   *sdk.Client
	base  http.RoundTripper
	creds credentials.Credentials

	ctx   context.Context
	reply reply
}

// reply is what came over the wire, kept because the SDK's errors hold signed URLs and forget the status.
type reply struct {
	status int
	body   []byte
	// date is the Date of the reply, zero where it has none.
	date time.Time
	// err is why there is no reply. It is the transport's own: without the URL.
	err error
}

func newLine(region, scheme, userAgent string, base http.RoundTripper) (*line, error) {
	l := &line{base: base}
	config := sdk.NewConfig().WithScheme(scheme).WithUserAgent(userAgent)
	config.Transport = l
	client, err := sdk.NewClientWithOptions(region, config, l)
	if err != nil {
		return nil, fmt.Errorf("alicloud: %w", err)
	}
	client.SetCloseTrace(true)
	l.sdk = client
	return l, nil
}

// GetCredentials hands the SDK the credentials of the request at hand.
func (l *line) GetCredentials() (*credentials.Credentials, error) {
	creds := l.creds
	return &creds, nil
}

// GetProviderName names the source of the credentials; the SDK tells Alibaba.
func (l *line) GetProviderName() string { return l.creds.ProviderName }

// RoundTrip sends the SDK's request under the caller's context and reads the whole reply under it too.
func (l *line) RoundTrip(req *http.Request) (*http.Response, error) {
	response, err := l.base.RoundTrip(req.WithContext(l.ctx))
	if err != nil {
		l.reply = reply{err: err}
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxReply+1))
	if err == nil && len(body) > maxReply {
		err = fmt.Errorf("the reply is longer than %d bytes", maxReply)
	}
	l.reply = reply{status: response.StatusCode, body: body, err: err}
	if at, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		l.reply.date = at
	}
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

// isObject says whether the body is one JSON object, as every reply of the API is.
func (r reply) isObject() bool {
	return bytes.HasPrefix(bytes.TrimSpace(r.body), []byte("{")) && json.Valid(r.body)
}

// excerpt is the start of the body, for an error message.
func (r reply) excerpt() string {
	const most = 60
	if len(r.body) <= most {
		return string(r.body)
	}
	return string(slices.Concat(r.body[:most], []byte("…")))
}
