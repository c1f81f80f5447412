package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gpu-spot-autoscaler/test/alisim/ram"
)

const (
	ramPolicy = "deploy/ram-policy.json"
	// exampleCluster is the name of the cluster in what is shipped, where the user puts his own.
	exampleCluster = "my-cluster"
)

// shippedRAMPolicy is the one that a user would make of it for the cluster.
func shippedRAMPolicy(root, clusterName string) (*ram.Policy, error) {
	document, err := os.ReadFile(filepath.Join(root, ramPolicy))
	if err != nil {
		return nil, err
	}
	policy, err := ram.Parse([]byte(strings.ReplaceAll(string(document), exampleCluster, clusterName)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ramPolicy, err)
	}
	return policy, nil
}
