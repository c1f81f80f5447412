package ess

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/autoscaler/cluster-autoscaler/config"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
)

// Targeting is how a pool is asked for one particular offering.
type Targeting string

// The ways in which a pool can be targeted.
const (
	// TargetingAuto finds out by itself whether the pool honours a request that names its offering.
	TargetingAuto Targeting = "auto"
	// TargetingRequest names type, zone and purchase option in every request.
	TargetingRequest Targeting = "request"
	// TargetingWhole makes the pool one node group, of which only the number can be asked.
	TargetingWhole Targeting = "whole"
)

// Bounds beyond which a value is taken for a mistake.
const (
	// maxPoolSize is the most instances that ESS lets a scaling group have.
	maxPoolSize = 2000
	// maxPrice is per instance-hour, a thousand times and more what any type costs on demand.
	maxPrice    = 1e6
	maxDuration = 7 * 24 * time.Hour
)

// Settings are what the tags of a pool say about it. The zero value of a field means that no tag said anything.
type Settings struct {
	// MinSize and MaxSize bound the number of instances in the pool; nil leaves it to the scaling group's own bounds.
	MinSize, MaxSize *int
	// PriceCap is per instance-hour, 0 = none.
	PriceCap float64
	// PriceCapPerGPU is per GPU-hour, 0 = none.
	PriceCapPerGPU float64
	// PriceCapByType is per instance-hour, by instance type; an entry of 0 is none.
	PriceCapByType map[string]float64
	Targeting      Targeting
	// SharedGPU says that the nodes offer the memory of their GPUs instead of whole GPUs.
	SharedGPU bool
	// BuyForCPUPods says that nodes with GPUs may be bought for pods that ask for none.
	BuyForCPUPods bool

	// Labels, Taints (sorted by key) and Resources are those of the pool's nodes, besides what every ACK node has.
	Labels    map[string]string
	Taints    []apiv1.Taint
	Resources apiv1.ResourceList

	// Cooldown is how long after a scale-up of the pool it is not scaled down; nil leaves it to the flag
	// --scale-down-delay-after-add, 0 is none.
	Cooldown *time.Duration

	// The following replace the flags of the same name for the nodes of this pool; nil leaves it to the flag.

	ScaleDownUnneededTime, ScaleDownUnreadyTime, MaxNodeProvisionTime *time.Duration
	// The thresholds are fractions of what is allocatable, 0 to 1.
	ScaleDownUtilizationThreshold, ScaleDownGPUUtilizationThreshold *float64
	IgnoreDaemonSetsUtilization                                     *bool
}

// TagError names the tag that does not parse.
type TagError struct{ Key, Value, Reason string }

// Error names key, value and reason.
func (e *TagError) Error() string {
	return fmt.Sprintf("tag %s=%q: %s", e.Key, e.Value, e.Reason)
}

// MergeTags lays maps of tags over each other; later layers win.
func MergeTags(layers ...map[string]string) map[string]string {
	merged := map[string]string{}
	for _, layer := range layers {
		maps.Copy(merged, layer)
	}
	return merged
}

// ParseSettings reads the tags of a pool. Tags that are nobody's business here are ignored; but under our own prefix
// an unknown key is an error, because it is a misspelt one. The error joins one *TagError per tag, by key; with it come
// the settings that did parse, fit for showing only.
func ParseSettings(tags map[string]string) (Settings, error) {
	s := Settings{Targeting: TargetingAuto}
	var errs []error
	for _, t := range knownTags(tags) {
		if err := t.read(&s); err != nil {
			errs = append(errs, &TagError{Key: t.key, Value: t.value, Reason: err.Error()})
		}
	}
	if s.MinSize != nil && s.MaxSize != nil && *s.MinSize > *s.MaxSize {
		key := api.Prefix + "min-size"
		errs = append(errs, &TagError{key, tags[key], fmt.Sprintf("is above the maximum, %d", *s.MaxSize)})
	}
	slices.SortFunc(s.Taints, func(a, b apiv1.Taint) int { return cmp.Compare(a.Key, b.Key) })
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.(*TagError).Key, b.(*TagError).Key) })
	return s, errors.Join(errs...)
}

// Options returns what core should use for the node groups of the pool: its defaults, and over them what tags say.
func (s Settings) Options(defaults config.NodeGroupAutoscalingOptions) *config.NodeGroupAutoscalingOptions {
	options := defaults
	override(&options.ScaleDownUnneededTime, s.ScaleDownUnneededTime)
	override(&options.ScaleDownUnreadyTime, s.ScaleDownUnreadyTime)
	override(&options.MaxNodeProvisionTime, s.MaxNodeProvisionTime)
	override(&options.ScaleDownUtilizationThreshold, s.ScaleDownUtilizationThreshold)
	override(&options.ScaleDownGpuUtilizationThreshold, s.ScaleDownGPUUtilizationThreshold)
	override(&options.IgnoreDaemonSetsUtilization, s.IgnoreDaemonSetsUtilization)
	// All or nothing would have core buy a pool up to its maximum and delete all of it after one failure.
	options.ZeroOrMaxNodeScaling = false
	return &options
}

func override[T any](option *T, setting *T) {
	if setting != nil {
		*option = *setting
	}
}

// CapFor returns the tightest of the caps that apply to the type, per instance-hour; false where none does.
func (s Settings) CapFor(t alicloud.InstanceType) (float64, bool) {
	tightest := math.Inf(1)
	for _, limit := range []float64{s.PriceCap, s.PriceCapByType[t.ID], s.PriceCapPerGPU * float64(t.GPUs)} {
		if limit > 0 {
			tightest = min(tightest, limit)
		}
	}
	if math.IsInf(tightest, 1) {
		return 0, false
	}
	return tightest, true
}

// tag is one tag that means something here.
type tag struct {
	key, value string
	// rank orders tags that say the same under several prefixes: the highest wins.
	rank int
	read func(*Settings) error
}

// knownTags finds the tags that mean something, in the order in which they have to be read.
func knownTags(tags map[string]string) []tag {
	var known []tag
	for key, value := range tags {
		value = strings.TrimSpace(value)
		if rank, read := reader(key); read != nil {
			known = append(known, tag{key, value, rank, func(s *Settings) error { return read(s, value) }})
		}
	}
	slices.SortFunc(known, func(a, b tag) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.key, b.key))
	})
	return known
}

// readFunc puts the value of a tag into the settings, or says what is wrong with it.
type readFunc func(s *Settings, value string) error

// reader returns how to read the tag, nil where it is none of ours.
func reader(key string) (rank int, read readFunc) {
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

// ownReader never returns nil: what it does not know is misspelt. The name is the key without api.Prefix.
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
	return func(*Settings, string) error { return errors.New("there is no such setting") }
}

// templateReader reads what stands behind node-template/ in upstream's own convention.
func templateReader(name string) readFunc {
	if option, ok := strings.CutPrefix(name, "autoscaling-options/"); ok {
		return upstreamOptions[strings.ToLower(option)]
	}
	return nodeReader(name)
}

// nodeReader reads labels, taints and resources of the nodes.
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

// fromUnderscores undoes the form without slashes, in which ~2 stands for an underscore in labels and taints, and for
// a slash in resources.
func fromUnderscores(name string) string {
	escaped := "_"
	if strings.HasPrefix(name, "resources_") {
		escaped = "/"
	}
	return strings.NewReplacer("_", "/", "~2", escaped).Replace(name)
}

// ownTags are our settings that stand alone.
var ownTags = map[string]readFunc{
	api.TagMinSize:        func(s *Settings, v string) error { return readSize(&s.MinSize, v) },
	api.TagMaxSize:        func(s *Settings, v string) error { return readSize(&s.MaxSize, v) },
	api.TagPriceCap:       func(s *Settings, v string) error { return readPrice(&s.PriceCap, v) },
	api.TagPriceCapPerGPU: func(s *Settings, v string) error { return readPrice(&s.PriceCapPerGPU, v) },
	api.TagCooldown:       func(s *Settings, v string) error { return optional(readDuration, &s.Cooldown, v) },
	api.TagTargeting:      func(s *Settings, v string) error { return readTargeting(&s.Targeting, v) },
	api.TagSharedGPU:      func(s *Settings, v string) error { return readBool(&s.SharedGPU, v) },
	api.TagBuyForCPUPods:  func(s *Settings, v string) error { return readBool(&s.BuyForCPUPods, v) },

	api.TagScaleDownUnneededTime:            readUnneededTime,
	api.TagScaleDownUnreadyTime:             readUnreadyTime,
	api.TagMaxNodeProvisionTime:             readProvisionTime,
	api.TagScaleDownUtilizationThreshold:    readThreshold,
	api.TagScaleDownGPUUtilizationThreshold: readGPUThreshold,
	api.TagIgnoreDaemonSetsUtilization:      readIgnoreDaemonSets,
}

// upstreamOptions are Cluster Autoscaler's own per-group options.
var upstreamOptions = map[string]readFunc{
	config.DefaultScaleDownUnneededTimeKey:            readUnneededTime,
	config.DefaultScaleDownUnreadyTimeKey:             readUnreadyTime,
	config.DefaultMaxNodeProvisionTimeKey:             readProvisionTime,
	config.DefaultScaleDownUtilizationThresholdKey:    readThreshold,
	config.DefaultScaleDownGpuUtilizationThresholdKey: readGPUThreshold,
	config.DefaultIgnoreDaemonSetsUtilizationKey:      readIgnoreDaemonSets,
}

// ackTags are tags by which ACK knows its own scaling groups and which reappear as labels on the nodes, where pods
// select by them. They are not written by hand: what is not fit for a label is left out in silence.
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

func readUnneededTime(s *Settings, v string) error {
	return optional(readDuration, &s.ScaleDownUnneededTime, v)
}

func readUnreadyTime(s *Settings, v string) error {
	return optional(readDuration, &s.ScaleDownUnreadyTime, v)
}

func readProvisionTime(s *Settings, v string) error {
	if err := optional(readDuration, &s.MaxNodeProvisionTime, v); err != nil {
		return err
	}
	if *s.MaxNodeProvisionTime == 0 {
		s.MaxNodeProvisionTime = nil
		return errors.New("must be above 0: no node ever comes up in no time")
	}
	return nil
}

func readThreshold(s *Settings, v string) error {
	return optional(readFraction, &s.ScaleDownUtilizationThreshold, v)
}

func readGPUThreshold(s *Settings, v string) error {
	return optional(readFraction, &s.ScaleDownGPUUtilizationThreshold, v)
}

func readIgnoreDaemonSets(s *Settings, v string) error {
	return optional(readBool, &s.IgnoreDaemonSetsUtilization, v)
}

// optional reads into a new value and sets the pointer only where that succeeded.
func optional[T any](read func(*T, string) error, to **T, value string) error {
	parsed := new(T)
	if err := read(parsed, value); err != nil {
		return err
	}
	*to = parsed
	return nil
}

func readSize(to **int, value string) error {
	size, err := strconv.Atoi(value)
	if err != nil || size < 0 || size > maxPoolSize {
		return fmt.Errorf("must be a whole number from 0 to %d", maxPoolSize)
	}
	*to = &size
	return nil
}

func readPrice(to *float64, value string) error {
	price, err := strconv.ParseFloat(value, 64)
	// The comparison is written so that NaN fails it.
	if err != nil || !(price >= 0 && price <= maxPrice) {
		return fmt.Errorf("must be a price per hour from 0 (no cap) to %.0f", maxPrice)
	}
	*to = price
	return nil
}

var instanceTypeID = regexp.MustCompile(`^ecs(\.[a-z0-9-]+){1,3}$`)

func readTypeCap(instanceType string) readFunc {
	return func(s *Settings, value string) error {
		if !instanceTypeID.MatchString(instanceType) {
			return fmt.Errorf("%q is no instance type, such as ecs.gn7i-c8g1.2xlarge", instanceType)
		}
		var price float64
		if err := readPrice(&price, value); err != nil {
			return err
		}
		put(&s.PriceCapByType, instanceType, price)
		return nil
	}
}

func readDuration(to *time.Duration, value string) error {
	duration, err := time.ParseDuration(value)
	if err != nil || duration < 0 || duration > maxDuration {
		return fmt.Errorf("must be a duration such as 90s, 10m or 1h30m, from 0s to %s", maxDuration)
	}
	*to = duration
	return nil
}

func readFraction(to *float64, value string) error {
	fraction, err := strconv.ParseFloat(value, 64)
	if err != nil || !(fraction >= 0 && fraction <= 1) {
		return errors.New("must be a fraction from 0 to 1")
	}
	*to = fraction
	return nil
}

func readBool(to *bool, value string) error {
	yes, err := strconv.ParseBool(value)
	if err != nil {
		return errors.New("must be true or false")
	}
	*to = yes
	return nil
}

func readTargeting(to *Targeting, value string) error {
	switch targeting := Targeting(value); targeting {
	case TargetingAuto, TargetingRequest, TargetingWhole:
		*to = targeting
		return nil
	}
	return fmt.Errorf("must be %s, %s or %s", TargetingAuto, TargetingRequest, TargetingWhole)
}

func (s *Settings) addLabel(key, value string) error {
	if err := join(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)); err != nil {
		return fmt.Errorf("is no label: %w", err)
	}
	put(&s.Labels, key, value)
	return nil
}

// addTaint reads <value>:<effect>.
func (s *Settings) addTaint(key, value string) error {
	value, effect, ok := strings.Cut(value, ":")
	taint := apiv1.Taint{Key: key, Value: value, Effect: apiv1.TaintEffect(effect)}
	switch taint.Effect {
	case apiv1.TaintEffectNoSchedule, apiv1.TaintEffectPreferNoSchedule, apiv1.TaintEffectNoExecute:
	default:
		ok = false
	}
	if !ok {
		return errors.New("must be <value>:<effect> with the effect NoSchedule, PreferNoSchedule or NoExecute")
	}
	if err := join(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)); err != nil {
		return fmt.Errorf("is no taint: %w", err)
	}
	// A tag of higher rank replaces the taint, as it replaces a label.
	s.Taints = slices.DeleteFunc(s.Taints, func(t apiv1.Taint) bool { return t.Key == key })
	s.Taints = append(s.Taints, taint)
	return nil
}

// maxQuantity is far above what any node has of anything, in bytes or pieces.
var maxQuantity = resource.MustParse("1Pi")

func (s *Settings) addResource(name, value string) error {
	if err := join(validation.IsQualifiedName(name)); err != nil {
		return fmt.Errorf("is no resource: %w", err)
	}
	quantity, err := resource.ParseQuantity(value)
	if err != nil || quantity.Sign() < 0 || quantity.Cmp(maxQuantity) > 0 {
		return fmt.Errorf("must be a quantity such as 4, 15200m or 28Gi, from 0 to %s", &maxQuantity)
	}
	if apiv1.ResourceName(name) != apiv1.ResourceCPU && quantity.MilliValue()%1000 != 0 {
		return errors.New("must be a whole number: only cpu may be divided")
	}
	put((*map[apiv1.ResourceName]resource.Quantity)(&s.Resources), apiv1.ResourceName(name), quantity)
	return nil
}

// join makes one error of the complaints of Kubernetes' validation.
func join(complaints ...[]string) error {
	if all := slices.Concat(complaints...); len(all) > 0 {
		return errors.New(strings.Join(all, "; "))
	}
	return nil
}

// put makes the map on its first entry: the zero Settings have none.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = value
}
