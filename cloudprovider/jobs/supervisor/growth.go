package supervisor

import (
	"fmt"
	"time"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
)

const (
	// growEvery is how long a job is left alone after it was grown beyond what it asked for. Each time the workers meet anew, and do again
	// what they did since the last checkpoint.
	growEvery = 10 * time.Minute
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
	if growth, _ := j.job.Growth(); growth == jobs.GrowBuy {
		return podlist.ExtraSpot
	}
	return podlist.ExtraFree
}

// decideGrowth looks for capacity for more workers than the job asks for, once all of those run. What somebody makes smaller after it was
// grown stays as it is: whoever manages the job's object from elsewhere would undo each growth.
func (j *heldJob) decideGrowth(v view, isPaused bool) {
	growth, err := j.job.Growth()
	if j.job.Problem != nil {
		j.gang = nil
		j.explain(ReasonNotGrown, j.job.Problem, v)
		return
	}
	isReady := err == nil && growth != jobs.GrowNever && !isPaused && !j.job.Finished && !j.job.Suspended
	missing := j.job.Max - j.job.Replicas
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
		if j.gang, err = v.gangs.beyond(j, v.now, v.offers); j.gang == nil || err != nil {
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

// runsWhole returns whether all workers that the job asks for have a node that is not reclaimed.
func (j *heldJob) runsWhole(v view) bool {
	counts := v.pods.count(j.job.Refs()...)
	return counts.pending == 0 && counts.terminating == 0 && counts.running >= j.job.Replicas && !j.losesNodes(v)
}

// beyond returns a gang of workers beyond those that the job asks for, as many as there is room for, or nil where there is room for none.
func (m *gangMaker) beyond(j *heldJob, now time.Time, offers *offers) (*gang, error) {
	grown := *j
	grown.job.Replicas, grown.job.Recovery = j.job.Max, jobs.RecoverDynamic
	missing := j.job.Max - j.job.Replicas
	return m.missing(&grown, missing, now, offers)
}
