package systems_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
)

func TestGrowthIsOnePatchThatSaysHowFar(t *testing.T) {
	for name, test := range map[string]struct {
		system, job, document string
		workers               int
		spec                  string
	}{
		"PyTorchJob": {"pytorchjob", "imagenet", jobstest.ElasticPyTorchJob, 4, `"spec":{"pytorchReplicaSpecs":{"Worker":{"replicas":4}}}`},
		"MPIJob":     {"mpijob", "tf", jobstest.ElasticMPIJob, 5, `"spec":{"mpiReplicaSpecs":{"Worker":{"replicas":5}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, jobstest.Labelled(t, test.document, api.LabelGrow, api.GrowBuy))
			ctx := context.Background()
			job := f.Get(test.system, test.job)
			require.Less(t, job.Replicas, test.workers)
			require.NoError(t, f.Registry.GrowBeyond(ctx, job, test.workers))
			assert.Equal(t, []string{fmt.Sprintf(`patch %s {"metadata":{"annotations":{"gpu-spot.autoscaling/grown-to":"%d"},"uid":%q},%s}`,
				f.Resource(test.system).Resource, test.workers, job.UID, test.spec)}, f.Writes())
			assert.Equal(t, []string{jobs.ReasonGrown}, f.Events())
			now := f.Get(test.system, test.job)
			assert.Equal(t, test.workers, now.Replicas)
			assert.Equal(t, test.workers, now.GrownTo())

			require.NoError(t, f.Registry.GrowBeyond(ctx, job, test.workers))
			assert.Empty(t, f.Writes(), "the same again")
			assert.Empty(t, f.Events())
		})
	}
}

func TestJobsThatAreNotGrown(t *testing.T) {
	for name, test := range map[string]struct{ system, job, document, key, value string }{
		"of a system that cannot":      {"jobset", "llm", jobstest.JobSet, api.LabelGrow, api.GrowBuy},
		"without an elasticPolicy":     {"pytorchjob", "bert", jobstest.PyTorchJob, api.LabelGrow, api.GrowBuy},
		"with a label that is no word": {"pytorchjob", "imagenet", jobstest.ElasticPyTorchJob, api.LabelGrow, "always"},
		"with metrics, by which a HorizontalPodAutoscaler scales it": {"pytorchjob", "imagenet", strings.Replace(jobstest.ElasticPyTorchJob, "minReplicas: 2,",
			"metrics: [{type: Resource, resource: {name: cpu}}], minReplicas: 2,", 1), api.LabelGrow, api.GrowBuy},
		"in a queue of Kueue": {"pytorchjob", "imagenet", jobstest.ElasticPyTorchJob, api.LabelKueueQueue, "theirs"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, jobstest.Labelled(t, jobstest.Labelled(t, test.document, api.LabelGrow, api.GrowBuy), test.key, test.value))
			f.Serve(test.system)
			f.Define(f.Resource(test.system).GroupResource().String())
			f.Run()
			f.Eventually(func() bool { return len(f.Registry.Growing()) == 1 }, "it is seen")
			assert.Error(t, f.Registry.Growing()[0].Problem)
			assert.Error(t, f.Registry.GrowBeyond(context.Background(), f.Get(test.system, test.job), 99))
			assert.Empty(t, f.Writes())
		})
	}
}
