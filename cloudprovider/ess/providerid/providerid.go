// Package providerid parses and writes the providerID of Nodes that are ECS instances.
package providerid

import (
	"fmt"
	"regexp"
	"strings"
)

// scheme precedes the providerID on Nodes of newer versions of the cloud-controller-manager.
const scheme = "alicloud://"

// ecsInstance is <region>.<instance-id>, the form that ACK gives its ECS nodes. Nodes that are no ECS instances, such as
// virtual nodes, have another name after the region.
var ecsInstance = regexp.MustCompile(`^([a-z]+(?:-[a-z0-9]+)+)\.(i-[A-Za-z0-9-]+)$`)

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
	parts := ecsInstance.FindStringSubmatch(bare)
	if parts == nil {
		return "", "", &Error{providerID, "is not of the form <region>.<instance-id>"}
	}
	return parts[1], parts[2], nil
}

// Format returns the providerID that ACK gives the Node of an ECS instance.
func Format(region, instanceID string) string { return region + "." + instanceID }
