package options

import (
	"flag"
	"fmt"
	"os"
	"slices"

	"gpu-spot-autoscaler/pricing"
)

// coreDefaults returns our defaults of flags of Cluster Autoscaler whose own defaults do not suit GPU spot capacity.
func coreDefaults() map[string]string {
	defaults := map[string]string{
		// The provider is ours whatever this flag says. Existing manifests may keep alicloud.
		"cloud-provider": "alicloud",
		"expander":       pricing.LeastPriceName,

		// The delay is the default of a pool's cooldown. A global delay would never end while reclaimed nodes are being
		// replaced.
		"scale-down-delay-type-local": "true",
		"scale-down-delay-after-add":  "0s",
		// Core's clean-up at start would uncordon reclaiming nodes.
		"cordon-node-before-terminating": "false",
		// The ConfigMap would have some 0.8 kB per offering, of at most 1 MiB, and be written in every loop.
		"write-status-configmap": "false",

		// A reclaim or the end of a big job frees many nodes at once. Core deletes nodes one by one, and the provider batches the
		// calls. Drains are bounded by disruption budgets.
		"max-scale-down-parallelism": "1000",
		"max-drain-parallelism":      "20",
		// These cannot be changed; see fixed.
		"frequent-loops-enabled": "true",
		"force-ds":               "true",
		// Deleting a node takes about three requests. With core's default of 5 per second, 100 nodes would take a minute.
		"kube-client-qps":   "100",
		"kube-client-burst": "200",
		"user-agent":        Name,
	}
	if namespace := os.Getenv("POD_NAMESPACE"); namespace != "" {
		defaults["namespace"] = namespace
	}
	return defaults
}

// setDefaults changes the defaults of declared flags, so that --help shows them.
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

// Ours returns whether the flag is one of ours, or one of Cluster Autoscaler whose default we change.
func (o *Options) Ours(name string) bool {
	_, changed := coreDefaults()[name]
	return changed || slices.ContainsFunc(sectionsOfOurs, func(section string) bool { return o.sections.FlagSet(section).Lookup(name) != nil })
}
