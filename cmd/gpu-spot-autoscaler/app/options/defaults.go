package options

import (
	"flag"
	"fmt"
	"os"

	"gpu-spot-autoscaler/pricing"
)

// coreDefaults are the defaults of Cluster Autoscaler that do not suit GPU spot capacity. All can still be given.
func coreDefaults() map[string]string {
	defaults := map[string]string{
		// Cluster Autoscaler's provider is ours whatever this says; manifests may go on saying alicloud.
		"cloud-provider": "alicloud",
		"expander":       pricing.LeastPriceName,

		// A pool has its own cooldown, of which the delay is the default. As a global delay it would never end while
		// reclaimed nodes are being replaced.
		"scale-down-delay-type-local": "true",
		"scale-down-delay-after-add":  "0s",
		// Its clean-up at start would let pods back onto nodes under reclaim.
		"cordon-node-before-terminating": "false",
		// Some 0.8 kB per offering in one object of 1 MiB at most, written in every loop.
		"write-status-configmap": "false",

		// A reclaim or the end of a big job sets many nodes free at once. Core deletes nodes one by one; the provider
		// gathers the calls into few. Drains are bounded by disruption budgets.
		"max-scale-down-parallelism": "1000",
		"max-drain-parallelism":      "20",
		// What is always so here; see fixed.
		"frequent-loops-enabled": "true",
		"force-ds":               "true",
		// Deleting a node takes some three requests; the default of 5 a second would make that a minute for 100 nodes.
		"kube-client-qps":   "100",
		"kube-client-burst": "200",
		"user-agent":        Name,
	}
	if namespace := os.Getenv("POD_NAMESPACE"); namespace != "" {
		defaults["namespace"] = namespace
	}
	return defaults
}

// setDefaults changes defaults of flags that are declared already, so that --help shows them.
func setDefaults(defaults map[string]string) error {
	for name, value := range defaults {
		f := flag.Lookup(name)
		if f == nil {
			return fmt.Errorf("cluster autoscaler has no flag --%s", name)
		}
		if err := f.Value.Set(value); err != nil {
			return fmt.Errorf("default of --%s: %w", name, err)
		}
		f.DefValue = value
	}
	return nil
}

// Ours says whether the flag is one of ours, or of Cluster Autoscaler with another default.
func (o *Options) Ours(name string) bool {
	_, changed := coreDefaults()[name]
	return changed || o.sections.FlagSet(sectionOurs).Lookup(name) != nil
}
