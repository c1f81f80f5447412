package alicloud

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

// Reason is why a call failed, as far as it decides what the operator has to do.
type Reason string

// The reasons why calls fail.
const (
	NoCredentials Reason = "no_credentials"
	UnknownKey    Reason = "unknown_key"
	WrongSecret   Reason = "wrong_secret"
	ExpiredToken  Reason = "expired_token"
	WrongRole     Reason = "wrong_role"
	ClockSkew     Reason = "clock_skew"
	NotAllowed    Reason = "not_allowed"
	WrongRegion   Reason = "wrong_region"
	Throttling    Reason = "throttled"
	Unreachable   Reason = "unreachable"
	Refused       Reason = "refused"
)

// Diagnosis explains a failed call to an operator.
type Diagnosis struct {
	Reason Reason
	// Cause says what is wrong and which call failed. Fix is a sentence that says what to do. Neither has anything that
	// differs from call to call, such as a request id.
	Cause, Fix string
	// Transient says that the failure often passes by itself.
	Transient bool
}

// Remedy is the text for a Reason.
type Remedy struct {
	// Cause is how Diagnosis.Cause begins. Fix is Diagnosis.Fix.
	Cause, Fix string
}

// Remedies has a text for every reason. docs/operations.md repeats them, and a test compares the two.
var Remedies = map[Reason]Remedy{
	NoCredentials: {"there are no credentials to sign requests with",
		"Make the Secret named in credentials.secretName, or set credentials.rrsa, or give the nodes a RAM role."},
	UnknownKey: {"Alibaba Cloud does not know the access key, or it is disabled",
		"Put an access key that exists and is enabled into the Secret of the credentials."},
	WrongSecret: {"the secret does not belong to the access key",
		"Correct ALIBABA_CLOUD_ACCESS_KEY_SECRET in the Secret of the credentials."},
	ExpiredToken: {"the security token is expired, or not the access key's",
		"Renew ALIBABA_CLOUD_SECURITY_TOKEN and the key with it, or use RRSA, which renews by itself."},
	WrongRole: {"the RAM role cannot be assumed",
		"Correct credentials.rrsa, and let the role trust the OIDC provider for this ServiceAccount."},
	ClockSkew: {"the clock of the node is wrong",
		"Synchronize the clock of the node that the leader runs on: requests may be 15 minutes old at most."},
	NotAllowed: {"RAM does not allow the call",
		"Allow it to the user or role of the credentials: deploy/ram-policy.json has all that is needed."},
	WrongRegion: {"there is no such region, or it has no such host",
		"Correct --region."},
	Throttling: {"Alibaba Cloud throttles the account",
		"Let others who use the account ask less, or raise --scan-interval and --reclaim-poll-interval."},
	Unreachable: {"Alibaba Cloud gives no useful answer",
		"Look at the network between the cluster and Alibaba Cloud: routes, NAT, proxies, and its status page."},
	Refused: {"Alibaba Cloud refuses the call",
		"Look the code up in Alibaba Cloud's error centre; the log has the id of the request."},
}

// Diagnose returns why a call failed and what to do. For an error of other origin the cause is its text.
func Diagnose(err error) Diagnosis {
	var e *Error
	if !errors.As(err, &e) {
		return Diagnosis{Reason: Refused, Cause: err.Error(), Fix: "See the log.", Transient: true}
	}
	reason := reasonOf(e)
	remedy := Remedies[reason]
	d := Diagnosis{Reason: reason, Cause: remedy.Cause, Fix: remedy.Fix}
	shown := fmt.Sprintf("%s %s: %s", e.Service, e.Action, e.Code)
	switch reason {
	case Throttling, Unreachable, Refused:
		d.Transient = true
		shown = Brief(e)
	case NoCredentials:
		shown = e.Message
	case ClockSkew:
		if e.Skew != 0 {
			d.Cause = fmt.Sprintf("%s by %v", remedy.Cause, e.Skew.Abs())
		}
	}
	d.Cause += " (" + shortened(shown) + ")"
	return d
}

// Brief returns the text of the error without the request id and the HTTP status, so that the same failure has the same text
// in every call.
func Brief(err error) string {
	var e *Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	text := fmt.Sprintf("%s %s: %s", e.Service, e.Action, e.Code)
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// maxShownBytes bounds what a Diagnosis repeats of Alibaba Cloud's message.
const maxShownBytes = 300

func shortened(text string) string {
	if len(text) <= maxShownBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxShownBytes], "") + "…"
}

// reasonOfCode maps prefixes of codes, in lower case, to reasons.
// Source: the common errors of ECS 2014-05-26 ("Client error codes" and "Common errors" of its API reference), which ESS, VPC
// and STS share; RegionId: "The specified RegionId does not exist" of the VPC API reference, HTTP 404.
var reasonOfCode = []struct {
	prefix string
	reason Reason
}{
	{"invalidaccesskeyid", UnknownKey},
	{"missingaccesskeyid", NoCredentials},
	{"signaturedoesnotmatch", WrongSecret},
	{"incompletesignature", WrongSecret},
	{"invalidaccesskeysecret", WrongSecret},
	{"invalidsecuritytoken", ExpiredToken},
	{"missingsecuritytoken", ExpiredToken},
	{"authenticationfail.oidctoken.expired", ExpiredToken},
	{"invalidtimestamp", ClockSkew},
	{"illegaltimestamp", ClockSkew},
	{"invalidregionid", WrongRegion},
}

func reasonOf(e *Error) Reason {
	code := strings.ToLower(e.Code)
	for _, known := range reasonOfCode {
		if strings.HasPrefix(code, known.prefix) {
			return known.reason
		}
	}
	var dns *net.DNSError
	switch {
	case e.Code == CodeCredentials && e.Class == Unauthorized:
		return NoCredentials
	case e.Service == ServiceCredentials && e.Class != Unavailable && e.Class != Throttled:
		return WrongRole
	case errors.As(e.Err, &dns) && dns.IsNotFound:
		return WrongRegion
	case e.Class == Unauthorized:
		return NotAllowed
	case e.Class == Throttled:
		return Throttling
	case e.Class == Unavailable:
		return Unreachable
	}
	return Refused
}

// NeedsOperator returns whether every such call will fail until an operator corrects credentials, permissions, clock or region.
// Then the offering that the call was about is not to blame.
func NeedsOperator(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	switch reasonOf(e) {
	case NotAllowed:
		return permissionCodes[e.Code]
	case NoCredentials, UnknownKey, WrongSecret, ExpiredToken, WrongRole, ClockSkew, WrongRegion:
		return true
	}
	return false
}

// permissionCodes are the codes of class Unauthorized that are certainly about the credentials. Others may be about the
// offering, such as InvalidInstanceType.ValueUnauthorized.
var permissionCodes = map[string]bool{"Forbidden": true, "Forbidden.RAM": true, "Forbidden.Unauthorized": true, "NoPermission": true}
