package protocol

import (
	"fmt"
	"net/http"
)

// Error is a refusal in Alibaba's form: an HTTP status and a code that clients act upon.
type Error struct {
	Status  int
	Code    string
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s (HTTP %d): %s", e.Code, e.Status, e.Message)
}

// Refuse returns a refusal with an HTTP status.
func Refuse(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// BadRequest returns a refusal with HTTP 400, which is most of them.
func BadRequest(code, format string, args ...any) *Error {
	return Refuse(http.StatusBadRequest, code, format, args...)
}

// NotFound returns a refusal with HTTP 404.
func NotFound(code, format string, args ...any) *Error {
	return Refuse(http.StatusNotFound, code, format, args...)
}

// Missing refuses a request without a mandatory parameter.
func Missing(parameter string) *Error {
	return BadRequest("Missing"+parameter, "%s is mandatory for this action.", parameter)
}

// Invalid refuses a parameter whose value is none of the allowed.
func Invalid(parameter, value string) *Error {
	return BadRequest("InvalidParameter", "The specified value %q of parameter %s is not valid.", value, parameter)
}

// TooMany refuses a list that is too long.
func TooMany(parameter string, count, most int) *Error {
	return BadRequest("InvalidParameter", "Parameter %s has %d elements, at most %d are allowed.", parameter, count, most)
}

// Throttling is the code of a request that came too soon after others.
const Throttling = "Throttling.User"

func throttled() *Error {
	return BadRequest(Throttling, "Request was denied due to user flow control.")
}

// Failure says why something that was accepted came to nothing, or to less, later.
type Failure struct{ Code, Message string }

// Fail returns a Failure.
func Fail(code, format string, args ...any) *Failure {
	return &Failure{code, fmt.Sprintf(format, args...)}
}
