package ess

// InstanceIDFromProviderID takes a Node's providerID apart.
func InstanceIDFromProviderID(providerID string) (region, instanceID string, err error) {
	return "", "", nil
}

// ProviderID is the providerID that ACK gives the Node of an instance.
func ProviderID(region, instanceID string) string { return region + "." + instanceID }
