package jobset

import (
	"testing"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
)

func newFixture(t *testing.T, documents ...string) *jobstest.Fixture {
	t.Helper()
	return jobstest.New(t, func(cluster jobs.Cluster) []jobs.System { return []jobs.System{New(cluster)} }, documents...)
}
