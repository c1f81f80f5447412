// Package deploy has those shipped files that the binary reads.
package deploy

import _ "embed"

// ValuesSchema is the JSON schema of the chart's values.
//
//go:embed chart/gpu-spot-autoscaler/values.schema.json
var ValuesSchema []byte
