package reclaim

import "time"

// What the tests wait for: the times that docs/reclaim.md states, or that users would notice.
const (
	callTimeout       = 5 * time.Second
	callPatience      = 20 * time.Second
	prepareFactor     = 3
	suspendWait       = 2 * time.Minute
	trackedWait       = 10 * time.Second
	slowestRetry      = 10 * time.Second
	slowestNodeRetry  = 2 * time.Second
	pushPatience      = time.Minute
	maxSkew           = time.Minute
	unconfirmedMargin = 90 * time.Second
	holdFor           = 30 * time.Minute
	countFor          = 10 * time.Minute
	unlistedPatience  = time.Minute
	idleFactor        = 5
	busyFactor        = 2
	notifyPatience    = 3 * time.Second
	stopWait          = 90 * time.Second
	warnPatience      = 2 * time.Minute
	agreeingPolls     = 2
	directoryAge      = time.Second
	maxBody           = 1 << 20
	certPause         = 30 * time.Second
	digestLength      = 32
)
