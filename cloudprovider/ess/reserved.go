package ess

import (
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	mebibyte = 1 << 20

	// defaultMaxPods is the kubelet's own. What a node really admits hangs on the network plugin: with Terway on the
	// network interfaces of the type, with Flannel on what was chosen for the cluster. The pool's resource tag for
	// pods says so where it matters.
	defaultMaxPods = 110
	// defaultSystemDiskGiB is what a system disk has where the scaling configuration does not say.
	defaultSystemDiskGiB = 40
	// evictionMemoryMiB is memory.available of ACK's default evictionHard.
	evictionMemoryMiB = 300
	// evictionDiskPercent is nodefs.available of ACK's default evictionHard.
	evictionDiskPercent = 10
)

// KubeletReserved is what an ACK node withholds from pods by default, half as kubeReserved and half as
// systemReserved; the eviction threshold comes on top.
//
// Source: "Resource reservation policy" of the ACK documentation, the policy for Kubernetes 1.28 and later: of the CPU
// 6 % of the first core, 1 % of the second, 0.5 % of the third and fourth and 0.25 % of every further one; of the
// memory 11 MiB per pod and 255 MiB, but no more than a quarter of it.
func KubeletReserved(vcpu int, memoryMiB, maxPods int64) (cpuMilli, reservedMiB int64) {
	// In tenths of a thousandth, as the last rate is 2.5 thousandths.
	tenths := 600*atMost(vcpu, 1) + 100*atMost(vcpu-1, 1) + 50*atMost(vcpu-2, 2) + 25*atMost(vcpu-4, vcpu)
	return (tenths + 9) / 10, min(11*maxPods+255, memoryMiB/4)
}

// atMost clamps cores to 0..limit.
func atMost(cores, limit int) int64 { return int64(max(0, min(cores, limit))) }

// usableMemoryMiB is what the kernel has left of the memory that the type is sold with. The kernel spends 64 bytes on
// every page of 4 KiB; firmware, kernel and crash dump take the rest. The constant makes it no more than on the nodes
// that ACK's documentation shows: a template that promises memory that is not there buys nodes on which nothing fits.
func usableMemoryMiB(nominalGiB float64) int64 {
	nominal := int64(nominalGiB * 1024)
	return max(0, nominal-nominal/64-640)
}

// usableDiskMiB is what the file system has left of the disk. Ext4 spends one inode of 256 bytes on every 16 KiB; the
// boot partition and the journal take the rest.
func usableDiskMiB(diskGiB int) int64 {
	nominal := int64(diskGiB) * 1024
	return max(0, nominal-nominal/64-512)
}

// machineResources are the resources that every node of the shape has, before GPUs and tags.
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
