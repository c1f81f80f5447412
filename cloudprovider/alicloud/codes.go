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

// classOfCode holds the codes that are documented for the calls and activities in use.
// Source: the error pages of ESS 2014-08-28, ECS 2014-05-26, VPC 2016-04-28 and STS 2015-04-01.
var classOfCode = map[string]Class{
	"OperationDenied.NoStock":                    Stockout,
	"NoInstanceStock":                            Stockout,
	"Zone.NotOnSale":                             Stockout,
	"OperationDenied.ZoneSoldOut":                Stockout,
	"RecommendEmpty.InstanceTypeSoldOut":         Stockout,
	"InvalidResourceType.NotSupported":           Stockout,
	"InvalidInstanceType.ZoneNotSupport":         Stockout,
	"InvalidInstanceType.NotSupported":           Stockout,
	"InvalidSpotPriceLimit":                      PriceTooLow,
	"InvalidSpotPriceLimit.LowerThanPublicPrice": PriceTooLow,

	"QuotaExceed.ElasticQuota":              Quota,
	"QuotaExceed.AfterpayInstance":          Quota,
	"InvalidVSwitchId.IpNotEnough":          Quota,
	"InsufficientBalance":                   Quota,
	"InvalidAccountStatus.NotEnoughBalance": Quota,
	"Account.Arrearage":                     Quota,
	"IncorrectCapacity.MaxSize":             Quota,

	"Throttling":      Throttled,
	"Throttling.User": Throttled,
	"Throttling.Api":  Throttled,

	"ScalingActivityInProgress":   Conflict,
	"Operation.Conflict":          Conflict,
	"OperationConflict":           Conflict,
	"IncorrectScalingGroupStatus": Conflict,
	"IncorrectInstanceStatus":     Conflict,

	"InvalidScalingGroupId.NotFound":         NotFound,
	"InvalidInstanceId.NotFound":             NotFound,
	"InvalidScalingConfigurationId.NotFound": NotFound,
	CodeNoPrice:                              NotFound,

	"Forbidden.Unauthorized":         Unauthorized,
	"Forbidden.RAM":                  Unauthorized,
	"NoPermission":                   Unauthorized,
	"InvalidAccessKeyId.NotFound":    Unauthorized,
	"InvalidAccessKeyId.Inactive":    Unauthorized,
	"SignatureDoesNotMatch":          Unauthorized,
	"IncompleteSignature":            Unauthorized,
	"InvalidSecurityToken.Expired":   Unauthorized,
	"InvalidSecurityToken.Malformed": Unauthorized,
	"InvalidTimeStamp.Expired":       Unauthorized,
	"IllegalTimestamp":               Unauthorized,
	CodeCredentials:                  Unauthorized,

	"IncorrectCapacity.MinSize": BelowMinimum,

	"MissingParameter":            Invalid,
	"InvalidParameter":            Invalid,
	"IdempotentParameterMismatch": Invalid,
	"UnsupportedOperation":        Invalid,
	CodeInvalidRequest:            Invalid,

	"InternalError":      Unavailable,
	"ServiceUnavailable": Unavailable,
	"SignatureNonceUsed": Unavailable, // signed anew, it passes
	CodeNetwork:          Unavailable,
	CodeTimeout:          Unavailable,
	CodeCanceled:         Unavailable,
	CodeNotJSON:          Unavailable,
	CodeHTTP:             Unavailable,
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
	{strings.HasPrefix, "invalidspotpricelimit", PriceTooLow},
	{strings.HasPrefix, "quotaexceed", Quota},
	{strings.Contains, "quotaexceed", Quota},
	{strings.Contains, "limitexceed", Quota},
	{strings.Contains, "ipnotenough", Quota},
	{strings.Contains, "notenoughbalance", Quota},
	{strings.HasPrefix, "throttling", Throttled},
	{strings.HasSuffix, ".conflict", Conflict},
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
