package etjob

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
)

func TestTrainingJobGrowsBeyondWhatItAsksForByOneScaleOut(t *testing.T) {
	f := newFixture(t, jobstest.Labelled(t, jobstest.TrainingJob, api.LabelGrow, api.GrowBuy))
	job := f.Get("trainingjob", "mnist")
	require.NoError(t, f.Registry.GrowBeyond(context.Background(), job, 6))
	writes := f.Writes()
	require.Len(t, writes, 2)
	assert.Equal(t, `patch trainingjobs {"metadata":{"annotations":{"gpu-spot.autoscaling/grown-to":"6"},"uid":"uid-mnist"},"spec":{"etReplicaSpecs":{"worker":{"replicas":6}}}}`,
		writes[1], "so that it has them when all its pods are made anew")
	assert.Regexp(t, `^create scaleouts mnist-spot-out-[0-9a-f]{10}-0 {"selector":{"name":"mnist"},"timeout":300,"toAdd":{"count":2}}$`, writes[0])
	assert.Equal(t, []string{jobs.ReasonGrown}, f.Events())

	require.NoError(t, f.Registry.GrowBeyond(context.Background(), job, 6))
	assert.Empty(t, f.Writes(), "the same again")
}

func TestTrainingJobWhoseLauncherIsYetToStartGrowsLater(t *testing.T) {
	starting := strings.Replace(jobstest.TrainingJob, "phase: Running", "phase: Starting", 1)
	require.NotEqual(t, jobstest.TrainingJob, starting)
	f := newFixture(t, jobstest.Labelled(t, starting, api.LabelGrow, api.GrowBuy))
	err := f.Registry.GrowBeyond(context.Background(), f.Get("trainingjob", "mnist"), 6)
	assert.ErrorAs(t, err, new(*jobs.BusyError), "otherwise it would count as grown, and not be tried again for minutes")
	assert.Empty(t, f.Writes())
}
