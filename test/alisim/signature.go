package alisim

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/base64"
	"net/url"
	"strings"
	"time"
)

// clockSkew is how far a request's Timestamp may be off the server's clock. Nonces are remembered as long.
const clockSkew = 15 * time.Minute

// authenticator knows the keys and remembers the nonces. Guarded by the cloud's mutex.
type authenticator struct {
	keys   map[string]credential
	nonces map[string]time.Time
	// seen lists nonces in the order they came, so that the old ones are forgotten without a search.
	seen []string
}

// credential is a key that may sign, and whose it is.
type credential struct {
	secret string
	// token and expires are set for temporary keys.
	token   string
	expires time.Time
	caller  caller
}

// caller is who signed a request.
type caller struct {
	Type, ARN, PrincipalID, UserID, RoleID string
}

// verify returns who signed the request.
// Source: Alibaba Cloud, "RPC signature"; sdk/auth/rpc_signature_composer.go.
func (a *authenticator) verify(method string, p parameters, now time.Time) (caller, error) {
	for _, name := range []string{"AccessKeyId", "Signature", "Timestamp", "SignatureNonce", "SignatureMethod", "SignatureVersion"} {
		if _, err := p.required(name); err != nil {
			return caller{}, err
		}
	}
	if m := p.get("SignatureMethod"); m != "HMAC-SHA1" {
		return caller{}, badRequest("InvalidSignatureMethod", "Specified signature method %q is not valid.", m)
	}
	if err := checkTimestamp(p.get("Timestamp"), now); err != nil {
		return caller{}, err
	}
	key, err := a.key(p, now)
	if err != nil {
		return caller{}, err
	}
	text := stringToSign(method, p)
	if subtle.ConstantTimeCompare([]byte(sign(text, key.secret)), []byte(p.get("Signature"))) != 1 {
		return caller{}, badRequest("SignatureDoesNotMatch",
			"Specified signature is not matched with our calculation. server string to sign is:%s", text)
	}
	return key.caller, a.useNonce(p.get("AccessKeyId")+"/"+p.get("SignatureNonce"), now)
}

func (a *authenticator) key(p parameters, now time.Time) (credential, error) {
	key, known := a.keys[p.get("AccessKeyId")]
	token := p.get("SecurityToken")
	switch {
	case !known:
		return key, notFound("InvalidAccessKeyId.NotFound", "Specified access key is not found.")
	case key.token == "" && token != "":
		return key, badRequest("InvalidSecurityToken.MismatchWithAccessKey", "The access key does not go with a security token.")
	case key.token != "" && token == "":
		return key, badRequest("MissingSecurityToken", "SecurityToken is mandatory for this action.")
	case key.token != token:
		return key, badRequest("InvalidSecurityToken.Malformed", "Specified SecurityToken is malformed.")
	case key.token != "" && !now.Before(key.expires):
		return key, badRequest("InvalidSecurityToken.Expired", "Specified SecurityToken is expired.")
	}
	return key, nil
}

func checkTimestamp(text string, now time.Time) error {
	at, err := time.Parse(secondLayout, text)
	if err != nil {
		return badRequest("InvalidTimeStamp.Format", "Specified time stamp or date value is not well formatted.")
	}
	if now.Sub(at).Abs() > clockSkew {
		return badRequest("InvalidTimeStamp.Expired", "Specified time stamp or date value is expired.")
	}
	return nil
}

// useNonce refuses one that was used before.
func (a *authenticator) useNonce(nonce string, now time.Time) error {
	for len(a.seen) > 0 && now.Sub(a.nonces[a.seen[0]]) > 2*clockSkew {
		delete(a.nonces, a.seen[0])
		a.seen = a.seen[1:]
	}
	if _, used := a.nonces[nonce]; used {
		return badRequest("SignatureNonceUsed", "Specified signature nonce was used already.")
	}
	a.nonces[nonce] = now
	a.seen = append(a.seen, nonce)
	return nil
}

func sign(text, secret string) string {
	mac := hmac.New(sha1.New, []byte(secret+"&"))
	mac.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

var rfc3986 = strings.NewReplacer("+", "%20", "*", "%2A", "%7E", "~")

// stringToSign covers every parameter but the signature itself, from query and body, sorted by name.
func stringToSign(method string, p parameters) string {
	signed := make(url.Values, len(p))
	for name, values := range p {
		if name != "Signature" {
			signed[name] = values[:1]
		}
	}
	return method + "&%2F&" + url.QueryEscape(rfc3986.Replace(signed.Encode()))
}
