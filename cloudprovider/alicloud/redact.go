package alicloud

import (
	"regexp"
	"strings"
)

// secretParameter matches the parameters of a signed request that would let others act in our name, whether they stand in
// a URL, percent-encoded in a string to sign, or in JSON.
var secretParameter = regexp.MustCompile(
	`(?i)(Signature|SignatureNonce|SecurityToken|BearerToken|OIDCToken|AccessKeySecret)("?\s*[=:]\s*"?|%3D|%253D)[^\s&"',]+`)

// stringToSign matches the part of a signature error that repeats the whole signed request.
var stringToSign = regexp.MustCompile(`(?is)[,;.]?\s*(server )?string to ?sign.*`)

// Redact returns a text of Alibaba Cloud or of its SDK without credentials and signatures. The secrets are values in use
// that must not be in the result; empty ones are ignored.
func Redact(text string, secrets ...string) string {
	text = stringToSign.ReplaceAllString(text, "")
	text = secretParameter.ReplaceAllString(text, "$1=<hidden>")
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "<hidden>")
		}
	}
	return strings.TrimSpace(text)
}
