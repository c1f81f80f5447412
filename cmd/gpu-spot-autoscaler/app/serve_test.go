package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
)

// supervised has gangs that would return, and notes where they fit.
type supervised struct {
	podlist.Supervision
	gangs []podlist.StandInGang
	fits  map[string]podlist.Placement
}

func (s *supervised) Returning() []podlist.StandInGang { return s.gangs }

func (s *supervised) Fits(ref string, found podlist.Placement) { s.fits[ref] = found }

func TestWithoutACoreJobsAreNotHeldUntilThereIsRoom(t *testing.T) {
	pods := []*corev1.Pod{{}, {}}
	s := &supervised{gangs: []podlist.StandInGang{{Ref: "job", Pods: pods, Min: 2}, {Ref: "more", Pods: pods, Extra: podlist.ExtraSpot}}, fits: map[string]podlist.Placement{}}
	returnHeld(s)
	assert.Equal(t, map[string]podlist.Placement{"job": {Ready: pods}}, s.fits)
}

func TestServeNamesItsFlagsThatAreMissingAndShowsNoOthers(t *testing.T) {
	said, code := output(t, "serve")
	assert.NotZero(t, code)
	assert.Contains(t, said, "--serve-client-ca-file is required")
	help, code := output(t, "serve", "--help") // cobra keeps flags from run to run
	assert.Zero(t, code)
	assert.Contains(t, help, "--serve-client-ca-file")
	assert.NotContains(t, help, "--scan-interval")
}
