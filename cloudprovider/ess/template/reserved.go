package template

import (
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	mebibyte = 1 << 20

	// defaultMaxPods is the default of the kubelet. The real limit depends on the network plugin: with Terway on the network
	// interfaces of the instance type, with Flannel on the setting of the cluster. Operators set it with the pool's resource
	// tag for pods.
	defaultMaxPods = 110
	// defaultSystemDiskGiB is the size of a system disk if the scaling configuration sets none.
	defaultSystemDiskGiB = 40
	// evictionMemoryMiB is memory.available of ACK's default evictionHard.
	evictionMemoryMiB = 300
	// evictionDiskPercent is nodefs.available of ACK's default evictionHard.
	evictionDiskPercent = 10
)

// KubeletReserved returns the CPU and memory that an ACK node withholds from pods by default, half as kubeReserved and half
// as systemReserved. The eviction threshold comes on top.
//
// Source: "Resource reservation policy" of the ACK documentation, the policy for Kubernetes 1.28 and later: of the CPU
// 6 % of the first core, 1 % of the second, 0.5 % of the third and fourth and 0.25 % of every further one; of the
// memory 11 MiB per pod and 255 MiB, but no more than a quarter of it.
func KubeletReserved(vcpu int, memoryMiB, maxPods int64) (cpuMilli, reservedMiB int64) {
	// In tenths of a thousandth, as the last rate is 2.5 thousandths.
	tenths := 600*atMost(vcpu, 1) + 100*atMost(vcpu-1, 1) + 50*atMost(vcpu-2, 2) + 25*atMost(vcpu-4, vcpu)
	return (tenths + 9) / 10, min(11*maxPods+255, memoryMiB/4)
}

// atMost returns the cores, clamped to 0..limit.
func atMost(cores, limit int) int64 { return int64(max(0, min(cores, limit))) }

// usableMemoryMiB returns how much of an instance type's nominal memory the Node reports. The kernel spends 64 bytes on every
// page of 4 KiB; firmware, kernel and crash dump take the rest. The constant is chosen so that the result is never above
// that of the nodes in ACK's documentation: a template that promises too much memory buys nodes on which the pods do not
// fit.
func usableMemoryMiB(nominalGiB float64) int64 {
	nominal := int64(nominalGiB * 1024)
	return max(0, nominal-nominal/64-640)
}

// usableDiskMiB returns how much of the system disk the Node reports. Ext4 spends one inode of 256 bytes on every 16 KiB; the
// boot partition and the journal take the rest.
func usableDiskMiB(diskGiB int) int64 {
	nominal := int64(diskGiB) * 1024
	return max(0, nominal-nominal/64-512)
}

// machineResources returns the resources of a node before GPUs and tags are added.
func machineResources(vcpu int, memoryGiB float64, diskGiB int, maxPods int64) (capacity, allocatable apiv1.ResourceList) {
	memoryMiB, diskMiB := usableMemoryMiB(memoryGiB), usableDiskMiB(diskGiB)
	cpuMilli, reservedMiB := KubeletReserved(vcpu, memoryMiB, maxPods)

	capacity = apiv1.ResourceList{
		apiv1.ResourceCPU:              *resource.NewQuantity(int64(vcpu), resource.DecimalSI),
		apiv1.ResourceMemory:           *resource.NewQuantity(memoryMiB*mebibyte, resource.BinarySI),
		apiv1.ResourceEphemeralStorage: *resource.NewQuantity(diskMiB*mebibyte, resource.BinarySI),
		apiv1.ResourcePods:             *resource.NewQuantity(maxPods, resource.DecimalSI),
		"hugepages-1Gi":                *resource.NewQuantity(0, resource.DecimalSI),
		"hugepages-2Mi":                *resource.NewQuantity(0, resource.DecimalSI),
	}
	allocatable = capacity.DeepCopy()
	allocatable[apiv1.ResourceCPU] = *resource.NewMilliQuantity(max(0, int64(vcpu)*1000-cpuMilli), resource.DecimalSI)
	allocatable[apiv1.ResourceMemory] = *resource.NewQuantity(
		max(0, memoryMiB-reservedMiB-evictionMemoryMiB)*mebibyte, resource.BinarySI)
	allocatable[apiv1.ResourceEphemeralStorage] = *resource.NewQuantity(
		diskMiB*mebibyte/100*(100-evictionDiskPercent), resource.BinarySI)
	return capacity, allocatable
}
