package alisim_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ess"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/sts"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/protocol"
)

const (
	roleARN     = "acs:ram::1234567890123456:role/autoscaler"
	providerARN = "acs:ram::1234567890123456:oidc-provider/ack-rrsa"
)

// jwt is an unsigned token of a ServiceAccount.
func jwt(expires time.Time) string {
	payload := fmt.Sprintf(`{"iss":"https://oidc.example","sub":"system:serviceaccount:kube-system:autoscaler","aud":["sts.aliyuncs.com"],"exp":%d}`, expires.Unix())
	return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".x"
}

// trusted is a TLS configuration that knows the simulator's authority.
func (s *sim) trusted() *tls.Config {
	s.t.Helper()
	text, err := os.ReadFile(s.CAFile())
	require.NoError(s.t, err)
	pool := x509.NewCertPool()
	require.True(s.t, pool.AppendCertsFromPEM(text))
	return &tls.Config{RootCAs: pool}
}

// trustInProcess does for this test what SSL_CERT_FILE does for a process: the SDK's OIDC provider clones the default
// transport.
func (s *sim) trustInProcess() {
	transport := http.DefaultTransport.(*http.Transport)
	before := transport.TLSClientConfig
	transport.TLSClientConfig = s.trusted()
	s.t.Cleanup(func() { transport.TLSClientConfig = before })
}

func TestRolesAreAssumedWithAnOIDCToken(t *testing.T) {
	s := start(t)
	s.trustInProcess()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(jwt(s.clock.Now().Add(time.Hour))), 0o600))
	provider, err := credentials.NewOIDCCredentialsProviderBuilder().WithOIDCProviderARN(providerARN).WithOIDCTokenFilePath(file).
		WithRoleArn(roleARN).WithRoleSessionName("test").WithSTSEndpoint(s.STSEndpoint()).Build()
	require.NoError(t, err)
	key, err := provider.GetCredentials()
	require.NoError(t, err)
	assert.NotEmpty(t, key.SecurityToken)

	client, err := ess.NewClientWithOptions(region, sdk.NewConfig(), credentials.NewStsTokenCredential(key.AccessKeyId, key.AccessKeySecret, key.SecurityToken))
	require.NoError(t, err)
	client.Domain = s.Endpoint()
	_, err = client.DescribeScalingGroups(ess.CreateDescribeScalingGroupsRequest())
	assert.NoError(t, err)

	identity, err := sts.NewClientWithStsToken(region, key.AccessKeyId, key.AccessKeySecret, key.SecurityToken)
	require.NoError(t, err)
	identity.Domain = s.Endpoint()
	who, err := identity.GetCallerIdentity(sts.CreateGetCallerIdentityRequest())
	require.NoError(t, err)
	assert.Equal(t, []string{"AssumedRoleUser", "1234567890123456", "acs:ram::1234567890123456:assumed-role/autoscaler/test"},
		[]string{who.IdentityType, who.AccountId, who.Arn})

	for name, test := range map[string]struct{ id, secret, token, code string }{
		"foreign token": {key.AccessKeyId, key.AccessKeySecret, "made-up", "InvalidSecurityToken.Malformed"},
		"wrong secret":  {key.AccessKeyId, "wrong", key.SecurityToken, "SignatureDoesNotMatch"},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := ess.NewClientWithStsToken(region, test.id, test.secret, test.token)
			require.NoError(t, err)
			client.Domain = s.Endpoint()
			_, err = client.DescribeScalingGroups(ess.CreateDescribeScalingGroupsRequest())
			assert.Equal(t, test.code, codeOf(t, err))
		})
	}
	t.Run("no token", func(t *testing.T) {
		s.connect(alisim.AccessKey{ID: key.AccessKeyId, Secret: key.AccessKeySecret})
		_, err = s.ess.DescribeScalingGroups(ess.CreateDescribeScalingGroupsRequest())
		assert.Equal(t, "MissingSecurityToken", codeOf(t, err))
	})
	t.Run("after an hour", func(t *testing.T) {
		s.pass(time.Hour)
		p := s.signed(http.MethodPost, versionESS, "DescribeScalingGroups", set("AccessKeyId", key.AccessKeyId), set("SecurityToken", key.SecurityToken))
		p.Set("Signature", protocol.Sign(http.MethodPost, p, key.AccessKeySecret))
		_, body := s.raw(http.MethodPost, p, false)
		assert.Equal(t, "InvalidSecurityToken.Expired", body["Code"])
	})
}

func TestRolesAreRefused(t *testing.T) {
	s := start(t, func(w *alisim.World) { w.Roles = []string{roleARN} })
	good := url.Values{
		"Version": {"2015-04-01"}, "Action": {"AssumeRoleWithOIDC"}, "RoleArn": {roleARN}, "OIDCProviderArn": {providerARN},
		"RoleSessionName": {"test"}, "OIDCToken": {jwt(s.clock.Now().Add(time.Hour))},
	}
	for _, test := range []struct {
		name   string
		change func(url.Values)
		code   string
	}{
		{"not at all", func(url.Values) {}, ""},
		{"without role", drop("RoleArn"), "MissingRoleArn"},
		{"without provider", drop("OIDCProviderArn"), "MissingOIDCProviderArn"},
		{"without token", drop("OIDCToken"), "MissingOIDCToken"},
		{"for a role in no form", set("RoleArn", "autoscaler"), "InvalidParameter.RoleArn"},
		{"for an unknown role", set("RoleArn", "acs:ram::1234567890123456:role/other"), "EntityNotExist.Role"},
		{"for a token in no form", set("OIDCToken", "secret"), "AuthenticationFail.OIDCToken.Invalid"},
		{"for an old token", set("OIDCToken", jwt(s.clock.Now().Add(-time.Second))), "AuthenticationFail.OIDCToken.Expired"},
		{"for a session without name", drop("RoleSessionName"), "InvalidParameter.RoleSessionName"},
		{"for a minute only", set("DurationSeconds", "60"), "InvalidParameter"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := url.Values{}
			for name, values := range good {
				p[name] = values
			}
			test.change(p)
			_, body := s.raw(http.MethodPost, p, true)
			code, _ := body["Code"].(string)
			assert.Equal(t, test.code, code)
		})
	}
}

func TestTheAccountItself(t *testing.T) {
	s := start(t)
	who, err := s.sts.GetCallerIdentity(sts.CreateGetCallerIdentityRequest())
	require.NoError(t, err)
	assert.Equal(t, []string{"Account", "acs:ram::1234567890123456:root"}, []string{who.IdentityType, who.Arn})
}

func TestTLSThroughTheProxyForAnyAlibabaHost(t *testing.T) {
	s := start(t)
	proxy, err := url.Parse("http://" + s.Endpoint())
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: s.trusted()}}
	for _, host := range []string{"sts.aliyuncs.com", "sts.ap-southeast-1.aliyuncs.com", "ess.aliyuncs.com"} {
		p := s.signed(http.MethodPost, versionESS, "DescribeScalingGroups")
		resp, err := client.Post("https://"+host+"/?"+p.Encode(), "application/x-www-form-urlencoded", nil)
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, 200, resp.StatusCode)
	}
	client.CloseIdleConnections()
}
