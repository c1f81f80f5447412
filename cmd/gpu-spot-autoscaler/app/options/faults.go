package options

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/intstr"

	"gpu-spot-autoscaler/cloudprovider/reclaim/fault"
)

// FaultOptions say which Nodes are faulty, and on how many of them that has an effect.
type FaultOptions struct {
	// Conditions are the types of conditions, each perhaps with a period.
	Conditions []string
	// MaxNodes is a number of nodes, or a share of each pool and of all pools together.
	MaxNodes intstr.IntOrString
}

func (o *FaultOptions) add(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.Conditions, "node-fault-conditions", fault.DefaultConditions,
		"Conditions that say that a node of a pool is faulty when they are True: <type> or <type>=<period>. The node is drained as for a reclaim, within the period (default 10m), and its instance is given back. Empty for none.")
	o.MaxNodes = fault.DefaultMaxNodes
	intOrPercentVar(&o.MaxNodes, "node-fault-max-nodes",
		"Maximum number of nodes (or share of each pool, and of all pools together) that are given back within an hour because they are faulty. Nothing is done about further ones.", fs)
}

// validate returns an error for every condition that makes no sense.
func (o *FaultOptions) validate() (problems []error) {
	if _, err := fault.ParseConditions(o.Conditions); err != nil {
		problems = append(problems, fmt.Errorf("--node-fault-conditions: %w", err))
	}
	return problems
}
