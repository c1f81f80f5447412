package api

// Labels of the Nodes of ACK. Its agents write them on Nodes, and the provider on the templates of Nodes that do not exist
// yet. Pods select Nodes by them.
const (
	// LabelSpotStrategy is the SpotStrategy of the instance: NoSpot, SpotAsPriceGo or SpotWithPriceLimit. The pricing model
	// and the poll for notices read it.
	LabelSpotStrategy = "node.alibabacloud.com/spot-strategy"
	// SpotStrategyNoSpot is its value for pay-as-you-go.
	SpotStrategyNoSpot = "NoSpot"
	// LabelChargeType is the InstanceChargeType of the instance: PostPaid or PrePaid.
	LabelChargeType = "node.alibabacloud.com/instance-charge-type"
	// LabelDiskZone is the zone whose cloud disks the Node can attach.
	LabelDiskZone = "topology.diskplugin.csi.alibabacloud.com/zone"
	// LabelNodePool and LabelNodePoolOfNode are the id of the node pool.
	LabelNodePool       = "alibabacloud.com/nodepool-id"
	LabelNodePoolOfNode = "node.alibabacloud.com/nodepool-id"
	// LabelACK is on the nodes that ACK manages. It is a tag of their scaling group too.
	LabelACK = "ack.aliyun.com"

	// LabelGPUModel is the model of the NVIDIA GPUs, as nvidia-smi prints it, with dashes for spaces. The provider reads it.
	LabelGPUModel = "aliyun.accelerator/nvidia_name"
	// LabelGPUCount is the number of GPUs, LabelGPUMemory the memory of one, such as 23028MiB.
	LabelGPUCount  = "aliyun.accelerator/nvidia_count"
	LabelGPUMemory = "aliyun.accelerator/nvidia_mem"
	// LabelXPUType is "nvidia" on nodes with NVIDIA GPUs.
	LabelXPUType = "aliyun.accelerator/xpu_type"
	// LabelGPUSchedule is how ACK assigns the GPUs of the node to pods, and thereby as which resource the node offers them.
	// Operators write it, the provider reads it.
	LabelGPUSchedule = "ack.node.gpu.schedule"
)

// TagACKNodePool, on a scaling group, is the id of its node pool. ACK writes it, the provider reads it for the labels of node
// templates.
const TagACKNodePool = "ack.alibabacloud.com/nodepool-id"

// Extended resources for GPUs. Device plugins write them on Nodes, pods request them. A node offers its GPUs as one of them;
// the others are 0.
const (
	// ResourceGPU is the number of whole GPUs, from NVIDIA's device plugin.
	ResourceGPU = "nvidia.com/gpu"
	// ResourceTopologyGPU is the number of whole GPUs that ACK's scheduler assigns by their interconnect.
	ResourceTopologyGPU = "aliyun.com/gpu"
	// ResourceGPUMemory is the GPU memory that pods share, in GiB, summed over the GPUs of the node.
	ResourceGPUMemory = "aliyun.com/gpu-mem"
	// ResourceGPUCount is the number of GPUs with that memory.
	ResourceGPUCount = "aliyun.com/gpu-count"
	// ResourceGPUCompute is the compute share in per cent of one GPU, summed over the GPUs of the node.
	ResourceGPUCompute = "aliyun.com/gpu-core.percentage"
	// ResourceGPUPrefixACK is the prefix of all GPU resources of ACK.
	ResourceGPUPrefixACK = "aliyun.com/gpu"
)
