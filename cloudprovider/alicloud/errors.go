package alicloud

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Services that errors and metrics name.
const (
	ServiceESS = "ess"
	ServiceECS = "ecs"
	ServiceVPC = "vpc"
	// ServiceCredentials stands for the source of the credentials, such as STS.
	ServiceCredentials = "credentials"
)

// Error is a call that failed. It never holds a credential or a signed URL, so it may be logged and shown.
type Error struct {
	// Service is one of the Service… constants.
	Service string
	// Action is the name of the API call, such as "ScaleWithAdjustment".
	Action string
	// Code is Alibaba Cloud's error code, or one of the Code… constants if Alibaba Cloud did not answer with one.
	Code    string
	Message string
	// RequestID is what Alibaba Cloud's support asks for; empty if the request did not arrive.
	RequestID string
	// Status is the HTTP status; 0 if there was no reply.
	Status int
	Class  Class
	// Uncertain says that this attempt or an earlier one may have been carried out. For a purchase or a removal only the
	// same request under the same ClientToken, or a listing of what exists, tells whether it was.
	Uncertain bool
	// Skew is how far the local clock is ahead of Alibaba Cloud's, by the Date of the reply. It is in whole
	// minutes: 0 if the clocks agree within half a minute, and if the reply had no date.
	Skew time.Duration
	// Err is the underlying error, such as context.DeadlineExceeded or a net.Error; nil if there is none.
	Err error
}

// Codes of failures for which Alibaba Cloud has no code.
const (
	// CodeNetwork: no reply came. The request may or may not have been carried out.
	CodeNetwork = "Network"
	// CodeTimeout: no reply came in time. The request may or may not have been carried out.
	CodeTimeout = "Timeout"
	// CodeCanceled: the caller's context ended first. Error.Uncertain says whether the request may have been carried out.
	CodeCanceled = "Canceled"
	// CodeNotJSON: the reply is not JSON, such as one from a proxy in between.
	CodeNotJSON = "NotJSON"
	// CodeHTTP: the reply is an HTTP error without a code of Alibaba Cloud.
	CodeHTTP = "HTTP"
	// CodeIncomplete: the pages of a listing lack items.
	CodeIncomplete = "Incomplete"
	// CodeNoPrice: the reply to a request for a price has none.
	CodeNoPrice = "NoPrice"
	// CodeInvalidRequest: the client refused the request before sending it.
	CodeInvalidRequest = "InvalidRequest"
	// CodeCredentials: there are no credentials to sign with.
	CodeCredentials = "Credentials"
)

// InvalidRequest returns the error of a request that the client refuses before sending it.
func InvalidRequest(service, action, format string, args ...any) *Error {
	return &Error{Service: service, Action: action, Code: CodeInvalidRequest,
		Message: fmt.Sprintf(format, args...), Class: Invalid}
}

// Canceled returns the error of a call whose caller gave up, for the cause.
func Canceled(service, action string, cause error) *Error {
	return &Error{Service: service, Action: action, Code: CodeCanceled, Message: cause.Error(), Class: Unavailable, Err: cause}
}

// Error returns service, action, code, message, HTTP status and request id.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %s", e.Service, e.Action, e.Code)
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	}
	if e.Status != 0 {
		fmt.Fprintf(&b, " (HTTP %d", e.Status)
		if e.RequestID != "" {
			fmt.Fprintf(&b, ", request %s", e.RequestID)
		}
		b.WriteString(")")
	}
	return b.String()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// IsUncertain returns whether the failed request may have been carried out all the same.
func IsUncertain(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Uncertain
}

// CodeOf returns the error code of a failed call, "" for errors of other origin.
func CodeOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// ActionOf returns the name of the call that failed, "" for errors of other origin.
func ActionOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Action
	}
	return ""
}

// ClassOf returns the class of a failed call, Unknown for errors of other origin and "" for nil.
func ClassOf(err error) Class {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	return Unknown
}

// Refuses returns whether Alibaba Cloud refused the call because of the parameter: its code or its message names it.
func Refuses(err error, parameter string) bool {
	var e *Error
	return errors.As(err, &e) && e.Class == Invalid && (strings.Contains(e.Code, parameter) || strings.Contains(e.Message, parameter))
}
