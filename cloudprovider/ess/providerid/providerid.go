// Package providerid parses and writes the providerID of Nodes that are ECS instances.
package providerid

import (
	"fmt"
	"strings"
)

// scheme precedes the providerID on Nodes of newer versions of the cloud-controller-manager.
const scheme = "alicloud://"

// Error says why a providerID names no ECS instance.
type Error struct{ ProviderID, Reason string }

func (e *Error) Error() string {
	return fmt.Sprintf("providerID %q: %s", e.ProviderID, e.Reason)
}

// Parse returns region and instance id of a Node's providerID. It accepts both forms seen on ACK nodes,
// <region>.<instance-id> and alicloud://<region>.<instance-id>; for any other it returns an *Error.
func Parse(providerID string) (region, instanceID string, err error) {
	if providerID == "" {
		return "", "", &Error{providerID, "is empty"}
	}
	bare := strings.TrimPrefix(providerID, scheme)
	if other, _, foreign := strings.Cut(bare, "://"); foreign {
		return "", "", &Error{providerID, fmt.Sprintf("belongs to another cloud, %q", other)}
	}
	region, instanceID, _ = strings.Cut(bare, ".")
	if !isRegion(region) || !isInstance(instanceID) {
		return "", "", &Error{providerID, "is not of the form <region>.<instance-id>"}
	}
	return region, instanceID, nil
}

// isRegion returns whether the text looks like the id of a region, such as cn-hangzhou or us-east-1. It is asked
// many times for every node in each loop, so that a regular expression would show in profiles of big clusters.
func isRegion(text string) bool {
	first, rest, _ := strings.Cut(text, "-")
	if !consistsOf(first, isLower) {
		return false
	}
	for part := range strings.SplitSeq(rest, "-") {
		if !consistsOf(part, func(r rune) bool { return isLower(r) || isDigit(r) }) {
			return false
		}
	}
	return true
}

// isInstance returns whether the text looks like the id of an ECS instance. Nodes that are none, such as virtual nodes, have another name after
// the region.
func isInstance(text string) bool {
	id, is := strings.CutPrefix(text, "i-")
	return is && consistsOf(id, func(r rune) bool { return isLower(r) || isDigit(r) || 'A' <= r && r <= 'Z' || r == '-' })
}

func isLower(r rune) bool { return 'a' <= r && r <= 'z' }
func isDigit(r rune) bool { return '0' <= r && r <= '9' }

// consistsOf returns whether the text is not empty, and all of it is of that kind.
func consistsOf(text string, kind func(rune) bool) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return !kind(r) })
}

// Format returns the providerID that ACK gives the Node of an ECS instance.
func Format(region, instanceID string) string { return region + "." + instanceID }
