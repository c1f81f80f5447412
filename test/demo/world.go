package main

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/cloud"
	"gpu-spot-autoscaler/test/alisim/market"
)

const (
	region      = "cn-beijing"
	clusterName = "demo"
	// speed makes an hour of the market, and the protected first hour of an instance, last 15 s.
	speed = 240
	// noticePeriod is 5 minutes at Alibaba.
	noticePeriod = 30 * time.Second
	// unneeded is how long a node must be idle, cooldown how long its pool must have bought nothing, before it is given back.
	unneeded, cooldown = 10 * time.Second, 10 * time.Second

	t4   = "ecs.gn6i-c8g1.2xlarge"
	a10  = "ecs.gn7i-c8g1.2xlarge"
	v100 = "ecs.gn6v-c8g1.16xlarge"

	zoneF, zoneI, zoneL = region + "-f", region + "-i", region + "-l"
)

// recorded lays the nine zones of the recording over three types in three zones. It begins at the tick at which, a minute
// later, the second cheapest A10 is lost. By then six workers of the elastic job have the cheapest, all there are, and
// the others the second.
var recorded = map[offering]string{
	{a10, zoneL}:  "us-west-2a",
	{a10, zoneF}:  "us-east-1c",
	{a10, zoneI}:  "us-east-1a",
	{t4, zoneF}:   "us-east-1d",
	{t4, zoneI}:   "us-east-2b",
	{t4, zoneL}:   "us-west-2b",
	{v100, zoneF}: "us-west-2c",
	{v100, zoneI}: "us-east-2a",
	{v100, zoneL}: "us-east-1f",
}

const (
	firstTick = 11221
	// stock is how many spot instances an offering has.
	stock = 6
)

// newWorld is a region with two pools, whose nine offerings follow the recording.
func newWorld() alisim.World {
	zones := map[string]string{}
	for o, source := range recorded {
		zones[o.instanceType+"/"+o.zone] = source
	}
	w := alisim.NewWorld(region, zoneF, zoneI, zoneL)
	w.Speed = speed
	w.Market = alisim.Market{
		Offset: metav1.Duration{Duration: firstTick * market.Tick},
		Trace:  &alisim.Trace{Zones: zones, PoolSize: stock},
	}
	w.ActivityDelay = metav1.Duration{Duration: 2 * time.Second}
	w.BootDelay = metav1.Duration{Duration: 3 * time.Second}
	w.DriverDelay = metav1.Duration{Duration: 2 * time.Second}
	w.NoticePeriod = metav1.Duration{Duration: noticePeriod}
	w.TokenLife = metav1.Duration{Duration: cloud.Real.TokenLife} // the autoscaler sends again by the clock
	vswitches := w.VSwitchIDs()
	w.Pools = []alisim.Pool{
		newPool("asg-flexible", "flexible", vswitches, a10, t4),
		newPool("asg-allreduce", "allreduce", vswitches, v100),
	}
	return w
}

// newPool is tagged as a user would tag it. Its nodes carry the label workload.
func newPool(id, workload string, vswitches []string, types ...string) alisim.Pool {
	return alisim.Pool{
		ID: id, Name: "gpu-spot-" + workload, MaxSize: 40, InstanceTypes: types, VSwitches: vswitches,
		SpotStrategy: alisim.SpotAsPriceGo, CompensateWithOnDemand: ptr.To(false),
		Tags: map[string]string{
			"k8s.io/cluster-autoscaler/enabled":                                                 "true",
			"k8s.io/cluster-autoscaler/" + clusterName:                                          "owned",
			"gpu-spot.autoscaling/max-size":                                                     "30",
			"gpu-spot.autoscaling/cooldown":                                                     cooldown.String(),
			"k8s.io/cluster-autoscaler/node-template/label/workload":                            workload,
			"k8s.io/cluster-autoscaler/node-template/autoscaling-options/scaledownunneededtime": unneeded.String(),
		},
	}
}

// offerings are those of the pools.
func offerings() (list []offering) {
	for _, instanceType := range []string{a10, t4, v100} {
		for _, zone := range []string{zoneF, zoneI, zoneL} {
			list = append(list, offering{instanceType, zone})
		}
	}
	return list
}

// rivals are the offerings of the same pool, itself included.
func rivals(of offering) (list []offering) {
	for _, o := range offerings() {
		if (o.instanceType == v100) == (of.instanceType == v100) {
			list = append(list, o)
		}
	}
	return list
}

// vswitchZones are the zones by vSwitch.
func vswitchZones(w alisim.World) map[string]string {
	zones := map[string]string{}
	for _, v := range w.VSwitches {
		zones[v.ID] = v.Zone
	}
	return zones
}

// gpusOf returns the GPUs of each type.
func gpusOf() map[string]int {
	gpus := map[string]int{}
	for _, id := range []string{a10, t4, v100} {
		gpus[id] = market.Catalogue()[id].GPUs
	}
	return gpus
}
