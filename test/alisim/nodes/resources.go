package nodes

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	mebibyte = 1 << 20
	gibibyte = 1 << 30

	// defaultMaxPods is what ACK's documentation shows on a node. On real ones it hangs on the network plugin.
	defaultMaxPods = 64
	// defaultDiskGiB is ACK's default system disk.
	defaultDiskGiB = 120
	// evictionMiB is the kubelet's memory.available threshold on ACK.
	evictionMiB = 300
)

// capacityOf returns what the kubelet of a machine would find.
func capacityOf(m Machine) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(m.VCPU), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(visibleMemory(m.MemoryGiB), resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(diskCapacity(m.SystemDiskGiB), resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(defaultMaxPods, resource.DecimalSI),
		"hugepages-1Gi":                 *resource.NewQuantity(0, resource.DecimalSI),
		"hugepages-2Mi":                 *resource.NewQuantity(0, resource.DecimalSI),
	}
}

// allocatableOf takes off what ACK reserves for the system and for Kubernetes, and the kubelet's eviction thresholds.
// Source: https://www.alibabacloud.com/help/en/ack/ack-managed-and-ack-dedicated/user-guide/resource-reservation-policy
func allocatableOf(capacity corev1.ResourceList) corev1.ResourceList {
	allocatable := capacity.DeepCopy()
	cpu := capacity.Cpu().MilliValue()
	allocatable[corev1.ResourceCPU] = *resource.NewMilliQuantity(cpu-reservedMilliCPU(cpu), resource.DecimalSI)
	memory := capacity.Memory().Value()
	allocatable[corev1.ResourceMemory] = *resource.NewQuantity(memory-reservedMemory(memory, capacity.Pods().Value()), resource.BinarySI)
	// nodefs.available: 10 %
	disk := capacity.StorageEphemeral().Value()
	allocatable[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(disk-disk/10, resource.DecimalSI)
	return allocatable
}

// visibleMemory is what is left of the memory that the type is sold with. The kernel spends 64 bytes on every page of
// 4 KiB; what it and the firmware take beside is a guess, close to the node of 8 GiB in ACK's documentation.
func visibleMemory(soldGiB float64) int64 {
	sold := int64(soldGiB * gibibyte)
	return max(0, sold-sold/64-350*mebibyte)
}

// diskCapacity is what an ext4 file system leaves of a disk: 98.3 %.
func diskCapacity(diskGiB int) int64 {
	return int64(cmp.Or(diskGiB, defaultDiskGiB)) * gibibyte / 1000 * 983
}

// reservedMilliCPU is 6 % of the first core, 1 % of the second, 0.5 % of the next two and 0.25 % of the rest.
func reservedMilliCPU(total int64) int64 {
	reserved := 0.
	for _, share := range []struct{ milli, ratio float64 }{{1000, .06}, {1000, .01}, {2000, .005}} {
		part := min(float64(total), share.milli)
		reserved += part * share.ratio
		total -= int64(part)
	}
	return int64(reserved + float64(total)*.0025)
}

// reservedMemory is 11 MiB per pod and 255 MiB, at most a quarter of the memory, and the eviction threshold.
func reservedMemory(total, pods int64) int64 {
	return min((11*pods+255)*mebibyte, total/4) + evictionMiB*mebibyte
}
