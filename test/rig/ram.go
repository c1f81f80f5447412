package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/ram"
)

const (
	ramPolicy = "deploy/ram-policy.json"
	// launchPolicy is what pools that buy by RunInstances need besides.
	launchPolicy = "deploy/ram-policy-run-instances.json"
	// exampleCluster is the name of the cluster in what is shipped, where the user puts his own.
	exampleCluster = "my-cluster"
)

// shippedRAMPolicy is the one that a user would make of what is shipped, for the cluster and its pools.
func shippedRAMPolicy(root, clusterName string, pools []alisim.Pool) (*ram.Policy, error) {
	policy, err := readPolicy(root, ramPolicy, clusterName)
	if err != nil || !slices.ContainsFunc(pools, func(p alisim.Pool) bool { return p.Tags[api.TagPurchase] == "run-instances" }) {
		return policy, err
	}
	launch, err := readPolicy(root, launchPolicy, clusterName)
	if err != nil {
		return nil, err
	}
	policy.Statement = append(policy.Statement, launch.Statement...)
	return policy, nil
}

// ShippedRAMPolicy returns the RAM policy in a file of deploy, as the user would make it for the cluster.
func ShippedRAMPolicy(t *testing.T, name, clusterName string) *ram.Policy {
	t.Helper()
	root, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	policy, err := readPolicy(root, filepath.Join("deploy", name), clusterName)
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

func readPolicy(root, name, clusterName string) (*ram.Policy, error) {
	document, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return nil, err
	}
	policy, err := ram.Parse([]byte(strings.ReplaceAll(string(document), exampleCluster, clusterName)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return policy, nil
}
