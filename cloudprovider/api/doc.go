// Package api has the names that the autoscaler shares with others: labels, annotations and taints of Nodes, pods and jobs,
// tags of scaling groups, and the keys of other projects that it reads or writes. Each constant says what the key means, who
// writes it and who reads it.
//
// The names are the project's interface: jobs, dashboards and scaling groups depend on them, so a released name is never
// changed. The package imports nothing, and every other package may import it, including the node-agent.
//
// Unless a comment says otherwise, a time is RFC 3339 in UTC with seconds, a duration is in the format of
// time.ParseDuration, and the only value of a boolean is "true".
package api

const (
	// Prefix is the prefix of the project's own labels, annotations and tags.
	Prefix = "gpu-spot.autoscaling/"
	// MetricPrefix is the prefix of the project's own metrics. Each name is written in full where the metric is defined.
	MetricPrefix = "gpu_spot_"
)
