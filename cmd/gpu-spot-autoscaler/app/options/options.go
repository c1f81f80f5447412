// Package options reads the command line: every flag of Cluster Autoscaler, with some defaults changed, and our own.
package options

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/autoscaler/cluster-autoscaler/config"
	"k8s.io/autoscaler/cluster-autoscaler/config/flags"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	cliflag "k8s.io/component-base/cli/flag"
	componentconfig "k8s.io/component-base/config"
	componentoptions "k8s.io/component-base/config/options"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
	"gpu-spot-autoscaler/cloudprovider/reclaim"
	"gpu-spot-autoscaler/cloudprovider/reclaim/handshake"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/reclaim/poll"
	"gpu-spot-autoscaler/pricing"
)

// Name is the name of the binary, of its Deployment and of its lease, unless flags say otherwise.
const Name = "gpu-spot-autoscaler"

// Names of the sections that --help prints, ours first.
const (
	sectionCloud     = "pools and cloud"
	sectionPurchases = "purchases"
	sectionReclaims  = "reclaims"
	sectionNotices   = "pushed notices"
	sectionServing   = "metrics, status and Events"

	// The following are printed by --help-all only.

	sectionElection = "leader election"
	sectionLogs     = "logs"
	sectionFeatures = "feature gates"
	sectionCore     = "cluster-autoscaler"
)

// sectionsOfOurs are those with flags of our own.
var sectionsOfOurs = []string{sectionCloud, sectionPurchases, sectionReclaims, sectionNotices, sectionServing}

// sectionOf is where those flags of Cluster Autoscaler are listed that matter most to us.
var sectionOf = map[string]string{"cluster-name": sectionCloud, "nodes": sectionCloud, "scale-down-delay-after-add": sectionPurchases}

// Values of --reclaim-replace-until.
const (
	ReplacementBought = "bought"
	ReplacementReady  = "ready"
)

// DryRunSuffix ends the name of the lease of a dry run, which must not take that of an autoscaler that buys.
const DryRunSuffix = "-dry-run"

// defaultPriceRefreshInterval: Alibaba publishes spot prices by the hour.
const defaultPriceRefreshInterval = 5 * time.Minute

// defaultRestart is how long a new GPU instance takes until its driver is up, and a little more for the last checkpoint.
const defaultRestart = 10 * time.Minute

// Options are the flags of the command line. Those of Cluster Autoscaler are set by Complete.
type Options struct {
	CloudOptions

	// SettleWindow is how long no new GPU pod of a kind must have appeared before capacity is bought for it.
	SettleWindow time.Duration
	// ReclaimPollInterval is the time between two polls for reclaim notices. ReclaimNoticePeriod is the time between a notice and
	// the release of the instance.
	ReclaimPollInterval, ReclaimNoticePeriod time.Duration
	// ReclaimReplaceWait is the longest time that a drain waits until the replacement is bought. ReclaimReplaceUntil is bought, or ready if
	// it also waits, as long as the deadline allows, until the replacement is ready.
	ReclaimReplaceWait  time.Duration
	ReclaimReplaceUntil string
	// MaxGrowth is the most that a job may ask for with the label api.LabelGrow: one of its values.
	MaxGrowth string
	// ReclaimMaxUnconfirmed is the number of nodes whose pushed notices have an effect before another source confirms them.
	ReclaimMaxUnconfirmed intstr.IntOrString
	// ReclaimRateLimits limit the requests per second for marks and for drains.
	ReclaimRateLimits reclaim.RateLimits
	// Faults are the conditions of faulty nodes.
	Faults FaultOptions
	// Notices is where reclaim notices may be pushed to.
	Notices NoticeOptions
	// Secure is where metrics and the status are served to callers whom Kubernetes allows it.
	Secure SecureOptions
	// PriceRefreshInterval is the time between two lookups of a price.
	PriceRefreshInterval time.Duration
	// PriceMaxAge is the greatest age of a price that is compared with a price cap.
	PriceMaxAge time.Duration
	// Terms are what time is worth, for the comparison of offerings.
	Terms pricing.Terms
	// DeploymentName is the Deployment of this process, on which Events are recorded that concern no object of the cluster.
	DeploymentName string

	// DryRun has the process decide and tell, and change nothing but its lease.
	DryRun bool

	LeaderElection componentconfig.LeaderElectionConfiguration
	Logs           *logsapi.LoggingConfiguration
	// Autoscaling are the flags of Cluster Autoscaler. Complete sets them.
	Autoscaling config.AutoscalingOptions

	sections cliflag.NamedFlagSets
}

// New declares the flags. Those of Cluster Autoscaler are global variables, so a process can use one Options only.
func New() (*Options, error) {
	o := &Options{Logs: logsapi.NewLoggingConfiguration()}
	o.addOurs()
	o.addElection(o.sections.FlagSet(sectionElection))
	logsapi.AddFlags(o.Logs, o.sections.FlagSet(sectionLogs))
	if err := logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate); err != nil {
		return nil, fmt.Errorf("add the feature gates of logging: %w", err)
	}
	utilfeature.DefaultMutableFeatureGate.AddFlag(o.sections.FlagSet(sectionFeatures))
	if err := setDefaults(coreDefaults()); err != nil {
		return nil, err
	}
	o.addCore(o.sections.FlagSet(sectionCore))
	return o, nil
}

func (o *Options) addOurs() {
	o.CloudOptions.AddFlags(o.sections.FlagSet(sectionCloud))
	o.addPurchases(o.sections.FlagSet(sectionPurchases))
	o.addReclaims(o.sections.FlagSet(sectionReclaims))
	o.Notices.add(o.sections.FlagSet(sectionNotices))
	fs := o.sections.FlagSet(sectionServing)
	o.Secure.add(fs)
	fs.StringVar(&o.DeploymentName, "deployment-name", Name,
		"Name of the Deployment that runs this binary. Events that belong to no pod and no node are recorded there.")
	fs.BoolVar(&o.DryRun, "dry-run", false,
		"Decide, log what would be bought and removed and show it in the status, and change nothing in the cloud and nothing in the cluster but a lease, whose name gets the suffix "+DryRunSuffix+".")
}

func (o *Options) addPurchases(fs *pflag.FlagSet) {
	fs.DurationVar(&o.SettleWindow, "settle-window", podlist.DefaultSettleWindow,
		"Buy for pending GPU pods once no pod of the same kind has appeared for this time, at the latest after five times this time. Complete gangs do not wait. 0 turns it off.")
	fs.DurationVar(&o.PriceRefreshInterval, "price-refresh-interval", defaultPriceRefreshInterval, "How often to ask for prices.")
	fs.DurationVar(&o.PriceMaxAge, "price-max-age", pricing.DefaultMaxAge,
		"Buy nothing that has a price cap while its price is older than this. At least twice --price-refresh-interval.")
	fs.DurationVar(&o.Terms.Restart, "restart-time", defaultRestart,
		"How much useful time a job loses each time it loses its instance, with what it has to do again. Spot instances that are lost often are compared by that.")
	fs.Float64Var(&o.Terms.ValueOfTime, "value-of-time", 0,
		"What it is worth, per instance-hour and in the account's currency, that a job is over sooner. Offerings that are often lost or out of stock are compared by that. 0 stands for the on-demand price.")
}

func (o *Options) addReclaims(fs *pflag.FlagSet) {
	fs.DurationVar(&o.ReclaimPollInterval, "reclaim-poll-interval", poll.DefaultInterval,
		"How often to ask for instances that are about to be reclaimed. One request each; two until a spelling of the filter has found an instance.")
	fs.DurationVar(&o.ReclaimNoticePeriod, "reclaim-notice-period", notice.DefaultPeriod,
		"Time between a notice and the release of the instance, if the notice does not state the deadline.")
	fs.DurationVar(&o.ReclaimReplaceWait, "reclaim-replace-wait", handshake.DefaultReplaceWait,
		"Longest time to delay evictions from a reclaiming node until its replacement is bought.")
	fs.StringVar(&o.ReclaimReplaceUntil, "reclaim-replace-until", ReplacementReady,
		"What evictions from a reclaiming node wait for: until its replacement is bought, or until that is ready (while the deadline allows; jobs train meanwhile, and are asked for another checkpoint before they leave).")
	fs.StringVar(&o.MaxGrowth, "max-growth", api.GrowBuy,
		"The most that jobs may ask for with the label "+api.LabelGrow+": buy spot instances for workers beyond those that they ask for, add them for free on nodes that are there, or never.")
	o.ReclaimMaxUnconfirmed = notice.DefaultMaxUnconfirmed
	intOrPercentVar(&o.ReclaimMaxUnconfirmed, "reclaim-max-unconfirmed",
		"Maximum number of nodes (or share of the spot nodes) on which pushed notices take effect before ECS or the instance confirms them. Further notices wait for confirmation.", fs)
	o.ReclaimRateLimits = reclaim.DefaultRateLimits
	fs.Float32Var(&o.ReclaimRateLimits.MarkQPS, "reclaim-mark-qps", o.ReclaimRateLimits.MarkQPS,
		"Requests per second to the API server for marking reclaiming nodes, which wait for nothing else.")
	fs.IntVar(&o.ReclaimRateLimits.MarkBurst, "reclaim-mark-burst", o.ReclaimRateLimits.MarkBurst, "Burst of --reclaim-mark-qps.")
	fs.Float32Var(&o.ReclaimRateLimits.DrainQPS, "reclaim-drain-qps", o.ReclaimRateLimits.DrainQPS,
		"Requests per second to the API server for warning and evicting the pods of reclaiming nodes.")
	fs.IntVar(&o.ReclaimRateLimits.DrainBurst, "reclaim-drain-burst", o.ReclaimRateLimits.DrainBurst, "Burst of --reclaim-drain-qps.")
	o.Faults.add(fs)
}

func (o *Options) addElection(fs *pflag.FlagSet) {
	o.LeaderElection = componentconfig.LeaderElectionConfiguration{
		LeaderElect:   true,
		LeaseDuration: metav1.Duration{Duration: 15 * time.Second},
		RenewDeadline: metav1.Duration{Duration: 10 * time.Second},
		RetryPeriod:   metav1.Duration{Duration: 2 * time.Second},
		ResourceLock:  resourcelock.LeasesResourceLock,
		ResourceName:  Name,
	}
	componentoptions.BindLeaderElectionFlags(&o.LeaderElection, fs)
}

// addCore adds the flags of Cluster Autoscaler and klog. They stay in the global flag set, where the code that reads them looks
// whether they were given. Those that matter to us most are listed with our own.
func (o *Options) addCore(fs *pflag.FlagSet) {
	if flag.Lookup("logtostderr") == nil {
		klog.InitFlags(nil)
	}
	pflag.CommandLine.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	pflag.CommandLine.AddGoFlagSet(flag.CommandLine)
	for name, usage := range map[string]string{
		"cluster-name":               "Manage the scaling groups tagged " + api.TagEnabled + "=true and " + api.TagCluster + "<cluster-name>.",
		"scale-down-delay-after-add": "Cooldown of pools that have no tag " + api.TagCooldown + ": for how long after a purchase the pool is not scaled down.",
		"nodes":                      "Manage this scaling group too, whatever its tags: <min>:<max>:<scaling-group-id>. Can be given several times.",
	} {
		f := pflag.CommandLine.Lookup(name)
		f.Usage = usage
		o.sections.FlagSet(sectionOf[name]).AddFlag(f)
	}
	pflag.CommandLine.Lookup("gpu-total").Usage = "Minimum and maximum number of GPUs of a model in the cluster: <model>:<min>:<max>, " +
		"the model being the value of the label " + api.LabelGPUModel + ". Can be given several times. Shared GPUs do not count."
	flag.VisitAll(func(f *flag.Flag) {
		taken := slices.ContainsFunc(o.sections.Order, func(section string) bool {
			return o.sections.FlagSets[section].Lookup(f.Name) != nil
		})
		if !taken && !strings.HasPrefix(f.Name, "test.") && !strings.HasPrefix(f.Name, "ginkgo.") {
			fs.AddFlag(pflag.CommandLine.Lookup(f.Name))
		}
	})
}

// Sections returns the flags by section, for parsing and for --help-all.
func (o *Options) Sections() cliflag.NamedFlagSets { return o.sections }

// OurSections returns the flags that --help shows: ours, and those of Cluster Autoscaler that matter most to us.
func (o *Options) OurSections() cliflag.NamedFlagSets {
	return cliflag.NamedFlagSets{Order: sectionsOfOurs, FlagSets: o.sections.FlagSets}
}

// Complete reads the flags of Cluster Autoscaler after the command line was parsed. If one of those flags cannot be read, it exits
// the process, as Cluster Autoscaler does.
func (o *Options) Complete() error {
	o.Autoscaling = flags.AutoscalingOptions()
	if o.LeaderElection.ResourceNamespace == "" {
		o.LeaderElection.ResourceNamespace = o.Autoscaling.ConfigNamespace
	}
	if o.DryRun {
		o.LeaderElection.ResourceName += DryRunSuffix
	}
	if !o.Autoscaling.ScaleDownDelayTypeLocal {
		klog.InfoS("With --scale-down-delay-type-local=false every purchase delays every scale-down, in addition to the cooldown of each pool")
	}
	return o.enableDRA()
}

// enableDRA enables the feature gate that the scheduler's plugins read if the flag of Cluster Autoscaler is set.
func (o *Options) enableDRA() error {
	gates := utilfeature.DefaultMutableFeatureGate
	if !o.Autoscaling.DynamicResourceAllocationEnabled || gates.Enabled(features.DynamicResourceAllocation) {
		return nil
	}
	if err := gates.SetFromMap(map[string]bool{string(features.DynamicResourceAllocation): true}); err != nil {
		return fmt.Errorf("enable dynamic resource allocation: %w", err)
	}
	return nil
}

// Validate returns an error for every flag that makes no sense or would have no effect.
func (o *Options) Validate() []error {
	problems := unsupported(pflag.CommandLine)
	fail := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if o.Autoscaling.ClusterName == "" && len(o.Autoscaling.NodeGroups) == 0 {
		fail("one of --cluster-name and --nodes is required: without either there is no pool to manage")
	}
	if o.SettleWindow < 0 {
		fail("--settle-window=%v is negative", o.SettleWindow)
	}
	for name, value := range map[string]time.Duration{
		"reclaim-poll-interval": o.ReclaimPollInterval, "reclaim-notice-period": o.ReclaimNoticePeriod,
		"reclaim-replace-wait": o.ReclaimReplaceWait, "price-refresh-interval": o.PriceRefreshInterval,
		"scan-interval": o.Autoscaling.ScanInterval,
	} {
		if value <= 0 {
			fail("--%s=%v is not positive", name, value)
		}
	}
	if o.ReclaimReplaceUntil != ReplacementBought && o.ReclaimReplaceUntil != ReplacementReady {
		fail("--reclaim-replace-until=%s is neither %s nor %s", o.ReclaimReplaceUntil, ReplacementBought, ReplacementReady)
	}
	if !slices.Contains([]string{api.GrowNever, api.GrowFree, api.GrowBuy}, o.MaxGrowth) {
		fail("--max-growth=%s is neither %s nor %s nor %s", o.MaxGrowth, api.GrowBuy, api.GrowFree, api.GrowNever)
	}
	if o.Terms.Restart < 0 || o.Terms.ValueOfTime < 0 {
		fail("--restart-time and --value-of-time must not be negative")
	}
	if o.PriceMaxAge < 2*o.PriceRefreshInterval {
		fail("--price-max-age=%v is less than twice --price-refresh-interval=%v: every failed look at a price would stop purchases under a cap",
			o.PriceMaxAge, o.PriceRefreshInterval)
	}
	for name, value := range map[string]float32{
		"reclaim-mark-qps": o.ReclaimRateLimits.MarkQPS, "reclaim-mark-burst": float32(o.ReclaimRateLimits.MarkBurst),
		"reclaim-drain-qps": o.ReclaimRateLimits.DrainQPS, "reclaim-drain-burst": float32(o.ReclaimRateLimits.DrainBurst),
	} {
		if value <= 0 {
			fail("--%s=%v is not positive", name, value)
		}
	}
	return slices.Concat(problems, o.CloudOptions.Validate(), o.Faults.validate(), o.Notices.validate(), o.Secure.validate())
}
