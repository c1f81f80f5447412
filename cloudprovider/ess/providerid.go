package ess

import (
	"fmt"
	"regexp"
	"strings"
)

// providerScheme precedes the providerID where it was written by a cloud-controller-manager of the newer kind.
const providerScheme = "alicloud://"

// ecsProviderID is <region>.<instance-id>: the form that ACK gives its ECS nodes. Nodes that are no ECS instances,
// such as virtual nodes, have other names behind the region.
var ecsProviderID = regexp.MustCompile(`^([a-z]+(?:-[a-z0-9]+)+)\.(i-[A-Za-z0-9-]+)$`)

// ProviderIDError says why a providerID names no ECS instance.
type ProviderIDError struct{ ProviderID, Reason string }

// Error names the providerID and what is wrong with it.
func (e *ProviderIDError) Error() string {
	return fmt.Sprintf("providerID %q: %s", e.ProviderID, e.Reason)
}

// InstanceIDFromProviderID takes the providerID of a Node apart. It accepts both forms seen on ACK nodes,
// <region>.<instance-id> and alicloud://<region>.<instance-id>; everything else is a *ProviderIDError.
func InstanceIDFromProviderID(providerID string) (region, instanceID string, err error) {
	if providerID == "" {
		return "", "", &ProviderIDError{providerID, "is empty"}
	}
	bare := strings.TrimPrefix(providerID, providerScheme)
	if scheme, _, foreign := strings.Cut(bare, "://"); foreign {
		return "", "", &ProviderIDError{providerID, fmt.Sprintf("belongs to another cloud, %q", scheme)}
	}
	parts := ecsProviderID.FindStringSubmatch(bare)
	if parts == nil {
		return "", "", &ProviderIDError{providerID, "is not of the form <region>.<instance-id>"}
	}
	return parts[1], parts[2], nil
}

// ProviderID is the providerID that ACK gives the Node of an ECS instance.
func ProviderID(region, instanceID string) string { return region + "." + instanceID }
