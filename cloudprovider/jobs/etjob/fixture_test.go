package etjob

import (
	"testing"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
	"gpu-spot-autoscaler/cloudprovider/jobs/pytorchjob"
)

// newFixture has a second system beside this one, whose jobs are not asked to shrink.
func newFixture(t *testing.T, documents ...string) *jobstest.Fixture {
	t.Helper()
	return jobstest.New(t, func(cluster jobs.Cluster) []jobs.System {
		return []jobs.System{New(cluster), pytorchjob.New(cluster)}
	}, documents...)
}
