package systems_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
	"gpu-spot-autoscaler/cloudprovider/jobs/systems"
)

func newFixture(t *testing.T, documents ...string) *jobstest.Fixture {
	t.Helper()
	return jobstest.New(t, systems.All, documents...)
}

// requireEverySystem fails if a table of tests has no row for one of the systems. The others have tests of their own, have the code of
// another one, or never end.
func requireEverySystem(t *testing.T, covered sets.Set[string], others ...string) {
	t.Helper()
	covered = covered.Union(sets.New(others...))
	for _, system := range newFixture(t).Config.Systems {
		assert.True(t, covered.Has(system.Name()), "add a row for the system %s to this test: step 4 of a job system in CONTRIBUTING.md", system.Name())
	}
}
