package alicloud

import "strings"

// Class is what an error means for the caller.
type Class string

// The classes of errors.
const (
	// Stockout: the offering cannot be had now; another zone or type may.
	Stockout Class = "Stockout"
	// PriceTooLow: the bid is below the market price.
	PriceTooLow Class = "PriceTooLow"
	// Quota: a quota, the addresses of a vSwitch or the account's money is used up.
	Quota Class = "Quota"
	// Throttled: too many requests.
	Throttled Class = "Throttled"
	// Conflict: another activity or operation is in the way; later it will not be.
	Conflict Class = "Conflict"
	// NotFound: the thing named does not exist (any more).
	NotFound Class = "NotFound"
	// Unauthorized: the credentials are missing, wrong, expired or not allowed to do this.
	Unauthorized Class = "Unauthorized"
	// BelowMinimum: removing so much would leave less than the group's minimum.
	BelowMinimum Class = "BelowMinimum"
	// Invalid: the request is wrong and will be wrong again.
	Invalid Class = "Invalid"
	// Unavailable: no useful reply; whether the work was done is not known.
	Unavailable Class = "Unavailable"
	// Unknown: a code this package knows nothing of.
	Unknown Class = "Unknown"
)

// Classes lists every class, for those who prepare a counter for each.
func Classes() []Class {
	return []Class{Stockout, PriceTooLow, Quota, Throttled, Conflict, NotFound, Unauthorized, BelowMinimum, Invalid,
		Unavailable, Unknown}
}

// Codes of Alibaba's that callers act upon.
const (
	// CodeActivityInProgress: the scaling group does one thing at a time, and is busy.
	CodeActivityInProgress = "ScalingActivityInProgress"
	// CodeNoChange: the scaling group is at its maximum, or minimum.
	CodeNoChange = "IncorrectCapacity.NoChange"
)

// classOfCode holds the codes that are documented for the calls and activities in use.
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
	"InvalidVSwitchId.IpNotEnough":          Quota,
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
	"SignatureNonceUsed":        Unavailable, // signed anew, it passes
	CodeNetwork:                 Unavailable,
	CodeTimeout:                 Unavailable,
	CodeCanceled:                Unavailable,
	CodeNotJSON:                 Unavailable,
	CodeHTTP:                    Unavailable,
}

// classOfPattern takes the codes that are not in the table; the first match wins, so the particular stands first.
var classOfPattern = []struct {
	match   func(code, part string) bool
	part    string
	meaning Class
}{
	{strings.Contains, "nostock", Stockout},
	{strings.Contains, "soldout", Stockout},
	{strings.Contains, "notonsale", Stockout},
	{strings.Contains, "notenoughresource", Stockout},
	{strings.Contains, "zonenotsupport", Stockout},
	{strings.Contains, "spotprice", PriceTooLow},
	{strings.HasPrefix, "invalidspotpricelimit", PriceTooLow},
	{strings.HasPrefix, "quotaexceed", Quota},
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

// codeOfPhrases are for activities that have no code, be it in a field or in their text. The phrases are those of the
// messages of the same codes, and of the page "Troubleshoot scaling activity exceptions" (Auto Scaling, August 2026).
var codeOfPhrases = []struct{ phrase, code string }{
	{"out of stock", "OperationDenied.NoStock"},
	{"sold out", "OperationDenied.NoStock"},
	{"not on sale", "Zone.NotOnSale"},
	{"lower than the public price", "OperationDenied.SpotPriceLowerThanPublicPrice"},
	{"does not have enough balance", "InvalidAccountStatus.NotEnoughBalance"},
	{"not enough balance", "InvalidAccountStatus.NotEnoughBalance"},
	{"total capacity will not change", CodeNoChange},
}

// codeOfPhrase is empty for a text that says nothing known.
func codeOfPhrase(text string) string {
	text = strings.ToLower(text)
	for _, known := range codeOfPhrases {
		if strings.Contains(text, known.phrase) {
			return known.code
		}
	}
	return ""
}

// ClassOfCode returns the class of an error code, be it of a reply or of a scaling activity. An empty code has the
// class "".
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
			return p.meaning
		}
	}
	return Unknown
}

// classOfReply is ClassOfCode with the HTTP status as the last resort, for codes that are unknown or absent.
func classOfReply(status int, code string) Class {
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
