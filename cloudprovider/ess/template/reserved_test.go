package template

import (
	"fmt"
	"testing"

	apiv1 "k8s.io/api/core/v1"
)

// The table of ACK's "Resource reservation policy", Kubernetes 1.28 and later.
func TestKubeletReservedIsAsACKPublishesIt(t *testing.T) {
	for _, test := range []struct {
		vcpu                 int
		memoryGiB, maxPods   int64
		cpuMilli, reservedMi int64
	}{
		{2, 4, 15, 70, 420},
		{4, 8, 48, 80, 783},
		{8, 16, 48, 90, 783},
		{16, 32, 213, 110, 2598},
		{32, 64, 213, 150, 2598},
		{64, 128, 213, 230, 2598},
		{128, 256, 423, 390, 4908},
		{256, 512, 453, 710, 5238},
	} {
		t.Run(fmt.Sprintf("%d vCPU", test.vcpu), func(t *testing.T) {
			cpuMilli, reservedMi := KubeletReserved(test.vcpu, test.memoryGiB*1024, test.maxPods)
			if cpuMilli != test.cpuMilli || reservedMi != test.reservedMi {
				t.Errorf("got %dm and %d MiB, want %dm and %d MiB", cpuMilli, reservedMi, test.cpuMilli, test.reservedMi)
			}
		})
	}
}

func TestKubeletReservedAtTheEdges(t *testing.T) {
	for name, test := range map[string]struct {
		vcpu                 int
		memoryMiB, maxPods   int64
		cpuMilli, reservedMi int64
	}{
		"nothing":                          {0, 0, 0, 0, 0},
		"one core":                         {1, 8192, 110, 60, 1465},
		"half a thousandth is rounded up":  {5, 8192, 110, 83, 1465},
		"no more than a quarter of memory": {1, 1024, 110, 60, 256},
	} {
		t.Run(name, func(t *testing.T) {
			cpuMilli, reservedMi := KubeletReserved(test.vcpu, test.memoryMiB, test.maxPods)
			if cpuMilli != test.cpuMilli || reservedMi != test.reservedMi {
				t.Errorf("got %dm and %d MiB, want %dm and %d MiB", cpuMilli, reservedMi, test.cpuMilli, test.reservedMi)
			}
		})
	}
}

func TestMachineResourcesOfTinyMachinesAreNotNegative(t *testing.T) {
	capacity, allocatable := machineResources(0, 0.25, 0, 0)
	for _, list := range []apiv1.ResourceList{capacity, allocatable} {
		for name, quantity := range list {
			if quantity.Sign() < 0 {
				t.Errorf("%s: %s", name, &quantity)
			}
		}
	}
}
