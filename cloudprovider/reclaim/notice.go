package reclaim

import "time"

// Source says where a notice came from.
type Source string

// SourcePoll is the poll of DescribeInstances for LockReason=Recycling.
const SourcePoll Source = "ecs-poll"

// Notice is the word that an instance will be released.
type Notice struct {
	InstanceID string
	// Deadline is when the instance is released, in whole seconds, UTC: what its Node can carry.
	Deadline  time.Time
	Source    Source
	FirstSeen time.Time
}
