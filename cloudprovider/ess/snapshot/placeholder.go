package snapshot

import (
	"strconv"
	"strings"
)

// placeholderPrefix begins the providerID of an instance that failed to be created and so has no id.
const placeholderPrefix = "gpu-spot-failed://"

// Placeholder returns the providerID under which core sees the n-th failed instance of a purchase.
func Placeholder(token string, n int) string {
	return placeholderPrefix + token + "/" + strconv.Itoa(n)
}

// PlaceholderToken returns the token of the purchase that the placeholder belongs to; false for any other providerID.
func PlaceholderToken(providerID string) (string, bool) {
	rest, ok := strings.CutPrefix(providerID, placeholderPrefix)
	if !ok {
		return "", false
	}
	token, _, _ := strings.Cut(rest, "/")
	return token, true
}
