package options

import (
	"fmt"

	"github.com/spf13/pflag"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// Reasons why a flag of Cluster Autoscaler must keep its default.
const (
	otherCloud   = "it is for another cloud than Alibaba Cloud's"
	noBalancing  = "purchases are not balanced: the offerings of a pool share one maximum, and --expander chooses between them"
	notInCore    = "Cluster Autoscaler 1.33 does not read it"
	noCloudFile  = "there is no such file: see --region, and the environment for credentials"
	neverCreated = "scaling groups are the operator's: none is created"
)

// fixed are the flags of Cluster Autoscaler that must keep their default, with the reason. A flag that is neither listed nor read
// would silently have no effect; see TestEveryFlagIsServedOrRefused.
var fixed = map[string]string{
	"cloud-provider":                          "this binary has one cloud provider, Alibaba Cloud's",
	"cloud-config":                            noCloudFile,
	"aws-use-static-instance-list":            otherCloud,
	"bulk-mig-instances-listing-enabled":      otherCloud,
	"gce-concurrent-refreshes":                otherCloud,
	"gce-mig-instances-min-refresh-wait-time": otherCloud,
	"clusterapi-cloud-config-authoritative":   otherCloud,
	"regional":                                otherCloud,

	"node-group-auto-discovery": "scaling groups are found by the tags " + api.TagEnabled + " and " + api.TagCluster + "<cluster-name>",
	"async-node-groups":         neverCreated,

	"balance-similar-node-groups":      noBalancing,
	"balancing-ignore-label":           noBalancing,
	"balancing-label":                  noBalancing,
	"max-allocatable-difference-ratio": noBalancing,
	"max-free-difference-ratio":        noBalancing,
	"memory-difference-ratio":          noBalancing,
	"parallel-scale-up":                "a purchase is of one offering",

	"frequent-loops-enabled":      "loops start when pods or reclaim notices come, always",
	"force-ds":                    "the DaemonSets that suit a new node are always counted: its template is made of the offering, never copied from a node",
	"node-info-cache-expire-time": "templates are made of offerings, never copied from nodes, and made anew when those change",

	"scale-down-non-empty-candidates-count": notInCore,
	"scale-down-candidates-pool-ratio":      notInCore,
	"scale-down-candidates-pool-min-count":  notInCore,
}

// dependent are the flags that have no effect unless another flag has a certain value, which is not its default.
var dependent = map[string]struct{ on, value, because string }{
	"scale-down-delay-after-delete":  {"scale-down-delay-type-local", "false", "a pool has no delay but its cooldown"},
	"scale-down-delay-after-failure": {"scale-down-delay-type-local", "false", "a pool has no delay but its cooldown"},
	"status-config-map-name":         {"write-status-configmap", "true", "that is off by default here"},
}

// unsupported returns an error for each flag that was given a value without effect, in order.
func unsupported(flags *pflag.FlagSet) []error {
	var problems []error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Value.String() == f.DefValue {
			return
		}
		if reason, isFixed := fixed[f.Name]; isFixed {
			problems = append(problems, fmt.Errorf("--%s=%s is not supported: %s", f.Name, f.Value, reason))
		}
		if need, depends := dependent[f.Name]; depends && flags.Lookup(need.on).Value.String() != need.value {
			problems = append(problems, fmt.Errorf("--%s=%s does nothing without --%s=%s: %s", f.Name, f.Value, need.on, need.value, need.because))
		}
	})
	return problems
}
