// Package deploy has those shipped files that the binary reads.
package deploy

import _ "embed"

// ValuesSchema is the JSON schema of the chart's values.
//
//go:embed chart/gpu-spot-autoscaler/values.schema.json
var ValuesSchema []byte

// RAMPolicy and RAMPolicyRunInstances are the policies with the permissions of the autoscaler: those of all pools, and those of pools
// that buy by RunInstances.
//
//go:embed ram-policy.json
var RAMPolicy []byte

//go:embed ram-policy-run-instances.json
var RAMPolicyRunInstances []byte
