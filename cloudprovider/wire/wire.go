// Package wire has what the autoscaler and the node-agent must write in the same way on Nodes, though they may be of different versions.
package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
)

// digestLength is in hexadecimal digits.
const digestLength = 32

// Caller returns the name of a caller of the node-agent with that address, as in api.AnnotationAwaitedAcknowledgements. It is the same however
// the address is written, such as an IPv4 address in IPv6.
func Caller(address netip.Addr) string { return address.Unmap().WithZone("").String() }

// Digest returns the digest in api.AnnotationAwaitedAcknowledgements of a text that a caller may send.
func Digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:digestLength]
}
