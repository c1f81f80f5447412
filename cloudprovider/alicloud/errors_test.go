package alicloud

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestClassOfCode(t *testing.T) {
	codes := map[Class][]string{
		"": {""},
		Stockout: {"OperationDenied.NoStock", "NoInstanceStock", "Zone.NotOnSale", "RecommendEmpty.InstanceTypeSoldOut", "Some.NoStock",
			"InstanceType.Offline", "OperationDenied", "ResourceNotAvailable", "Invalid.Zone.NotEnoughResource", "InvalidParameter.NotEnoughResource",
			"InstanceTypesOrDiskTypesNotSupported", "InvalidInstanceType.ZoneNotSupported", "Zone.NotOpen"},
		PriceTooLow: {"InvalidSpotPriceLimit", "InvalidSpotPriceLimit.LowerThanPublicPrice", "InvalidSpotPriceLimit.New",
			"OperationDenied.SpotPriceLowerThanPublicPrice", "OperationDenied.SpotPriceLimit"},
		Quota: {"QuotaExceed.ElasticQuota", "QuotaExceed.AfterpayInstance", "QuotaExceeded", "QuotaExceeded.Anything", "InvalidVSwitchId.IpNotEnough", "InsufficientBalance", "InvalidAccountStatus.NotEnoughBalance",
			"IncorrectCapacity.NoChange", "IncorrectCapacity.MaxSize", "QuotaExceed.SpotInstance", "QuotaExceeded.ScalingInstance", "Account.Arrearage"},
		Throttled:    {"Throttling", "Throttling.User", "Throttling.Anything", "Throttling.Resource"},
		Conflict:     {"ScalingActivityInProgress", "Operation.Conflict", "InvalidOperation.Conflict", "IncorrectScalingGroupStatus"},
		NotFound:     {"InvalidScalingGroupId.NotFound", "InvalidInstanceId.NotFound", "InvalidAnything.NotFound"},
		Unauthorized: {"Forbidden.Unauthorized", "Forbidden", "InvalidAccessKeyId.NotFound", "SignatureDoesNotMatch", "InvalidSecurityToken.Expired", "NoPermission", "InvalidTimeStamp.Expired", "InvalidInstanceType.ValueUnauthorized"},
		BelowMinimum: {"IncorrectCapacity.MinSize"},
		Invalid: {"InvalidParameter", "MissingParameter", "InvalidAnything", "MissingPageSize", "InvalidParameter.Conflict",
			"InvalidSystemDiskCategory.ValueNotSupported", "InvalidSpotStrategy", "InvalidSpotParam.EmptyParameter", "ImageNotSupportInstanceType",
			"DependencyViolation.IoOptimized"},
		Unavailable: {"InternalError", "ServiceUnavailable", CodeNetwork, CodeNotJSON},
		Unknown:     {"Surprise"},
	}
	for class, list := range codes {
		for _, code := range list {
			assert.Equal(t, class, ClassOfCode(code), code)
		}
	}
}

func TestClassOf(t *testing.T) {
	assert.Equal(t, Class(""), ClassOf(nil))
	assert.Equal(t, Unknown, ClassOf(errors.New("of other origin")))
	assert.Equal(t, Quota, ClassOf(errors.Join(errors.New("x"), &Error{Class: Quota})))
}

func TestErrorText(t *testing.T) {
	e := &Error{Service: "ess", Action: "RemoveInstances", Code: "IncorrectCapacity.MinSize", Message: "too few", Status: 400, RequestID: "R-1"}
	assert.Equal(t, "ess RemoveInstances: IncorrectCapacity.MinSize: too few (HTTP 400, request R-1)", e.Error())
	assert.Equal(t, "ess X: Network", (&Error{Service: "ess", Action: "X", Code: CodeNetwork}).Error())
}

func TestRedact(t *testing.T) {
	tests := []struct{ name, in, out string }{
		{"a signed URL", "Post https://h/?Action=X&SecurityToken=abc&Signature=d%3D: EOF", "Post https://h/?Action=X&SecurityToken=<hidden>&Signature=<hidden> EOF"},
		{"a percent-encoded string", "a%26SecurityToken%3Dabc%26x", "a%26SecurityToken=<hidden>"},
		{"a JSON field", `{"SecurityToken": "abc", "x":1}`, `{"SecurityToken=<hidden>", "x":1}`},
		{"a string to sign", "no match, server string to sign is:POST&x", "no match"},
		{"a value in use", "it was hunter2.", "it was <hidden>."},
		{"plain words", "The Signature does not match", "The Signature does not match"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { assert.Equal(t, test.out, Redact(test.in, "hunter2", "")) })
	}
}
