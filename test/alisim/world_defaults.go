package alisim

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/test/alisim/cloud"
)

// defaultKey is the access key of a world that names none. It opens nothing but this simulator.
var defaultKey = AccessKey{ID: "LTAIsimulatorAccessKey", Secret: "simulatorAccessKeySecret"}

// withDefaults returns a copy in which every field says what holds.
func (w World) withDefaults() World {
	w.AccountID = cmp.Or(w.AccountID, "1234567890123456")
	w.VPCID = cmp.Or(w.VPCID, "vpc-sim")
	w.Seed = cmp.Or(w.Seed, 1)
	w.Speed = cmp.Or(w.Speed, 1)
	if len(w.Credentials) == 0 {
		w.Credentials = []AccessKey{defaultKey}
	}
	delay(&w.ActivityDelay, 2*time.Second)
	delay(&w.BootDelay, 5*time.Second)
	delay(&w.DriverDelay, 3*time.Second)
	delay(&w.NoticePeriod, 5*time.Minute)
	delay(&w.HealthCheckDelay, 2*time.Second)
	w.VSwitches = slices.Clone(w.VSwitches)
	for i := range w.VSwitches {
		w.VSwitches[i].AvailableIPs = cmp.Or(w.VSwitches[i].AvailableIPs, 4096)
	}
	return w
}

func delay(field *metav1.Duration, value time.Duration) {
	switch {
	case field.Duration == 0:
		field.Duration = value
	case field.Duration < 0:
		field.Duration = 0
	}
}

// durations of a world that has its defaults.
func (w World) durations() cloud.Durations {
	return cloud.Durations{
		Activity: w.ActivityDelay.Duration, Boot: w.BootDelay.Duration, Driver: w.DriverDelay.Duration,
		Notice: w.NoticePeriod.Duration, HealthCheck: w.HealthCheckDelay.Duration,
	}
}
