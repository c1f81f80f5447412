package api

// Tags of a scaling group that put it under management, the same as for Cluster Autoscaler on other clouds. Operators write
// them, the provider reads them.
const (
	// TagEnabled is "true". The group also needs the tag TagCluster, followed by the name of the cluster. Its value is "owned" with
	// the shipped RAM policy, which allows writes to such groups only. The provider accepts any value.
	TagEnabled = "k8s.io/cluster-autoscaler/enabled"
	TagCluster = "k8s.io/cluster-autoscaler/"
)

// Settings of a pool: tags of its scaling group, or of the active scaling configuration, or annotations of a ConfigMap that
// carries LabelPool. Operators write them, the provider reads them. docs/settings.md has their units, bounds and defaults.
const (
	// TagMinSize and TagMaxSize are the minimum and the maximum number of instances in the pool.
	TagMinSize = "gpu-spot.autoscaling/min-size"
	TagMaxSize = "gpu-spot.autoscaling/max-size"
	// TagPriceCap is the price per instance and hour above which nothing is bought, TagPriceCapPerGPU the price per GPU and hour.
	TagPriceCap       = "gpu-spot.autoscaling/price-cap"
	TagPriceCapPerGPU = "gpu-spot.autoscaling/price-cap-per-gpu"
	// TagPriceCapOf, followed by an instance type, is TagPriceCap for that type. The second form is for annotations, whose
	// keys hold one slash.
	TagPriceCapOf           = "gpu-spot.autoscaling/price-cap/"
	TagPriceCapOfUnderscore = "gpu-spot.autoscaling/price-cap_"
	// TagSpendCap is what the instances of the pool may cost in an hour together.
	TagSpendCap = "gpu-spot.autoscaling/spend-cap"
	// TagCooldown is how long after a purchase no instance of the pool is given back.
	TagCooldown = "gpu-spot.autoscaling/cooldown"
	// TagTargeting is whether purchases name their instance type and zone: auto, request or whole.
	TagTargeting = "gpu-spot.autoscaling/targeting"
	// TagPurchase is the API by which instances are bought: scale-with-adjustment or run-instances.
	TagPurchase = "gpu-spot.autoscaling/purchase"
	// TagSharedGPU is "true" if the nodes offer GPU memory instead of whole GPUs.
	TagSharedGPU = "gpu-spot.autoscaling/shared-gpu"
	// TagBuyForCPUPods is "true" if nodes with GPUs may be bought for pods that ask for none.
	TagBuyForCPUPods = "gpu-spot.autoscaling/buy-for-cpu-pods"
	// TagMoveToSpot is "true" if jobs on on-demand instances of the pool are to move to spot ones where that pays.
	TagMoveToSpot = "gpu-spot.autoscaling/move-to-spot"
	// TagOnDemandAfter is how long pods wait for spot capacity before on-demand instances of the pool are bought for them.
	TagOnDemandAfter = "gpu-spot.autoscaling/on-demand-after"
	// TagValueOfTime is what it is worth per instance-hour that a job on instances of the pool is over sooner.
	TagValueOfTime = "gpu-spot.autoscaling/value-of-time"
)

// Cluster Autoscaler's options of a node group, under the names of its flags. They are shorter than the tags that begin with
// TagNodeTemplate, some of which exceed the limit of 64 characters that several tools have for tags.
const (
	TagScaleDownUnneededTime            = "gpu-spot.autoscaling/scale-down-unneeded-time"
	TagScaleDownUnreadyTime             = "gpu-spot.autoscaling/scale-down-unready-time"
	TagMaxNodeProvisionTime             = "gpu-spot.autoscaling/max-node-provision-time"
	TagScaleDownUtilizationThreshold    = "gpu-spot.autoscaling/scale-down-utilization-threshold"
	TagScaleDownGPUUtilizationThreshold = "gpu-spot.autoscaling/scale-down-gpu-utilization-threshold"
	TagIgnoreDaemonSetsUtilization      = "gpu-spot.autoscaling/ignore-daemonsets-utilization"
)

const (
	// TagNodeTemplate is the prefix of the tags that describe, for Cluster Autoscaler on other clouds, the nodes of a group and
	// its options. It is followed by label/, taint/, resources/ or autoscaling-options/. The first three may also follow Prefix.
	TagNodeTemplate = "k8s.io/cluster-autoscaler/node-template/"
	// TagNodeTemplateUnderscore is the same for annotations, and for clouds whose tags allow no slash, as in Cluster
	// Autoscaler's Azure provider.
	TagNodeTemplateUnderscore = "k8s.io_cluster-autoscaler_node-template_"
)

// TagContract, on a scaling group, says that the group is for the questions of docs/contract.md. If its value is
// TagContractMaySpend, they may buy in it. Operators write it, test/contract reads it. It is not a setting of a pool: the
// provider takes a pool with this tag out of service.
const (
	TagContract         = "gpu-spot.autoscaling/contract"
	TagContractMaySpend = "may-spend"
)

// LabelPool, on a ConfigMap whose annotations are settings of a pool, is the scaling group. Operators write it, the autoscaler
// reads it.
const LabelPool = "gpu-spot.autoscaling/pool"
