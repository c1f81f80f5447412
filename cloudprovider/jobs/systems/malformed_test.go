package systems_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
)

func TestMissingAndMalformedFieldsAreNamed(t *testing.T) {
	covered := sets.New[string]()
	for name, test := range map[string]struct{ system, job, document, from, to, path string }{
		"Job without a spec":             {"job", "train", jobstest.IndexedJob, "spec:\n  parallelism", "specification:\n  parallelism", "spec"},
		"Job with a word for a number":   {"job", "train", jobstest.IndexedJob, "parallelism: 4", "parallelism: four", "spec.parallelism"},
		"Job with a word for a flag":     {"job", "train", jobstest.IndexedJob, "backoffLimit: 0", "suspend: maybe", "spec.suspend"},
		"PyTorchJob without replicas":    {"pytorchjob", "imagenet", jobstest.ElasticPyTorchJob, "pytorchReplicaSpecs", "replicaSpecs", "spec.pytorchReplicaSpecs"},
		"PyTorchJob with an odd policy":  {"pytorchjob", "imagenet", jobstest.ElasticPyTorchJob, "minReplicas: 2", "minReplicas: [2]", "spec.elasticPolicy.minReplicas"},
		"TFJob without replicas":         {"tfjob", "ctr", jobstest.TFJob, "tfReplicaSpecs", "replicaSpecs", "spec.tfReplicaSpecs"},
		"TFJob with a word for a number": {"tfjob", "ctr", jobstest.TFJob, "replicas: 4", "replicas: four", "spec.tfReplicaSpecs.Worker.replicas"},
		"JAXJob without replicas":        {"jaxjob", "gemma", jobstest.JAXJob, "jaxReplicaSpecs", "replicaSpecs", "spec.jaxReplicaSpecs"},
		"MPIJob without workers":         {"mpijob", "tf", jobstest.ElasticMPIJob, "    Worker:\n", "    Workers:\n", "spec.mpiReplicaSpecs.Worker"},
		"MPIJob with odd arguments":      {"mpijob", "tf", jobstest.ElasticMPIJob, "args: [--min-np", "args: [3, --min-np", "spec.mpiReplicaSpecs.Launcher.template.spec.containers[0].args[0]"},
		"MPIJob of Arena":                {"mpijob-v1alpha1", "resnet50", jobstest.ArenaMPIJob, "replicas: 2", "replicas: two", "spec.replicas"},
		"MPIJob of Arena without pods":   {"mpijob-v1alpha1", "resnet50", jobstest.ArenaMPIJob, "  template:\n    metadata", "  templates:\n    metadata", "spec.template"},
		"JobSet without jobs":            {"jobset", "llm", jobstest.JobSet, "replicatedJobs:", "jobs:", "spec.replicatedJobs"},
		"JobSet with a job without spec": {"jobset", "llm", jobstest.JobSet, "template: {spec: {template: {spec: {containers: [{name: init", "template: {specs: {template: {spec: {containers: [{name: init", "spec.replicatedJobs[0].template.spec"},
		"ElasticJob without workers":     {"dlrover", "nanogpt", jobstest.ElasticJob, "    worker:\n", "    workers:\n", "spec.replicaSpecs.worker"},
		"AITrainingJob":                  {"aitrainingjob", "horovod", jobstest.AITrainingJob, "maxReplicas: 5", "maxReplicas: many", "spec.replicaSpecs.trainer.maxReplicas"},
		"RayCluster":                     {"raycluster", "rc", jobstest.RayCluster, "maxReplicas: 4", "maxReplicas: -4", "spec.workerGroupSpecs[0].maxReplicas"},
		"RayJob without a cluster":       {"rayjob", "rj", jobstest.RayJob, "rayClusterSpec", "raySpec", "spec.rayClusterSpec"},
		"LeaderWorkerSet":                {"leaderworkerset", "vllm", jobstest.LeaderWorkerSet, "size: 3", "size: large", "spec.leaderWorkerTemplate.size"},
		"LeaderWorkerSet without groups": {"leaderworkerset", "vllm", jobstest.LeaderWorkerSet, "leaderWorkerTemplate", "template", "spec.leaderWorkerTemplate"},
		"Volcano job without tasks":      {"vcjob", "resnet", jobstest.VolcanoJob, "tasks:", "roles:", "spec.tasks"},
		"Volcano job with an odd task":   {"vcjob", "resnet", jobstest.VolcanoJob, "replicas: 5", "replicas: 5.5", "spec.tasks[1].replicas"},
	} {
		covered.Insert(test.system)
		t.Run(name, func(t *testing.T) {
			require.Contains(t, test.document, test.from)
			f := newFixture(t, strings.Replace(test.document, test.from, test.to, 1))
			_, err := f.Registry.Get(context.Background(), jobstest.Ref(test.system, test.job))
			var field *jobs.FieldError
			require.ErrorAs(t, err, &field)
			assert.Equal(t, test.path, field.Path)
			assert.ErrorContains(t, err, jobstest.Ref(test.system, test.job).String())
		})
	}
	requireEverySystem(t, covered, "trainingjob", "mpijob-v1")
}

func TestNothingIsReadFromAnEmptyObject(t *testing.T) {
	f := newFixture(t)
	for _, system := range f.Config.Systems {
		empty := jobstest.Parse(t, "{apiVersion: any/v1, kind: Any, metadata: {name: x}}")
		_, err := system.Read(empty)
		var field *jobs.FieldError
		assert.ErrorAs(t, err, &field, system.Name())
		_, err = f.Registry.Gang(jobs.Job{Ref: jobstest.Ref(system.Name(), "x"), Object: empty}, 1, jobstest.AnyNumber)
		assert.ErrorAs(t, err, &field, system.Name())
		_, err = f.Registry.Gang(jobs.Job{Ref: jobstest.Ref(system.Name(), "x")}, 1, jobstest.AnyNumber)
		assert.ErrorIs(t, err, jobs.ErrNoObject, system.Name())
	}
}

func TestNumbersThatNoSystemCanHaveAreMalformed(t *testing.T) {
	for number, problem := range map[string]string{
		"5000000000": "spec.parallelism: is number 5000000000, not a whole number from 0 to 4294967295",
		"-1":         "spec.parallelism: is number -1, not a whole number from 0 to 4294967295",
		"1.5":        "spec.parallelism: is number 1.5, not a whole number from 0 to 4294967295",
		`"1"`:        "spec.parallelism: is string, not a whole number from 0 to 4294967295",
	} {
		f := newFixture(t, `{apiVersion: batch/v1, kind: Job, metadata: {name: big}, spec: {parallelism: `+number+`}}`)
		_, err := f.Registry.Get(context.Background(), jobstest.Ref("job", "big"))
		assert.ErrorContains(t, err, problem)
	}
}

func TestTheProductOfTheLargestNumbersIsANumber(t *testing.T) {
	f := newFixture(t, strings.NewReplacer("replicas: 2", "replicas: 4294967295", "parallelism: 3", "parallelism: 4294967295").Replace(jobstest.JobSet))
	assert.Equal(t, math.MaxInt32*math.MaxInt32, f.Get("jobset", "llm").Replicas)
}

func TestABoundIsMalformedOnlyWhereAnAnnotationStatesIt(t *testing.T) {
	f := newFixture(t, jobstest.ElasticPyTorchJob)
	f.Set(f.Resource("pytorchjob"), "imagenet", "1", "metadata", "annotations", api.AnnotationMaxReplicas)
	job := f.Get("pytorchjob", "imagenet")
	assert.ErrorContains(t, job.Ignored, api.AnnotationMaxReplicas)
	assert.Equal(t, []int{2, 4}, []int{job.Min, job.Max})

	f = newFixture(t, strings.Replace(jobstest.ElasticPyTorchJob, "minReplicas: 2", "minReplicas: 9", 1))
	assert.NoError(t, f.Get("pytorchjob", "imagenet").Ignored, "its object contradicts itself")
	assert.Empty(t, f.Events())
}

func TestAnnotationThatCannotBeReadIsIgnoredAndItsOwnerToldOnce(t *testing.T) {
	for key, test := range map[string]struct {
		value string
		want  func(jobs.Job) bool
	}{
		api.AnnotationRecovery:          {"dynamik", func(job jobs.Job) bool { return job.Recovery == jobs.RecoverFull }},
		api.AnnotationMaxWait:           {"soon", func(job jobs.Job) bool { return job.MaxWait == 0 }},
		api.AnnotationSupervisorMaxWait: {"10m", func(job jobs.Job) bool { return job.MaxWait == 0 }},
		api.AnnotationMinReplicas:       {"9", func(job jobs.Job) bool { return job.Min == 2 && job.Max == 4 }},
		api.AnnotationMaxReplicas:       {"all", func(job jobs.Job) bool { return job.Max == 4 }},
	} {
		t.Run(key, func(t *testing.T) {
			f := newFixture(t, jobstest.ElasticPyTorchJob)
			f.Set(f.Resource("pytorchjob"), "imagenet", test.value, "metadata", "annotations", key)
			for range 2 {
				job := f.Get("pytorchjob", "imagenet")
				assert.True(t, test.want(job))
				assert.ErrorContains(t, job.Ignored, key)
			}
			assert.Equal(t, []string{"SpotAnnotationMalformed"}, f.Events())
			require.NoError(t, f.Registry.Suspend(context.Background(), f.Get("pytorchjob", "imagenet"), jobs.HeldForReclaim), "it is a job all the same")

			f.Set(f.Resource("pytorchjob"), "imagenet", "another", "metadata", "annotations", key)
			f.Get("pytorchjob", "imagenet")
			assert.Contains(t, f.Events(), "SpotAnnotationMalformed", "another mistake")
		})
	}
}
