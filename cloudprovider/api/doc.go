// Package api names what the autoscaler shares with others: labels, annotations and taints of Nodes, pods and jobs, tags of
// scaling groups, and the keys of other projects that it goes by. Each says what it means, who writes it and who reads it.
//
// These names are the project's interface: jobs, dashboards and scaling groups depend on them, so that a name stays once it
// was released. The package imports nothing, and everything else may import it, the node-agent included.
//
// Unless a comment says otherwise, a time is RFC 3339 in UTC with seconds, a duration is as time.ParseDuration has it, and
// "true" is the only value of a flag.
package api

const (
	// Prefix is that of the project's own labels, annotations and tags.
	Prefix = "gpu-spot.autoscaling/"
	// MetricPrefix is that of the project's own metrics. Their names stand in full where they are defined.
	MetricPrefix = "gpu_spot_"
)
