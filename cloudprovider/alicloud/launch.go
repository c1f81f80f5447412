package alicloud

import (
	"fmt"
	"time"
)

// LaunchSettings are what RunInstances has to be told for an instance to be like those that a scaling group creates by itself.
type LaunchSettings struct {
	// Parameters are parameters of RunInstances, by name. They may hold secrets, such as those in user data.
	Parameters map[string]string
	// Unsupported names settings of the scaling configuration that RunInstances cannot be told, or not from here.
	Unsupported []string
}

// String keeps the parameters out of logs.
func (s LaunchSettings) String() string { return fmt.Sprintf("%d launch settings", len(s.Parameters)) }

// GoString is String.
func (s LaunchSettings) GoString() string { return s.String() }

// LaunchRequest asks for instances of one offering by RunInstances.
type LaunchRequest struct {
	Settings LaunchSettings
	// Amount is the number of instances, 1 to MaxLaunch. MinAmount is how many of them there have to be for any to be created.
	Amount, MinAmount int
	// ClientToken makes the call idempotent: 1 to 64 printable ASCII characters.
	ClientToken  string
	InstanceType string
	ZoneID       string
	VSwitchID    string
	SpotStrategy string
	// SpotPriceLimit is per instance-hour in the account's currency. It counts for SpotWithPriceLimit.
	SpotPriceLimit float64
	// SpotDuration is for how long the instance is protected from being reclaimed, 0 or 1 hour.
	SpotDuration time.Duration
	Tags         map[string]string
}

// MaxLaunch is how many instances one RunInstances creates, MaxAttach how many one AttachInstances takes.
// Sources: Amount of RunInstances, ECS 2014-05-26; InstanceId.N of AttachInstances, ESS 2014-08-28.
const (
	MaxLaunch = 100
	MaxAttach = 20
)

// MaxTags is how many tags an instance has at most. Source: Tag.N of RunInstances, ECS 2014-05-26.
const MaxTags = 20

// AttachRequest puts instances into a scaling group, which then looks after them as after those that it created itself.
type AttachRequest struct {
	ScalingGroupID string
	// InstanceIDs are 1 to MaxAttach ids.
	InstanceIDs []string
	ClientToken string
}
