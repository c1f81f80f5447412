package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"net"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// outcome returns the error of an attempt, nil if it succeeded. It decides by the reply that the connection received: the
// SDK's error only says that there was one.
func (c *connection) outcome(ctx context.Context, service, action string, sdkErr error) error {
	r := c.reply
	if r.err != nil {
		if ctx.Err() != nil {
			return alicloud.Canceled(service, action, ctx.Err())
		}
		return noReply(service, action, r.err)
	}
	if r.status == 0 { // the SDK refused the request before sending it
		return alicloud.InvalidRequest(service, action, "%s", c.redact(sdkErr.Error()))
	}
	if !r.isObject() {
		e := &alicloud.Error{Service: service, Action: action, Code: alicloud.CodeNotJSON, Status: r.status,
			Class: alicloud.Unavailable, Message: "the reply is not JSON: " + c.redact(r.excerpt())}
		if r.status >= 400 {
			e.Code, e.Class = alicloud.CodeHTTP, alicloud.ClassOfReply(r.status, "")
		}
		return e
	}
	if r.status >= 200 && r.status < 300 {
		if sdkErr != nil {
			return &alicloud.Error{Service: service, Action: action, Code: alicloud.CodeNotJSON, Status: r.status,
				Class: alicloud.Unavailable, Message: "the reply is not what this action returns: " + c.redact(r.excerpt())}
		}
		return nil
	}
	return c.refusal(service, action)
}

// refusal returns the error in Alibaba Cloud's answer.
func (c *connection) refusal(service, action string) error {
	var body struct{ Code, Message, RequestID string }
	_ = json.Unmarshal(c.reply.body, &body) // it is an object; fields of another type stay empty
	e := &alicloud.Error{Service: service, Action: action, Status: c.reply.status, Code: body.Code, RequestID: body.RequestID,
		Message: c.redact(body.Message), Class: alicloud.ClassOfReply(c.reply.status, body.Code)}
	if e.Code == "" {
		e.Code = alicloud.CodeHTTP
	}
	return e
}

func (c *connection) redact(text string) string {
	return alicloud.Redact(text, c.creds.AccessKeySecret, c.creds.SecurityToken, c.creds.BearerToken)
}

// noReply returns the error of a request that was not answered. Whether it was carried out is unknown.
func noReply(service, action string, err error) error {
	e := &alicloud.Error{Service: service, Action: action, Code: alicloud.CodeNetwork, Message: alicloud.Redact(err.Error()),
		Class: alicloud.Unavailable, Err: err}
	var netErr net.Error
	if errors.Is(err, context.DeadlineExceeded) || (errors.As(err, &netErr) && netErr.Timeout()) {
		e.Code = alicloud.CodeTimeout
	}
	return e
}
