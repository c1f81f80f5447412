package cloud

import (
	"math/rand/v2"
	"time"
)

// Durations are how long things take that the cloud does by itself.
type Durations struct {
	// Activity is a scale-out, from its acceptance to its end. Instances exist from its middle on.
	Activity Span
	// Removal is a scale-in.
	Removal time.Duration
	// Boot is from the end of its activity until an instance registers its Node.
	Boot time.Duration
	// Driver is from the Node until its GPUs are allocatable.
	Driver time.Duration
	// Notice is from the notice of a spot instance to its release.
	Notice time.Duration
	// HealthCheck is until ESS notices that an instance is gone or unhealthy, or that a group has not the size it should.
	HealthCheck time.Duration
	// ListLag is how far DescribeScalingInstances may fall behind, where the temper has it so.
	ListLag time.Duration
	// TokenLife is how long a ClientToken is remembered, where the temper has it forgotten.
	TokenLife time.Duration
	// NodeGrace is from the silence of a machine until its Node's Ready is Unknown, and NodeController how often the
	// cloud controller looks for Nodes without instance, where the temper has one.
	NodeGrace, NodeController time.Duration
}

// Span is a duration that varies.
type Span struct{ Least, Most time.Duration }

// Exactly is a span that does not vary.
func Exactly(d time.Duration) Span { return Span{d, d} }

// Pick returns one of its durations.
func (s Span) Pick(random *rand.Rand) time.Duration {
	if s.Most <= s.Least {
		return s.Least
	}
	return s.Least + time.Duration(random.Int64N(int64(s.Most-s.Least)+1))
}

// Real is what things take at Alibaba Cloud.
var Real = Durations{
	Activity:       Span{20 * time.Second, 60 * time.Second},
	Removal:        60 * time.Second, // the instance is stopped, then released
	Boot:           60 * time.Second,
	Driver:         120 * time.Second,
	Notice:         300 * time.Second, // documented: about five minutes
	HealthCheck:    30 * time.Second,  // a guess
	ListLag:        20 * time.Second,  // a guess
	TokenLife:      10 * time.Minute,  // a guess
	NodeGrace:      50 * time.Second,  // kube-controller-manager --node-monitor-grace-period since Kubernetes 1.32
	NodeController: 300 * time.Second, // cloud-provider-alibaba-cloud, node_controller.go
}

// Quick is for tests that have no time. It is the same at every speed.
var Quick = Durations{
	Activity:       Exactly(2 * time.Second),
	Removal:        2 * time.Second,
	Boot:           5 * time.Second,
	Driver:         3 * time.Second,
	Notice:         5 * time.Minute,
	HealthCheck:    2 * time.Second,
	ListLag:        time.Second,
	TokenLife:      10 * time.Minute,
	NodeGrace:      0,
	NodeController: 5 * time.Second,
}

// At returns what things take in a world that runs at a speed: all of them alike are divided by it.
func (d Durations) At(speed float64) Durations {
	for _, field := range []*time.Duration{
		&d.Activity.Least, &d.Activity.Most, &d.Removal, &d.Boot, &d.Driver, &d.Notice, &d.HealthCheck, &d.ListLag, &d.TokenLife,
		&d.NodeGrace, &d.NodeController,
	} {
		*field = time.Duration(float64(*field) / speed)
	}
	return d
}
