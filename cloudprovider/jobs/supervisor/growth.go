package supervisor

import (
	"fmt"
	"slices"
	"time"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
)

const (
	// growEvery is how long a job is left alone after it was grown beyond what it asked for. Each time the workers meet anew, and do again
	// what they did since the last checkpoint.
	growEvery = 30 * time.Minute
	// deliveryTime is for how long the first workers by which a job could be grown wait for instances that were bought for others.
	deliveryTime = 10 * time.Minute
	// maxStep is how many workers a job gets at once, and maxExtra how many all jobs are offered at a time: each is simulated in every loop.
	maxStep, maxExtra = 64, 256
	// scaleTime is how long the system of a job may take to add workers. et-operator is given 300 s.
	scaleTime = 6 * time.Minute
)

// ReasonNotGrown: the job is to get more workers than it asks for, and does not.
const ReasonNotGrown = "SpotJobNotGrown"

// extra returns what may be bought for the job's gang if that is beyond what the job asks for.
func (j *heldJob) extra() podlist.Extra {
	if j.heldAs != "" {
		return podlist.NotExtra
	}
	if j.growth == jobs.GrowBuy {
		return podlist.ExtraSpot
	}
	return podlist.ExtraFree
}

// growth returns whether the job is to get more workers than it asks for, as far as the operator allows.
func (v view) growth(job jobs.Job) (jobs.Growth, error) {
	growth, err := job.Growth()
	if v.maxGrowth == jobs.GrowNever || growth == jobs.GrowBuy && v.maxGrowth == jobs.GrowFree {
		growth = v.maxGrowth
	}
	return growth, err
}

// decideGrowth looks for capacity for more workers than the job asks for, once all of those run. What somebody makes smaller after it was
// grown stays as it is: whoever manages the job's object from elsewhere would undo each growth.
func (j *heldJob) decideGrowth(v view, isPaused bool) {
	growth, err := v.growth(j.job)
	if j.job.Problem != nil {
		j.gang = nil
		j.explain(ReasonNotGrown, j.job.Problem, v)
		return
	}
	isReady := err == nil && growth != jobs.GrowNever && !isPaused && !j.job.Finished && !j.job.Suspended
	j.growth = growth
	missing := min(j.job.Max-j.job.Replicas, maxStep)
	switch {
	case !isReady, missing <= 0:
		j.gang, j.smallerSince = nil, time.Time{}
	case j.job.Replicas < j.job.GrownTo():
		j.gang = nil
		j.explainSmaller(v)
	case !j.runsWhole(v):
		j.gang, j.smallerSince = nil, time.Time{}
	case j.gang == nil || j.gang.missing != missing:
		j.smallerSince, j.eventReason = time.Time{}, ""
		if j.gang, err = v.gangs.beyond(j, missing, v.now, v.offers); j.gang == nil || err != nil {
			j.pauseFor(v.now, "it cannot be grown", err)
		}
	}
}

// explainSmaller tells the owner of a job that has fewer workers than it was grown to, once its system had the time to add them.
func (j *heldJob) explainSmaller(v view) {
	if j.smallerSince.IsZero() {
		j.smallerSince = v.now
	}
	if v.now.Sub(j.smallerSince) >= scaleTime {
		j.explain(ReasonNotGrown, &smallerError{j.job.GrownTo(), j.job.Replicas}, v)
	}
}

// smallerError says that a job has fewer workers than it was grown to.
type smallerError struct{ grownTo, replicas int }

func (e *smallerError) Error() string {
	return fmt.Sprintf("it was grown to %d and has %d. Its system could not add them, or somebody has set the number back; without the annotation %s it is tried again",
		e.grownTo, e.replicas, api.AnnotationGrownTo)
}

// runsWhole returns whether all workers that the job asks for are ready, on nodes that are not reclaimed, and no pod of it waits.
func (j *heldJob) runsWhole(v view) bool {
	counts := v.pods.count(j.job.Refs()...)
	return counts.first == nil && counts.terminating == 0 && counts.ready >= j.job.Replicas && !j.losesNodes(v)
}

// beyond returns a gang of so many workers beyond those that the job asks for, or of as many as there could be capacity for, or nil
// where there could be none.
func (m *gangMaker) beyond(j *heldJob, more int, now time.Time, offers *offers) (*gang, error) {
	grown := *j
	grown.job.Replicas, grown.job.Recovery = j.job.Replicas+more, jobs.RecoverDynamic
	return m.missing(&grown, more, now, offers)
}

// withinExtra returns the gangs without those that come last and are more than maxExtra pods that jobs do without.
func withinExtra(gangs []podlist.StandInGang) []podlist.StandInGang {
	pods := 0
	return slices.DeleteFunc(gangs, func(gang podlist.StandInGang) bool {
		if gang.Extra == podlist.NotExtra {
			return false
		}
		pods += len(gang.Pods)
		return pods > maxExtra
	})
}

// isGrown returns whether a job that is not held is to be grown by what is found, and by how many workers: by all that are ready, once those
// that were bought are too, or may not come any more.
func (g *gang) isGrown(found podlist.Placement, extra podlist.Extra, now time.Time) (workers int, is bool) {
	unplaced, waited := len(g.pods)-len(found.Ready)-len(found.Coming), now.Sub(g.offered)
	isDue := extra == podlist.ExtraFree || (len(found.Coming) == 0 || waited >= deliveryTime) && (unplaced == 0 || waited >= searchTime)
	return len(found.Ready), len(found.Ready) > 0 && isDue
}
