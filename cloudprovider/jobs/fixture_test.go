package jobs_test

import (
	"testing"

	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
	"gpu-spot-autoscaler/cloudprovider/jobs/systems"
)

func newFixture(t *testing.T, documents ...string) *jobstest.Fixture {
	t.Helper()
	return jobstest.New(t, systems.All, documents...)
}
