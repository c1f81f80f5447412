package alisim

import (
	"fmt"
	"net/http"
)

// apiError is a refusal in Alibaba's form: an HTTP status and a code that clients act upon.
type apiError struct {
	Status  int
	Code    string
	Message string
}

func (e *apiError) Error() string {
	return fmt.Sprintf("%s (HTTP %d): %s", e.Code, e.Status, e.Message)
}

func refuse(status int, code, format string, args ...any) *apiError {
	return &apiError{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

func badRequest(code, format string, args ...any) *apiError {
	return refuse(http.StatusBadRequest, code, format, args...)
}

func notFound(code, format string, args ...any) *apiError {
	return refuse(http.StatusNotFound, code, format, args...)
}

func missing(parameter string) *apiError {
	return badRequest("Missing"+parameter, "%s is mandatory for this action.", parameter)
}

func invalid(parameter, value string) *apiError {
	return badRequest("InvalidParameter", "The specified value %q of parameter %s is not valid.", value, parameter)
}

func tooMany(parameter string, count, most int) *apiError {
	return badRequest("InvalidParameter", "Parameter %s has %d elements, at most %d are allowed.", parameter, count, most)
}

func groupNotFound(id string) *apiError {
	return notFound("InvalidScalingGroupId.NotFound", "The specified scaling group %q is not found.", id)
}

func instanceNotFound(id string) *apiError {
	return notFound("InvalidInstanceId.NotFound", "Instance %q is not in the specified scaling group.", id)
}

// Codes that appear in the replies of actions and, except the first three, in scaling activities.
const (
	codeThrottled   = "Throttling.User"
	codeInProgress  = "ScalingActivityInProgress"
	codeBelowMin    = "IncorrectCapacity.MinSize"
	codeAboveMax    = "IncorrectCapacity.MaxSize"
	codeNoChange    = "IncorrectCapacity.NoChange"
	codeNoStock     = "OperationDenied.NoStock"
	codeNotOnSale   = "Zone.NotOnSale"
	codePriceTooLow = "InvalidSpotPriceLimit.LowerThanPublicPrice"
	codeQuota       = "QuotaExceed.ElasticQuota"
	codeNoAddress   = "InvalidVSwitchId.IpNotEnough"
	codeNoConfig    = "InvalidScalingConfiguration.NotFound"
	codeSuspended   = "OperationDenied.ProcessSuspended"
)
