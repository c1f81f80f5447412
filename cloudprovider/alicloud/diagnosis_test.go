package alicloud

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestEachFailureNamesItsCause(t *testing.T) {
	for code, want := range map[string]Reason{
		CodeCredentials: NoCredentials, "MissingAccessKeyId": NoCredentials,
		"InvalidAccessKeyId.NotFound": UnknownKey, "InvalidAccessKeyId.Inactive": UnknownKey,
		"SignatureDoesNotMatch": WrongSecret, "IncompleteSignature": WrongSecret,
		"InvalidSecurityToken.Expired": ExpiredToken, "InvalidSecurityToken.Malformed": ExpiredToken, "AuthenticationFail.OIDCToken.Expired": ExpiredToken,
		"InvalidTimeStamp.Expired": ClockSkew, "IllegalTimestamp": ClockSkew,
		"Forbidden.RAM": NotAllowed, "Forbidden": NotAllowed, "NoPermission": NotAllowed, "Forbidden.Unauthorized": NotAllowed,
		"InvalidRegionId.NotFound": WrongRegion,
		"Throttling.User":          Throttling,
		"ServiceUnavailable":       Unreachable, CodeTimeout: Unreachable,
		"Surprise": Refused,
	} {
		err := fmt.Errorf("look: %w", &Error{Service: ServiceESS, Action: "X", Code: code, Class: ClassOfCode(code), RequestID: "R-1", Status: 400})
		d := Diagnose(err)
		assert.Equal(t, want, d.Reason, code)
		assert.Contains(t, d.Cause, Remedies[want].Cause, code)
		assert.Equal(t, Remedies[want].Fix, d.Fix, code)
		assert.NotContains(t, d.Cause, "R-1", "it is the same at the next call")
		passes := want == Throttling || want == Unreachable || want == Refused
		assert.Equal(t, passes, d.Transient, code)
		assert.Equal(t, !passes, NeedsOperator(err), code)
	}
	for reason, remedy := range Remedies {
		assert.NotEmpty(t, remedy.Cause, reason)
		assert.NotEmpty(t, remedy.Fix, reason)
	}
}

func TestARoleThatCannotBeAssumedIsNoMissingPermissionOfACall(t *testing.T) {
	for _, code := range []string{"EntityNotExist.Role", "NoPermission", "AuthenticationFail.NoPermission"} {
		err := &Error{Service: ServiceCredentials, Action: "GetCredentials", Code: code, Class: ClassOfCode(code)}
		assert.Equal(t, WrongRole, Diagnose(err).Reason, code)
	}
}

func TestWhatTheAccountMayNotBuyIsNotFixedByPermissions(t *testing.T) {
	assert.False(t, NeedsOperator(&Error{Code: "InvalidInstanceType.ValueUnauthorized", Class: Unauthorized}))
	assert.False(t, NeedsOperator(&Error{Code: "Forbidden.UnknownToUs", Class: Unauthorized}), "it may be about what is bought")
	assert.False(t, NeedsOperator(errors.New("of other origin")))
	assert.False(t, NeedsOperator(nil))
}
