package api

// Tags of a scaling group that put it under management, as Cluster Autoscaler has them on other clouds. Operators write them,
// the provider reads them.
const (
	// TagEnabled is "true", and there is TagCluster followed by the name of the cluster, with any value.
	TagEnabled = "k8s.io/cluster-autoscaler/enabled"
	TagCluster = "k8s.io/cluster-autoscaler/"
)

// Settings of a pool: tags of its scaling group, or of the active scaling configuration, or annotations of a ConfigMap that
// carries LabelPool. Operators write them, the provider reads them. docs/settings.md has their units, bounds and defaults.
const (
	// TagMinSize and TagMaxSize are the number of instances that the pool keeps at least, and holds at most.
	TagMinSize = "gpu-spot.autoscaling/min-size"
	TagMaxSize = "gpu-spot.autoscaling/max-size"
	// TagPriceCap is the price of an instance and hour above which nothing is bought, TagPriceCapPerGPU that of a GPU.
	TagPriceCap       = "gpu-spot.autoscaling/price-cap"
	TagPriceCapPerGPU = "gpu-spot.autoscaling/price-cap-per-gpu"
	// TagPriceCapOf, followed by an instance type, is TagPriceCap for that type. The second form is for annotations, whose
	// keys hold one slash.
	TagPriceCapOf           = "gpu-spot.autoscaling/price-cap/"
	TagPriceCapOfUnderscore = "gpu-spot.autoscaling/price-cap_"
	// TagCooldown is for how long after a purchase nothing of the pool is given back.
	TagCooldown = "gpu-spot.autoscaling/cooldown"
	// TagTargeting is how purchases name their offering: auto, request or whole.
	TagTargeting = "gpu-spot.autoscaling/targeting"
	// TagSharedGPU is "true" where the nodes offer GPU memory instead of whole GPUs.
	TagSharedGPU = "gpu-spot.autoscaling/shared-gpu"
	// TagBuyForCPUPods is "true" where nodes with GPUs may be bought for pods that ask for none.
	TagBuyForCPUPods = "gpu-spot.autoscaling/buy-for-cpu-pods"
)

// Cluster Autoscaler's options of a node group under the names of its flags: shorter than TagNodeTemplate has them, some of
// which break the limit of 64 characters that several tools set for tags.
const (
	TagScaleDownUnneededTime            = "gpu-spot.autoscaling/scale-down-unneeded-time"
	TagScaleDownUnreadyTime             = "gpu-spot.autoscaling/scale-down-unready-time"
	TagMaxNodeProvisionTime             = "gpu-spot.autoscaling/max-node-provision-time"
	TagScaleDownUtilizationThreshold    = "gpu-spot.autoscaling/scale-down-utilization-threshold"
	TagScaleDownGPUUtilizationThreshold = "gpu-spot.autoscaling/scale-down-gpu-utilization-threshold"
	TagIgnoreDaemonSetsUtilization      = "gpu-spot.autoscaling/ignore-daemonsets-utilization"
)

const (
	// TagNodeTemplate begins the tags by which Cluster Autoscaler is told on other clouds what nodes of a group are like,
	// and its options: label/, taint/, resources/ and autoscaling-options/ follow. The first three may follow Prefix too.
	TagNodeTemplate = "k8s.io/cluster-autoscaler/node-template/"
	// TagNodeTemplateUnderscore is the same for annotations, and for clouds whose tags know no slash, as Cluster
	// Autoscaler's Azure provider has it.
	TagNodeTemplateUnderscore = "k8s.io_cluster-autoscaler_node-template_"
)

// TagContract on a scaling group says that the group was made for the questions of docs/contract.md, which buy in it where the
// value is TagContractMaySpend. Operators write it, test/contract reads it. It is no setting of a pool: a pool that has it is
// out of service.
const (
	TagContract         = "gpu-spot.autoscaling/contract"
	TagContractMaySpend = "may-spend"
)

// LabelPool is on the ConfigMaps whose annotations are settings of a pool; its value is the scaling group. Operators write it,
// the autoscaler reads it.
const LabelPool = "gpu-spot.autoscaling/pool"
