package reclaim

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// idleFactor is how much rarer polls are while there is nothing to lose.
	idleFactor = 5
	// alertFactor is how much denser they are while there is.
	alertFactor = 2
	// pollBudget is how many requests per second polls make at most: less than half of what the API allows for
	// DescribeInstances.
	pollBudget = 5
	// pageSize is how many instances one request lists or names.
	pageSize = 100

	// A spot instance is protected for its first hour, then checked every five minutes: the first two checks are those in
	// which what was bought together goes together.
	protectedFor = time.Hour
	alertFor     = 10 * time.Minute
)

// pause is how long to wait after a poll of so many requests. It is PollInterval, but
//
//   - half of it while a reclaim is under way, since they come in crowds, and not long past its deadline, and for ten
//     minutes after a spot instance has left its protected hour;
//   - five times of it while no Node runs on an instance that can be reclaimed, spot or not known to be on-demand;
//   - never so short that polls make more than five requests per second, of which a listing of 1,000 doomed takes ten.
//
// A protected instance is not reason enough to ask less often: protection is a setting, which the Node does not tell.
func (c *Controller) pause(requests int) time.Duration {
	interval := c.PollInterval
	switch c.stakes() {
	case atEase:
		interval *= idleFactor
	case alert:
		interval /= alertFactor
	}
	return max(interval, time.Duration(requests)*time.Second/pollBudget)
}

// stakes say what there is to lose.
type stakes int

const (
	atEase stakes = iota
	usual
	alert
)

func (c *Controller) stakes() stakes {
	for id := range c.Doomed() {
		if notice, _ := c.noticeOn(id); len(c.nodesOf(id)) > 0 && c.Clock.Since(notice.Deadline) < overdue {
			return alert
		}
	}
	found := atEase
	for _, object := range c.nodeInformer.GetIndexer().List() {
		node := object.(*corev1.Node)
		free := c.Clock.Since(node.CreationTimestamp.Time) - protectedFor
		justFree := free >= 0 && free < alertFor
		if found == usual && !justFree || c.instanceID(node) == "" || isOnDemand(node) {
			continue
		}
		if justFree {
			return alert
		}
		found = usual
	}
	return found
}

func pages(instances int) int { return (instances + pageSize - 1) / pageSize }
