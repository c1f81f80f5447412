package alisim

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

func accountOwner(accountID string) caller {
	return caller{Type: "Account", ARN: fmt.Sprintf("acs:ram::%s:root", accountID), PrincipalID: accountID, UserID: accountID}
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
func assumeRoleWithOIDC(c *cloud, r *request) (reply, error) {
	role, err := c.roleOf(r)
	if err != nil {
		return nil, err
	}
	session := r.get("RoleSessionName")
	if !sessionName.MatchString(session) {
		return nil, badRequest("InvalidParameter.RoleSessionName", "The parameter RoleSessionName %q is wrongly formed.", session)
	}
	seconds, err := r.integer("DurationSeconds", 3600, 900, 43200)
	if err != nil {
		return nil, err
	}
	claims, err := r.oidcToken()
	if err != nil {
		return nil, err
	}
	roleID := fmt.Sprintf("3%017d", c.random.Int64N(1e17))
	assumed := caller{
		Type: "AssumedRoleUser", ARN: fmt.Sprintf("acs:ram::%s:assumed-role/%s/%s", c.world.AccountID, role, session),
		PrincipalID: roleID + ":" + session, RoleID: roleID,
	}
	id, key := c.issue(assumed, r.now.Add(time.Duration(seconds)*time.Second))
	return reply{
		"Credentials": map[string]string{
			"AccessKeyId": id, "AccessKeySecret": key.secret, "SecurityToken": key.token, "Expiration": key.expires.UTC().Format(secondLayout),
		},
		"AssumedRoleUser": map[string]string{"Arn": assumed.ARN, "AssumedRoleId": assumed.PrincipalID},
		"OIDCTokenInfo": map[string]string{
			"Subject": claims.Subject, "Issuer": claims.Issuer, "ClientIds": strings.Join(audience(claims.Audience), ","),
			"ExpirationTime": optionalTime(time.Unix(claims.Expires, 0), secondLayout), "IssuanceTime": optionalTime(time.Unix(claims.Issued, 0), secondLayout),
			"VerificationInfo": "Success",
		},
	}, nil
}

// roleOf returns the name of the role, if it may be assumed.
func (c *cloud) roleOf(r *request) (string, error) {
	arn, err := r.required("RoleArn")
	if err != nil {
		return "", err
	}
	provider, err := r.required("OIDCProviderArn")
	if err != nil {
		return "", err
	}
	match := roleARN.FindStringSubmatch(arn)
	if match == nil {
		return "", badRequest("InvalidParameter.RoleArn", "The parameter RoleArn %q is wrongly formed.", arn)
	}
	if !providerARN.MatchString(provider) {
		return "", badRequest("InvalidParameter.OIDCProviderArn", "The parameter OIDCProviderArn %q is wrongly formed.", provider)
	}
	if len(c.world.Roles) > 0 && !slices.Contains(c.world.Roles, arn) {
		return "", notFound("EntityNotExist.Role", "The role %q does not exist.", arn)
	}
	return match[1], nil
}

func (r *request) oidcToken() (oidcClaims, error) {
	var claims oidcClaims
	text, err := r.required("OIDCToken")
	if err != nil {
		return claims, err
	}
	malformed := badRequest("AuthenticationFail.OIDCToken.Invalid", "The OIDC token is not a JSON web token.")
	parts := strings.Split(strings.TrimSpace(text), ".")
	if len(parts) != 3 {
		return claims, malformed
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil {
		return claims, malformed
	}
	if claims.Expires != 0 && r.now.Unix() >= claims.Expires {
		return claims, badRequest("AuthenticationFail.OIDCToken.Expired", "The OIDC token is expired.")
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
func (c *cloud) issue(who caller, expires time.Time) (id string, key credential) {
	id = c.newID("STS.")
	key = credential{secret: c.newID(""), token: c.newID("") + c.newID("") + c.newID(""), expires: expires.Truncate(time.Second), caller: who}
	c.auth.keys[id] = key
	return id, key
}

func getCallerIdentity(c *cloud, r *request) (reply, error) {
	who := r.caller
	return reply{
		"AccountId": c.world.AccountID, "IdentityType": who.Type, "Arn": who.ARN, "PrincipalId": who.PrincipalID,
		"UserId": who.UserID, "RoleId": who.RoleID,
	}, nil
}
