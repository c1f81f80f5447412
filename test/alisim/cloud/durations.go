package cloud

import "time"

// Durations are how long things take that the cloud does by itself.
type Durations struct {
	// Activity is a scaling activity, from its acceptance to its end. Instances exist from its middle on.
	Activity time.Duration
	// Boot is from the end of its activity until an instance registers its Node.
	Boot time.Duration
	// Driver is from the Node until its GPUs are allocatable.
	Driver time.Duration
	// Notice is from the notice of a spot instance to its release.
	Notice time.Duration
	// HealthCheck is until ESS notices that an instance is gone or unhealthy, or that a group has not the size it should.
	HealthCheck time.Duration
}
