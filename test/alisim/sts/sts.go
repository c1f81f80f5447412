// Package sts simulates the Security Token Service: it trades OIDC tokens for temporary keys.
package sts

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"gpu-spot-autoscaler/test/alisim/cloud"
	"gpu-spot-autoscaler/test/alisim/protocol"
)

// Tokens hands out temporary keys.
type Tokens struct {
	cloud *cloud.Cloud
	keys  *protocol.Keys
	roles []string
}

// New returns a service that adds temporary keys to keys. The roles are the ARNs of those that may be assumed; none allows
// every well-formed one.
func New(c *cloud.Cloud, keys *protocol.Keys, roles []string) *Tokens {
	return &Tokens{cloud: c, keys: keys, roles: roles}
}

// Service is STS 2015-04-01.
func (t *Tokens) Service() protocol.Service {
	return protocol.Service{Name: "Sts", Version: "2015-04-01", Actions: map[string]protocol.Action{
		"AssumeRoleWithOIDC": {Handle: t.assumeRoleWithOIDC, Unsigned: true},
		"GetCallerIdentity":  {Handle: t.getCallerIdentity, NeedsNoPermission: true},
	}}.Under(t.cloud)
}

// Owner is the account itself, whose keys need no role.
func Owner(accountID string) protocol.Caller {
	return protocol.Caller{Type: "Account", ARN: fmt.Sprintf("acs:ram::%s:root", accountID), PrincipalID: accountID, UserID: accountID}
}

var (
	roleARN     = regexp.MustCompile(`^acs:ram::\d+:role/([\w.-]+)$`)
	providerARN = regexp.MustCompile(`^acs:ram::\d+:oidc-provider/[\w.-]+$`)
	sessionName = regexp.MustCompile(`^[\w.@-]{2,64}$`)
)

// oidcClaims are what is looked at in an OIDC token. Its signature is not checked: who can reach the simulator may
// have any role of it.
type oidcClaims struct {
	Issuer   string `json:"iss"`
	Subject  string `json:"sub"`
	Audience any    `json:"aud"`
	Expires  int64  `json:"exp"`
	Issued   int64  `json:"iat"`
}

// assumeRoleWithOIDC trades an OIDC token, such as a ServiceAccount's, for temporary keys. It is the one action that
// is not signed.
func (t *Tokens) assumeRoleWithOIDC(r *protocol.Request) (protocol.Reply, error) {
	role, err := t.roleOf(r)
	if err != nil {
		return nil, err
	}
	session := r.Get("RoleSessionName")
	if !sessionName.MatchString(session) {
		return nil, protocol.BadRequest("InvalidParameter.RoleSessionName", "The parameter RoleSessionName %q is wrongly formed.", session)
	}
	seconds, err := r.Integer("DurationSeconds", 3600, 900, 43200)
	if err != nil {
		return nil, err
	}
	claims, err := oidcToken(r)
	if err != nil {
		return nil, err
	}
	roleID := fmt.Sprintf("3%017d", t.cloud.Random.Int64N(1e17))
	assumed := protocol.Caller{
		Type: "AssumedRoleUser", ARN: fmt.Sprintf("acs:ram::%s:assumed-role/%s/%s", t.cloud.AccountID, role, session),
		PrincipalID: roleID + ":" + session, RoleID: roleID,
	}
	id, key := t.issue(assumed, r.Now.Add(time.Duration(seconds)*time.Second))
	return protocol.Reply{
		"Credentials": map[string]string{
			"AccessKeyId": id, "AccessKeySecret": key.Secret, "SecurityToken": key.Token, "Expiration": key.Expires.UTC().Format(protocol.SecondLayout),
		},
		"AssumedRoleUser": map[string]string{"Arn": assumed.ARN, "AssumedRoleId": assumed.PrincipalID},
		"OIDCTokenInfo": map[string]string{
			"Subject": claims.Subject, "Issuer": claims.Issuer, "ClientIds": strings.Join(audience(claims.Audience), ","),
			"ExpirationTime": protocol.OptionalTime(time.Unix(claims.Expires, 0), protocol.SecondLayout), "IssuanceTime": protocol.OptionalTime(time.Unix(claims.Issued, 0), protocol.SecondLayout),
			"VerificationInfo": "Success",
		},
	}, nil
}

// roleOf returns the name of the role, if it may be assumed.
func (t *Tokens) roleOf(r *protocol.Request) (string, error) {
	arn, err := r.Required("RoleArn")
	if err != nil {
		return "", err
	}
	provider, err := r.Required("OIDCProviderArn")
	if err != nil {
		return "", err
	}
	match := roleARN.FindStringSubmatch(arn)
	if match == nil {
		return "", protocol.BadRequest("InvalidParameter.RoleArn", "The parameter RoleArn %q is wrongly formed.", arn)
	}
	if !providerARN.MatchString(provider) {
		return "", protocol.BadRequest("InvalidParameter.OIDCProviderArn", "The parameter OIDCProviderArn %q is wrongly formed.", provider)
	}
	if len(t.roles) > 0 && !slices.Contains(t.roles, arn) {
		return "", protocol.NotFound("EntityNotExist.Role", "The role %q does not exist.", arn)
	}
	return match[1], nil
}

func oidcToken(r *protocol.Request) (oidcClaims, error) {
	var claims oidcClaims
	text, err := r.Required("OIDCToken")
	if err != nil {
		return claims, err
	}
	malformed := protocol.BadRequest("AuthenticationFail.OIDCToken.Invalid", "The OIDC token is not a JSON web token.")
	parts := strings.Split(strings.TrimSpace(text), ".")
	if len(parts) != 3 {
		return claims, malformed
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil {
		return claims, malformed
	}
	if claims.Expires != 0 && r.Now.Unix() >= claims.Expires {
		return claims, protocol.BadRequest("AuthenticationFail.OIDCToken.Expired", "The OIDC token is expired.")
	}
	return claims, nil
}

// audience reads the claim, which is a string or a list of strings.
func audience(claim any) []string {
	switch a := claim.(type) {
	case string:
		return []string{a}
	case []any:
		var list []string
		for _, one := range a {
			list = append(list, fmt.Sprint(one))
		}
		return list
	}
	return nil
}

// issue makes a temporary key.
func (t *Tokens) issue(who protocol.Caller, expires time.Time) (id string, key protocol.Key) {
	id = t.cloud.NewID("STS.")
	key = protocol.Key{Secret: t.cloud.NewID(""), Token: t.cloud.NewID("") + t.cloud.NewID("") + t.cloud.NewID(""), Expires: expires.Truncate(time.Second), Caller: who}
	t.keys.Add(id, key)
	return id, key
}

func (t *Tokens) getCallerIdentity(r *protocol.Request) (protocol.Reply, error) {
	who := r.Caller
	return protocol.Reply{
		"AccountId": t.cloud.AccountID, "IdentityType": who.Type, "Arn": who.ARN, "PrincipalId": who.PrincipalID,
		"UserId": who.UserID, "RoleId": who.RoleID,
	}, nil
}
