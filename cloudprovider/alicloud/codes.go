package alicloud

import "strings"

// Class is a kind of error that calls for its own reaction.
type Class string

// The classes of errors.
const (
	// Stockout: the instance type is sold out in the zone; another zone or type may be available.
	Stockout Class = "Stockout"
	// PriceTooLow: the bid is below the market price.
	PriceTooLow Class = "PriceTooLow"
	// Quota: a quota, the addresses of a vSwitch or the balance of the account is used up.
	Quota Class = "Quota"
	// Throttled: too many requests.
	Throttled Class = "Throttled"
	// Conflict: another activity or operation is in progress; the request may succeed once that has ended.
	Conflict Class = "Conflict"
	// NotFound: what the request names does not exist, or no longer does.
	NotFound Class = "NotFound"
	// Unauthorized: the credentials are missing, wrong, expired or not allowed to do this.
	Unauthorized Class = "Unauthorized"
	// BelowMinimum: the removal would leave fewer instances than the minimum of the scaling group.
	BelowMinimum Class = "BelowMinimum"
	// Invalid: the request is wrong, and repeating it cannot succeed.
	Invalid Class = "Invalid"
	// Unavailable: there is no useful reply; whether the request was carried out is unknown.
	Unavailable Class = "Unavailable"
	// Unknown: the code is not in the tables of this package.
	Unknown Class = "Unknown"
)

// Codes of Alibaba Cloud that callers act upon.
const (
	// CodeActivityInProgress: another activity of the scaling group is in progress.
	CodeActivityInProgress = "ScalingActivityInProgress"
	// CodeNoChange: the scaling group is at its maximum, or at its minimum.
	CodeNoChange = "IncorrectCapacity.NoChange"
	// CodeInstanceStatus: the state of an instance does not allow the request, such as to remove one that is Pending.
	CodeInstanceStatus = "IncorrectInstanceStatus"
	// CodeNoAddress: the vSwitch has no address left.
	CodeNoAddress = "InvalidVSwitchId.IpNotEnough"
	// CodeCreationFailed is the system event of an instance that RunInstances promised and that could not be created for want of stock.
	// Source: page of RunInstances, "Prerequisites" (help.aliyun.com/en/ecs/developer-reference/api-ecs-2014-05-26-runinstances).
	CodeCreationFailed = "SystemFailure.Delete"
	// CodeDryRun is how ECS answers a request that it was only to check, if it would have carried it out.
	// Source: DryRun of RunInstances and of DescribeInstances, ECS 2014-05-26.
	CodeDryRun = "DryRunOperation"
)

// classOfCode has the codes that are documented for the calls and activities in use.
// Source: the error pages of ESS 2014-08-28, ECS 2014-05-26, VPC 2016-04-28 and STS 2015-04-01.
var classOfCode = map[string]Class{
	"OperationDenied.NoStock":                    Stockout,
	"OperationDenied":                            Stockout, // RunInstances: the resource is out of usage
	"NoInstanceStock":                            Stockout,
	"InstanceType.Offline":                       Stockout,
	"ResourceNotAvailable":                       Stockout,
	"Invalid.Zone.NotEnoughResource":             Stockout,
	"InvalidParameter.NotEnoughResource":         Stockout,
	"InstanceTypesOrDiskTypesNotSupported":       Stockout, // not in this zone
	"Zone.NotOpen":                               Stockout,
	"Zone.NotOnSale":                             Stockout,
	"OperationDenied.ZoneSoldOut":                Stockout,
	CodeCreationFailed:                           Stockout,
	"RecommendEmpty.InstanceTypeSoldOut":         Stockout,
	"InvalidResourceType.NotSupported":           Stockout,
	"InvalidInstanceType.ZoneNotSupport":         Stockout,
	"InvalidInstanceType.NotSupported":           Stockout,
	"InvalidSpotPriceLimit":                      PriceTooLow,
	"InvalidSpotPriceLimit.LowerThanPublicPrice": PriceTooLow,

	"OperationDenied.SpotPriceLowerThanPublicPrice": PriceTooLow,
	"OperationDenied.SpotPriceLimit":                PriceTooLow,

	"QuotaExceed.ElasticQuota":              Quota,
	"QuotaExceed.AfterpayInstance":          Quota,
	CodeNoAddress:                           Quota,
	"InsufficientBalance":                   Quota,
	"InvalidAccountStatus.NotEnoughBalance": Quota,
	"Account.Arrearage":                     Quota,
	"InvalidPayMethod":                      Quota,
	"PaymentMethodNotFound":                 Quota,
	"IncorrectCapacity.MaxSize":             Quota,
	"InvalidCapacity.MaxSize":               Quota,
	CodeNoChange:                            Quota, // a group at its maximum

	"Throttling":      Throttled,
	"Throttling.User": Throttled,
	"Throttling.Api":  Throttled,

	CodeActivityInProgress:        Conflict,
	"Operation.Conflict":          Conflict,
	"OperationConflict":           Conflict,
	"IdempotentProcessing":        Conflict, // the request before it under the same ClientToken
	"IncorrectScalingGroupStatus": Conflict,
	CodeInstanceStatus:            Conflict,

	"InvalidScalingGroupId.NotFound":         NotFound,
	"InvalidInstanceId.NotFound":             NotFound,
	"InvalidScalingConfigurationId.NotFound": NotFound,
	CodeNoPrice:                              NotFound,

	"RegionUnauthorized":                    Unauthorized,
	"InvalidInstanceType.ValueUnauthorized": Unauthorized,
	"InvalidSpotAuthorized":                 Unauthorized,
	"Forbidden.Unauthorized":                Unauthorized,
	"Forbidden.RAM":                         Unauthorized,
	"NoPermission":                          Unauthorized,
	"InvalidAccessKeyId.NotFound":           Unauthorized,
	"InvalidAccessKeyId.Inactive":           Unauthorized,
	"SignatureDoesNotMatch":                 Unauthorized,
	"IncompleteSignature":                   Unauthorized,
	"InvalidSecurityToken.Expired":          Unauthorized,
	"InvalidSecurityToken.Malformed":        Unauthorized,
	"InvalidTimeStamp.Expired":              Unauthorized,
	"IllegalTimestamp":                      Unauthorized,
	CodeCredentials:                         Unauthorized,

	"IncorrectCapacity.MinSize": BelowMinimum,

	"MissingParameter":                            Invalid,
	"InvalidParameter":                            Invalid,
	"IdempotentParameterMismatch":                 Invalid,
	"UnsupportedOperation":                        Invalid,
	"InvalidParameter.Conflict":                   Invalid, // parameters that contradict each other
	"ImageNotSupportInstanceType":                 Invalid,
	"DependencyViolation.IoOptimized":             Invalid,
	"IncorrectScalingConfigurationLifecycleState": Invalid,
	CodeInvalidRequest:                            Invalid,

	"InternalError":             Unavailable,
	"NodeControllerUnavailable": Unavailable,
	"ServiceUnavailable":        Unavailable,
	"SignatureNonceUsed":        Unavailable, // every attempt is signed anew
	CodeNetwork:                 Unavailable,
	CodeTimeout:                 Unavailable,
	CodeCanceled:                Unavailable,
	CodeNotJSON:                 Unavailable,
	CodeIncomplete:              Unavailable,
	CodeHTTP:                    Unavailable,
}

// classOfPattern is for codes that are not in classOfCode. The first match wins, so special patterns stand before general
// ones.
var classOfPattern = []struct {
	match func(code, part string) bool
	part  string
	class Class
}{
	{strings.Contains, "nostock", Stockout},
	{strings.Contains, "soldout", Stockout},
	{strings.Contains, "notonsale", Stockout},
	{strings.Contains, "notenoughresource", Stockout},
	{strings.Contains, "zonenotsupport", Stockout},
	{strings.Contains, "spotprice", PriceTooLow},
	{strings.Contains, "quotaexceed", Quota},
	{strings.Contains, "limitexceed", Quota},
	{strings.Contains, "ipnotenough", Quota},
	{strings.Contains, "notenoughbalance", Quota},
	{strings.HasPrefix, "throttling", Throttled},
	{strings.HasSuffix, ".conflict", Conflict},
	{strings.HasPrefix, "incorrectinstancestatus", Conflict},
	{strings.HasPrefix, "invalidaccesskeyid", Unauthorized},
	{strings.HasPrefix, "invalidsecuritytoken", Unauthorized},
	{strings.HasPrefix, "forbidden", Unauthorized},
	{strings.HasPrefix, "nopermission", Unauthorized},
	{strings.HasPrefix, "entitynotexist", Unauthorized}, // RAM: a role or identity provider that is not there
	{strings.HasPrefix, "authenticationfail", Unauthorized},
	{strings.HasSuffix, ".notfound", NotFound},
	{strings.HasSuffix, ".minsize", BelowMinimum},
	{strings.HasPrefix, "serviceunavailable", Unavailable},
	{strings.HasPrefix, "internalerror", Unavailable},
	{strings.HasPrefix, "invalid", Invalid},
	{strings.HasPrefix, "missing", Invalid},
	{strings.HasPrefix, "illegal", Invalid},
}

// ClassOfCode returns the class of an error code of a reply or of a scaling activity: "" for an empty code, Unknown for one
// that neither table has.
func ClassOfCode(code string) Class {
	if code == "" {
		return ""
	}
	if class, ok := classOfCode[code]; ok {
		return class
	}
	lower := strings.ToLower(code)
	for _, p := range classOfPattern {
		if p.match(lower, p.part) {
			return p.class
		}
	}
	return Unknown
}

// IsSoldOut returns whether the code says that the instance type is out of stock in the zone, whoever asks for it. The other codes of
// class Stockout may be about what one scaling configuration combines it with, such as a disk category.
func IsSoldOut(code string) bool {
	switch code {
	case "NoInstanceStock", "InstanceType.Offline", CodeCreationFailed:
		return true
	}
	lower := strings.ToLower(code)
	return strings.Contains(lower, "nostock") || strings.Contains(lower, "soldout")
}

// ClassOfReply returns the class of the code, or that of the HTTP status if the code is unknown or empty.
func ClassOfReply(status int, code string) Class {
	if class := ClassOfCode(code); class != Unknown && class != "" {
		return class
	}
	switch {
	case status >= 500:
		return Unavailable
	case status == 429:
		return Throttled
	case status == 401, status == 403:
		return Unauthorized
	case status == 404:
		return NotFound
	}
	return Unknown
}

// LabelOf returns the code if it is one of the hundred or so that have a class of their own here, and else "Other". So a metric may have it
// as a label, whatever Alibaba Cloud answers.
func LabelOf(code string) string {
	if _, known := classOfCode[code]; known {
		return code
	}
	return "Other"
}
