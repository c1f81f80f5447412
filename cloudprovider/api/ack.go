package api

// Labels of the Nodes of ACK. Its agents write them on Nodes, and the provider on the templates of nodes that are not there
// yet; pods select by them.
const (
	// LabelSpotStrategy is the SpotStrategy of the instance: NoSpot, SpotAsPriceGo or SpotWithPriceLimit. The pricing model
	// and the poll for notices read it.
	LabelSpotStrategy = "node.alibabacloud.com/spot-strategy"
	// LabelChargeType is the InstanceChargeType of the instance: PostPaid or PrePaid.
	LabelChargeType = "node.alibabacloud.com/instance-charge-type"
	// LabelDiskZone is the zone that volumes on cloud disks are bound to.
	LabelDiskZone = "topology.diskplugin.csi.alibabacloud.com/zone"
	// LabelNodePool and LabelNodePoolOfNode are the node pool.
	LabelNodePool       = "alibabacloud.com/nodepool-id"
	LabelNodePoolOfNode = "node.alibabacloud.com/nodepool-id"
	// LabelACK marks the nodes that ACK manages. It is a tag of their scaling group too.
	LabelACK = "ack.aliyun.com"

	// LabelGPUModel is the model of the NVIDIA GPUs, in the spelling of nvidia-smi with dashes for spaces. The provider reads
	// it.
	LabelGPUModel = "aliyun.accelerator/nvidia_name"
	// LabelGPUCount is their number, LabelGPUMemory the memory of one, such as 23028MiB.
	LabelGPUCount  = "aliyun.accelerator/nvidia_count"
	LabelGPUMemory = "aliyun.accelerator/nvidia_mem"
	// LabelXPUType is "nvidia" where the GPUs are.
	LabelXPUType = "aliyun.accelerator/xpu_type"
	// LabelGPUSchedule says in which way ACK hands out the GPUs of the node, and so as which resource. Operators write it,
	// the provider reads it.
	LabelGPUSchedule = "ack.node.gpu.schedule"
)

// TagACKNodePool is on the scaling group of a node pool and holds its id. ACK writes it, the provider reads it for the labels
// of the templates.
const TagACKNodePool = "ack.alibabacloud.com/nodepool-id"

// Extended resources as which GPUs are offered. Device plugins write them on Nodes, pods request them. A node offers its GPUs
// in one way only; the others are 0 on it.
const (
	// ResourceGPU are whole GPUs, by NVIDIA's device plugin.
	ResourceGPU = "nvidia.com/gpu"
	// ResourceTopologyGPU are whole GPUs that ACK's scheduler picks by their interconnect.
	ResourceTopologyGPU = "aliyun.com/gpu"
	// ResourceGPUMemory is GPU memory that pods share, in GiB, summed over the GPUs of the node.
	ResourceGPUMemory = "aliyun.com/gpu-mem"
	// ResourceGPUCount is how many GPUs that memory is on.
	ResourceGPUCount = "aliyun.com/gpu-count"
	// ResourceGPUCompute is in per cent of one GPU, summed over the GPUs of the node.
	ResourceGPUCompute = "aliyun.com/gpu-core.percentage"
	// ResourceGPUPrefixACK begins the names of all of ACK's.
	ResourceGPUPrefixACK = "aliyun.com/gpu"
)
