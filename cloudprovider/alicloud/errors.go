package alicloud

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Error is a call that failed. It never holds a credential or a signed URL, so it may be logged and shown.
type Error struct {
	// Service is "ess", "ecs", "vpc" or "credentials".
	Service string
	// Action is the name of the API call, such as "ScaleWithAdjustment".
	Action string
	// Code is Alibaba's error code, or one of the Code… constants where no answer of Alibaba's could be had.
	Code    string
	Message string
	// RequestID is what Alibaba's support asks for; empty where the request did not arrive.
	RequestID string
	// Status is the HTTP status; 0 where there was no reply.
	Status int
	Class  Class
	// Uncertain: the request, or an earlier attempt at it, may have been carried out. Where it buys or removes, only the
	// same request under the same ClientToken, or what the cloud lists, can tell.
	Uncertain bool
	// Skew is how far our clock is ahead of Alibaba Cloud's, going by the Date of its reply; 0 where it is right within a
	// minute, or not known.
	Skew time.Duration

	cause error
}

// CodeInstanceStatus is Alibaba's: an instance is in a state that does not allow what was asked, such as to remove one that
// is Pending.
const CodeInstanceStatus = "IncorrectInstanceStatus"

// Codes of failures that Alibaba has no code for.
const (
	// CodeNetwork: no reply came. The request may or may not have been carried out.
	CodeNetwork = "Network"
	// CodeTimeout: no reply came in time. The request may or may not have been carried out.
	CodeTimeout = "Timeout"
	// CodeCanceled: the caller's context ended first. The request may or may not have been carried out.
	CodeCanceled = "Canceled"
	// CodeNotJSON: a reply came that is not what the API speaks, as from a proxy in between.
	CodeNotJSON = "NotJSON"
	// CodeHTTP: an HTTP error came without a code of Alibaba's.
	CodeHTTP = "HTTP"
	// CodeNoPrice: a price was asked for and the reply has none.
	CodeNoPrice = "NoPrice"
	// CodeInvalidRequest: the call was refused here, before anything was sent.
	CodeInvalidRequest = "InvalidRequest"
	// CodeCredentials: there are no credentials to sign with.
	CodeCredentials = "Credentials"
)

// Error names service, action, code and request id.
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

// Unwrap returns what lies below, such as context.DeadlineExceeded or a net.Error; nil where there is nothing.
func (e *Error) Unwrap() error { return e.cause }

// IsUncertain says whether the failed request may have been carried out all the same.
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

// Refuses says whether Alibaba refused the call on account of the parameter, as one that it does not know does.
func Refuses(err error, parameter string) bool {
	var e *Error
	return errors.As(err, &e) && e.Class == Invalid && (strings.Contains(e.Code, parameter) || strings.Contains(e.Message, parameter))
}

func markUncertain(err error, uncertain bool) {
	var e *Error
	if errors.As(err, &e) {
		e.Uncertain = uncertain
	}
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

func invalid(service, action, format string, args ...any) *Error {
	return &Error{Service: service, Action: action, Code: CodeInvalidRequest,
		Message: fmt.Sprintf(format, args...), Class: Invalid}
}

// secretParameter matches the parameters of a signed request that let others act in our name, whether they stand in
// a URL, percent-encoded in a string to sign, or in JSON.
var secretParameter = regexp.MustCompile(
	`(?i)(Signature|SignatureNonce|SecurityToken|BearerToken|OIDCToken|AccessKeySecret)("?\s*[=:]\s*"?|%3D|%253D)[^\s&"',]+`)

// stringToSign starts the part of a signature error that repeats the whole signed request.
var stringToSign = regexp.MustCompile(`(?is)[,;.]?\s*(server )?string to ?sign.*`)

// redact takes everything out of a text of Alibaba's or the SDK's that must not be seen, secrets being the values in use.
func redact(text string, secrets ...string) string {
	text = stringToSign.ReplaceAllString(text, "")
	text = secretParameter.ReplaceAllString(text, "$1=<hidden>")
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "<hidden>")
		}
	}
	return strings.TrimSpace(text)
}
