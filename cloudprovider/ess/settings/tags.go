package settings

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/autoscaler/cluster-autoscaler/config"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// readFunc parses the value of a tag into the settings. The error says what is wrong with the value.
type readFunc func(s *Settings, value string) error

// tag is one tag that this package reads.
type tag struct {
	key, value string
	// rank orders tags that set the same thing under several prefixes. The highest rank wins, because it is read last.
	rank int
	read readFunc
}

// knownTags returns the tags to read, in the order in which they have to be read.
func knownTags(tags map[string]string) []tag {
	var known []tag
	for key, value := range tags {
		if rank, read := readerOf(key); read != nil {
			known = append(known, tag{key, strings.TrimSpace(value), rank, read})
		}
	}
	slices.SortFunc(known, func(a, b tag) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.key, b.key))
	})
	return known
}

// readerOf returns the reader of the tag, nil for a tag of another tool.
func readerOf(key string) (rank int, read readFunc) {
	if name, ok := strings.CutPrefix(key, api.Prefix); ok {
		return 3, ownReader(key, name)
	}
	if name, ok := strings.CutPrefix(key, api.TagNodeTemplate); ok {
		return 2, templateReader(name)
	}
	if name, ok := strings.CutPrefix(key, api.TagNodeTemplateUnderscore); ok {
		return 1, templateReader(fromUnderscores(name))
	}
	return 0, ackTags[key]
}

// ownReader returns the reader of a tag under api.Prefix; name is the key without that prefix. It never returns nil: an
// unknown key is read as an error.
func ownReader(key, name string) readFunc {
	if read, ok := ownTags[key]; ok {
		return read
	}
	for _, prefix := range []string{api.TagPriceCapOf, api.TagPriceCapOfUnderscore} {
		if instanceType, ok := strings.CutPrefix(key, prefix); ok {
			return readTypeCap(instanceType)
		}
	}
	if read := nodeReader(name); read != nil {
		return read
	}
	return func(*Settings, string) error { return noSuchSetting(key) }
}

// templateReader returns the reader of a tag by its name after node-template/, in Cluster Autoscaler's own convention.
func templateReader(name string) readFunc {
	if option, ok := strings.CutPrefix(name, "autoscaling-options/"); ok {
		return upstreamOptions[strings.ToLower(option)]
	}
	return nodeReader(name)
}

// nodeReader returns the reader of a label, taint or resource of the nodes; nil for any other name.
func nodeReader(name string) readFunc {
	kind, key, _ := strings.Cut(name, "/")
	switch kind {
	case "label":
		return func(s *Settings, value string) error { return s.addLabel(key, value) }
	case "taint":
		return func(s *Settings, value string) error { return s.addTaint(key, value) }
	case "resources":
		return func(s *Settings, value string) error { return s.addResource(key, value) }
	}
	return nil
}

// fromUnderscores returns the name with slashes. In the form without slashes, ~2 stands for an underscore in labels and
// taints, and for a slash in resources.
func fromUnderscores(name string) string {
	escaped := "_"
	if strings.HasPrefix(name, "resources_") {
		escaped = "/"
	}
	return strings.NewReplacer("_", "/", "~2", escaped).Replace(name)
}

// ownTags are the settings under api.Prefix whose key is fixed.
var ownTags = map[string]readFunc{
	api.TagMinSize:        func(s *Settings, v string) error { return readSize(&s.MinSize, v) },
	api.TagMaxSize:        func(s *Settings, v string) error { return readSize(&s.MaxSize, v) },
	api.TagPriceCap:       func(s *Settings, v string) error { return readPrice(&s.PriceCap, v) },
	api.TagPriceCapPerGPU: func(s *Settings, v string) error { return readPrice(&s.PriceCapPerGPU, v) },
	api.TagSpendCap:       func(s *Settings, v string) error { return readSpend(&s.SpendCap, v) },
	api.TagCooldown:       func(s *Settings, v string) error { return optional(readDuration, &s.Cooldown, v) },
	api.TagTargeting:      func(s *Settings, v string) error { return readTargeting(&s.Targeting, v) },
	api.TagPurchase:       func(s *Settings, v string) error { return readPurchase(&s.Purchase, v) },
	api.TagSharedGPU:      func(s *Settings, v string) error { return readBool(&s.SharedGPU, v) },
	api.TagBuyForCPUPods:  func(s *Settings, v string) error { return readBool(&s.BuyForCPUPods, v) },
	api.TagOnDemandAfter:  func(s *Settings, v string) error { return readDuration(&s.OnDemandAfter, v) },
	api.TagMoveToSpot:     func(s *Settings, v string) error { return readBool(&s.MoveToSpot, v) },
	api.TagValueOfTime:    func(s *Settings, v string) error { return optional(readValueOfTime, &s.ValueOfTime, v) },

	api.TagScaleDownUnneededTime:            readUnneededTime,
	api.TagScaleDownUnreadyTime:             readUnreadyTime,
	api.TagMaxNodeProvisionTime:             readProvisionTime,
	api.TagScaleDownUtilizationThreshold:    readThreshold,
	api.TagScaleDownGPUUtilizationThreshold: readGPUThreshold,
	api.TagIgnoreDaemonSetsUtilization:      readIgnoreDaemonSets,
}

// upstreamOptions are Cluster Autoscaler's own options of a node group.
var upstreamOptions = map[string]readFunc{
	config.DefaultScaleDownUnneededTimeKey:            readUnneededTime,
	config.DefaultScaleDownUnreadyTimeKey:             readUnreadyTime,
	config.DefaultMaxNodeProvisionTimeKey:             readProvisionTime,
	config.DefaultScaleDownUtilizationThresholdKey:    readThreshold,
	config.DefaultScaleDownGpuUtilizationThresholdKey: readGPUThreshold,
	config.DefaultIgnoreDaemonSetsUtilizationKey:      readIgnoreDaemonSets,
}

// ackTags are the tags that ACK puts on its own scaling groups. ACK puts them on the nodes as labels too, and pods select
// by those. ACK writes the values, so a value that is not fit for a label is left out without an error.
var ackTags = map[string]readFunc{
	api.LabelACK: func(s *Settings, v string) error {
		_ = s.addLabel(api.LabelACK, v)
		return nil
	},
	api.TagACKNodePool: func(s *Settings, v string) error {
		_ = s.addLabel(api.LabelNodePool, v)
		_ = s.addLabel(api.LabelNodePoolOfNode, v)
		return nil
	},
}
