// Package deploy has those shipped files that the binary reads.
package deploy

import _ "embed"

// Chart is the chart's Chart.yaml, which has the version of the release.
//
//go:embed chart/gpu-spot-autoscaler/Chart.yaml
var Chart []byte

// ValuesSchema is the JSON schema of the chart's values.
//
//go:embed chart/gpu-spot-autoscaler/values.schema.json
var ValuesSchema []byte
