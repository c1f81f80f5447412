package alicloud

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
		err := fmt.Errorf("look: %w", &Error{Service: ess, Action: "X", Code: code, Class: ClassOfCode(code), RequestID: "R-1", Status: 400})
		d := Diagnose(err)
		assert.Equal(t, want, d.Reason, code)
		assert.Contains(t, d.Cause, Remedies[want].Cause, code)
		assert.Equal(t, Remedies[want].Mend, d.Mend, code)
		assert.NotContains(t, d.Cause, "R-1", "it is the same at the next call")
		passes := want == Throttling || want == Unreachable || want == Refused
		assert.Equal(t, passes, d.Transient, code)
		assert.Equal(t, !passes, NeedsMending(err), code)
	}
	for reason, remedy := range Remedies {
		assert.NotEmpty(t, remedy.Cause, reason)
		assert.NotEmpty(t, remedy.Mend, reason)
	}
}

func TestARoleThatCannotBeAssumedIsNoMissingPermissionOfACall(t *testing.T) {
	for _, code := range []string{"EntityNotExist.Role", "NoPermission", "AuthenticationFail.NoPermission"} {
		err := &Error{Service: "credentials", Action: "GetCredentials", Code: code, Class: ClassOfCode(code)}
		assert.Equal(t, WrongRole, Diagnose(err).Reason, code)
	}
}

func TestAHostThatDoesNotExistIsAWrongRegion(t *testing.T) {
	err := noReply(ess, "X", &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "ess.cn-nowhere.aliyuncs.com", IsNotFound: true}})
	assert.Equal(t, WrongRegion, Diagnose(err).Reason)
	nowhere := credentialsError(&url.Error{Op: "Post", URL: "https://sts.cn-nowhere.aliyuncs.com", Err: &net.DNSError{Err: "no such host", IsNotFound: true}})
	assert.Equal(t, WrongRegion, Diagnose(nowhere).Reason)
	assert.Equal(t, Unreachable, Diagnose(noReply(ess, "X", errors.New("connection refused"))).Reason)
}

func TestWhatTheAccountMayNotBuyIsNotMendedByPermissions(t *testing.T) {
	assert.False(t, NeedsMending(&Error{Code: "InvalidInstanceType.ValueUnauthorized", Class: Unauthorized}))
	assert.False(t, NeedsMending(&Error{Code: "Forbidden.UnknownToUs", Class: Unauthorized}), "it may be about what is bought")
	assert.False(t, NeedsMending(errors.New("of other origin")))
	assert.False(t, NeedsMending(nil))
}

func TestHowFarTheClockIsOffIsTold(t *testing.T) {
	w := newWire(t, func(url.Values) answer {
		refusal := refuse(http.StatusBadRequest, "InvalidTimeStamp.Expired")
		refusal.date = time.Now().Add(20 * time.Minute)
		return refusal
	})
	_, err := w.client().ScalingGroups(t.Context(), GroupFilter{})
	require.Error(t, err)
	assert.Contains(t, Diagnose(err).Cause, "the clock of the node is wrong by 20m0s")
}

func TestCredentialsOfAFolderAreReadAgain(t *testing.T) {
	noCredentials(t)
	t.Setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", "of-the-environment")
	dir := t.TempDir()
	write := func(name, content string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	w := newWire(t, func(url.Values) answer { return ok(object{}) })
	client := w.client(func(o *Options) { o.Credentials, o.CredentialsDir = nil, dir })

	_, err := client.Scale(t.Context(), buy("t"))
	assert.Equal(t, NoCredentials, Diagnose(err).Reason)
	assert.Contains(t, Diagnose(err).Cause, filepath.Join(dir, "ALIBABA_CLOUD_ACCESS_KEY_ID"))
	write("ALIBABA_CLOUD_ACCESS_KEY_ID", testKey+"\n")
	write("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "")
	_, err = client.Scale(t.Context(), buy("t"))
	assert.Contains(t, Diagnose(err).Cause, "ALIBABA_CLOUD_ACCESS_KEY_SECRET is empty")
	write("ALIBABA_CLOUD_ACCESS_KEY_SECRET", testSecret+"\n")
	_, err = client.Scale(t.Context(), buy("t"))
	require.NoError(t, err, "mended while it runs")
	assert.Equal(t, testKey, w.seen("ScaleWithAdjustment")[0].Get("AccessKeyId"))
	assert.Empty(t, w.seen("ScaleWithAdjustment")[0].Get("SecurityToken"))
}
