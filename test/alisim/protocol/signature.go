package protocol

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/base64"
	"net/url"
	"strings"
	"sync"
	"time"

	"gpu-spot-autoscaler/test/alisim/ram"
)

// clockSkew is how far a request's Timestamp may be off the server's clock. Nonces are remembered as long.
const clockSkew = 15 * time.Minute

// Keys are those that may sign requests. They also remember the nonces.
type Keys struct {
	mu     sync.Mutex
	keys   map[string]Key
	nonces map[string]time.Time
	// seen lists nonces in the order they came, so that the old ones are forgotten without a search.
	seen []string
}

// NewKeys returns an empty set.
func NewKeys() *Keys { return &Keys{keys: map[string]Key{}, nonces: map[string]time.Time{}} }

// Add lets a key sign.
func (k *Keys) Add(id string, key Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys[id] = key
}

// Key is a key that may sign, and whose it is.
type Key struct {
	Secret string
	// Token and Expires are set for temporary keys.
	Token   string
	Expires time.Time
	Caller  Caller
}

// Caller is who signed a request.
type Caller struct {
	Type, ARN, PrincipalID, UserID, RoleID string
	// Policy is what the caller may do; nil leaves that to the policy for all callers.
	Policy *ram.Policy
	// Administrates is true if no policy limits what the caller may do.
	Administrates bool
}

// verify returns who signed the request.
// Source: Alibaba Cloud, "RPC signature"; sdk/auth/rpc_signature_composer.go.
func (k *Keys) verify(method string, p Parameters, now time.Time) (Caller, error) {
	for _, name := range []string{"AccessKeyId", "Signature", "Timestamp", "SignatureNonce", "SignatureMethod", "SignatureVersion"} {
		if _, err := p.Required(name); err != nil {
			return Caller{}, err
		}
	}
	if m := p.Get("SignatureMethod"); m != "HMAC-SHA1" {
		return Caller{}, BadRequest("InvalidSignatureMethod", "Specified signature method %q is not valid.", m)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := checkTimestamp(p.Get("Timestamp"), now); err != nil {
		return Caller{}, err
	}
	key, err := k.key(p, now)
	if err != nil {
		return Caller{}, err
	}
	text := stringToSign(method, p)
	if subtle.ConstantTimeCompare([]byte(sign(text, key.Secret)), []byte(p.Get("Signature"))) != 1 {
		return Caller{}, BadRequest("SignatureDoesNotMatch",
			"Specified signature is not matched with our calculation. server string to sign is:%s", text)
	}
	return key.Caller, k.useNonce(p.Get("AccessKeyId")+"/"+p.Get("SignatureNonce"), now)
}

func (k *Keys) key(p Parameters, now time.Time) (Key, error) {
	key, known := k.keys[p.Get("AccessKeyId")]
	token := p.Get("SecurityToken")
	switch {
	case !known:
		return key, NotFound("InvalidAccessKeyId.NotFound", "Specified access key is not found.")
	case key.Token == "" && token != "":
		return key, BadRequest("InvalidSecurityToken.MismatchWithAccessKey", "The access key does not go with a security token.")
	case key.Token != "" && token == "":
		return key, BadRequest("MissingSecurityToken", "SecurityToken is mandatory for this action.")
	case key.Token != token:
		return key, BadRequest("InvalidSecurityToken.Malformed", "Specified SecurityToken is malformed.")
	case key.Token != "" && !now.Before(key.Expires):
		return key, BadRequest("InvalidSecurityToken.Expired", "Specified SecurityToken is expired.")
	}
	return key, nil
}

func checkTimestamp(text string, now time.Time) error {
	at, err := time.Parse(SecondLayout, text)
	if err != nil {
		return BadRequest("InvalidTimeStamp.Format", "Specified time stamp or date value is not well formatted.")
	}
	if now.Sub(at).Abs() > clockSkew {
		return BadRequest("InvalidTimeStamp.Expired", "Specified time stamp or date value is expired.")
	}
	return nil
}

// useNonce refuses one that was used before.
func (k *Keys) useNonce(nonce string, now time.Time) error {
	for len(k.seen) > 0 && now.Sub(k.nonces[k.seen[0]]) > 2*clockSkew {
		delete(k.nonces, k.seen[0])
		k.seen = k.seen[1:]
	}
	if _, used := k.nonces[nonce]; used {
		return BadRequest("SignatureNonceUsed", "Specified signature nonce was used already.")
	}
	k.nonces[nonce] = now
	k.seen = append(k.seen, nonce)
	return nil
}

// Sign returns the signature of a request.
func Sign(method string, p url.Values, secret string) string {
	return sign(stringToSign(method, Parameters(p)), secret)
}

func sign(text, secret string) string {
	mac := hmac.New(sha1.New, []byte(secret+"&"))
	mac.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

var rfc3986 = strings.NewReplacer("+", "%20", "*", "%2A", "%7E", "~")

// stringToSign covers every parameter but the signature itself, from query and body, sorted by name.
func stringToSign(method string, p Parameters) string {
	signed := make(url.Values, len(p))
	for name, values := range p {
		if name != "Signature" {
			signed[name] = values[:1]
		}
	}
	return method + "&%2F&" + url.QueryEscape(rfc3986.Replace(signed.Encode()))
}
