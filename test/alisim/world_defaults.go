package alisim

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// defaultKey is the access key of a world that names none. It opens nothing but this simulator.
var defaultKey = AccessKey{ID: "LTAIsimulatorAccessKey", Secret: "simulatorAccessKeySecret"}

// withDefaults returns a copy in which every field says what holds.
func (w World) withDefaults() World {
	orDefault(&w.AccountID, "1234567890123456")
	orDefault(&w.VPCID, "vpc-sim")
	orDefault(&w.Seed, 1)
	orDefault(&w.Speed, 1)
	if len(w.Credentials) == 0 {
		w.Credentials = []AccessKey{defaultKey}
	}
	delay(&w.ActivityDelay, 2*time.Second)
	delay(&w.BootDelay, 5*time.Second)
	delay(&w.DriverDelay, 3*time.Second)
	delay(&w.NoticePeriod, 5*time.Minute)
	delay(&w.HealthCheckDelay, 2*time.Second)
	w.VSwitches = append([]VSwitch(nil), w.VSwitches...)
	for i := range w.VSwitches {
		orDefault(&w.VSwitches[i].AvailableIPs, 4096)
	}
	w.Pools = append([]Pool(nil), w.Pools...)
	for i := range w.Pools {
		w.Pools[i] = w.Pools[i].withDefaults()
	}
	return w
}

func (p Pool) withDefaults() Pool {
	orDefault(&p.Name, p.ID)
	orDefault(&p.SpotStrategy, NoSpot)
	orDefault(&p.SpotDuration, ptr.To(1))
	orDefault(&p.SystemDiskGiB, 120)
	orDefault(&p.MultiAZPolicy, policyPriority)
	orDefault(&p.CompensateWithOnDemand, ptr.To(true))
	orDefault(&p.HealthCheckType, healthCheckECS)
	orDefault(&p.DefaultCooldown, ptr.To(300))
	orDefault(&p.LifecycleState, groupActive)
	return p
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func delay(field *metav1.Duration, value time.Duration) {
	switch {
	case field.Duration == 0:
		field.Duration = value
	case field.Duration < 0:
		field.Duration = 0
	}
}
