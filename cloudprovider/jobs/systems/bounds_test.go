package systems_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
	"gpu-spot-autoscaler/cloudprovider/jobs/mpijob"
	"gpu-spot-autoscaler/cloudprovider/jobs/pytorchjob"
)

func TestBounds(t *testing.T) {
	change := func(document, from, to string) string {
		require.Contains(t, document, from)
		return strings.Replace(document, from, to, 1)
	}
	withPolicies := func(policies string) string {
		return change(jobstest.VolcanoJob, "  queue: default\n", "  queue: default\n  policies: "+policies+"\n")
	}
	withTaskPolicies := func(policies string) string {
		return change(jobstest.VolcanoJob, "replicas: 5,", "replicas: 5, policies: "+policies+",")
	}
	ownersJobSet := func(specOfJobs string) string {
		return change(change(jobstest.JobSet, "uid: uid-llm", `uid: uid-llm, annotations: {gpu-spot.autoscaling/min-replicas: "2"}`),
			"          parallelism: 3\n", "          parallelism: 3\n          "+specOfJobs+"\n")
	}
	type bounds struct{ Min, Max, Replicas int }
	covered := sets.New[string]()
	for name, test := range map[string]struct {
		system, job, document string
		want                  bounds
	}{
		"an Indexed Job is one gang":                                  {"job", "train", jobstest.IndexedJob, bounds{4, 4, 4}},
		"an Indexed Job whose annotations say otherwise":              {"job", "train", change(jobstest.IndexedJob, "metadata:\n", "metadata:\n  annotations: {gpu-spot.autoscaling/min-replicas: \"1\"}\n"), bounds{1, 4, 4}},
		"an Indexed Job of which a part has succeeded":                {"job", "train", change(jobstest.IndexedJob, "status: {active: 4}", "status: {active: 1, succeeded: 3}"), bounds{1, 4, 1}},
		"an Indexed Job of fewer pods than at a time":                 {"job", "train", change(jobstest.IndexedJob, "completions: 4", "completions: 3"), bounds{3, 4, 3}},
		"an Indexed Job of which indexes have failed for good":        {"job", "train", change(change(jobstest.IndexedJob, "completions: 4", "completions: 9"), "status: {active: 4}", `status: {active: 2, succeeded: 2, failedIndexes: "1,3-5,7"}`), bounds{2, 4, 2}},
		"a Job without completions":                                   {"job", "train", change(change(jobstest.IndexedJob, "  completions: 4\n", ""), "  completionMode: Indexed\n", ""), bounds{0, 4, 4}},
		"a Job without completions of which a pod has succeeded":      {"job", "train", change(change(change(jobstest.IndexedJob, "  completions: 4\n", ""), "  completionMode: Indexed\n", ""), "status: {active: 4}", "status: {active: 2, succeeded: 1}"), bounds{0, 4, 2}},
		"pods of another Job are on their own":                        {"job", "train", change(jobstest.IndexedJob, "completionMode: Indexed", "completionMode: NonIndexed"), bounds{0, 4, 4}},
		"a Job of one":                                                {"job", "train", change(jobstest.IndexedJob, "parallelism: 4", "parallelism: 1"), bounds{0, 1, 1}},
		"a Job that says nothing":                                     {"job", "train", change(change(jobstest.IndexedJob, "  parallelism: 4\n", ""), "  completionMode: Indexed\n", ""), bounds{0, 1, 1}},
		"a PyTorchJob with a policy":                                  {"pytorchjob", "imagenet", jobstest.ElasticPyTorchJob, bounds{2, 4, 3}},
		"a PyTorchJob whose policy has a maximum only":                {"pytorchjob", "imagenet", change(jobstest.ElasticPyTorchJob, "minReplicas: 2, ", ""), bounds{4, 4, 3}},
		"a PyTorchJob whose policy has a minimum only":                {"pytorchjob", "imagenet", change(jobstest.ElasticPyTorchJob, "maxReplicas: 4, ", ""), bounds{2, 2, 3}},
		"a PyTorchJob whose policy has no bounds":                     {"pytorchjob", "imagenet", change(jobstest.ElasticPyTorchJob, "minReplicas: 2, maxReplicas: 4, ", ""), bounds{3, 3, 3}},
		"a PyTorchJob without a policy needs all":                     {"pytorchjob", "bert", jobstest.PyTorchJob, bounds{4, 4, 4}},
		"a TFJob needs all":                                           {"tfjob", "ctr", jobstest.TFJob, bounds{7, 7, 7}},
		"a TFJob with dynamic workers needs one of them":              {"tfjob", "ctr", change(jobstest.TFJob, "  tfReplicaSpecs", "  enableDynamicWorker: true\n  tfReplicaSpecs"), bounds{4, 7, 7}},
		"a TFJob as arena submits it, types in lower case":            {"tfjob", "ctr", change(change(jobstest.TFJob, "Worker:", "worker:"), "runPolicy: {suspend: false}", "cleanPodPolicy: Running"), bounds{7, 7, 7}},
		"a TFJob whose owner says otherwise":                          {"tfjob", "ctr", change(jobstest.TFJob, "uid: uid-ctr", "uid: uid-ctr, annotations: {gpu-spot.autoscaling/min-replicas: \"5\"}"), bounds{7, 7, 7}},
		"a TFJob that outlives lost pods, whose owner says otherwise": {"tfjob", "ctr", strings.ReplaceAll(change(jobstest.TFJob, "uid: uid-ctr", "uid: uid-ctr, annotations: {gpu-spot.autoscaling/min-replicas: \"5\"}"), "      template:", "      restartPolicy: OnFailure\n      template:"), bounds{5, 7, 7}},
		"a TrainingJob that has yet to start, whose owner says otherwise": {"trainingjob", "mnist", change(change(jobstest.TrainingJob, `job-supervisor.kube-ai.io/spot-instance: "true"`,
			`gpu-spot.autoscaling/min-replicas: "2"`), "phase: Running", "phase: Created"), bounds{4, 8, 4}},
		"a PyTorchJob that cannot lose a pod, whose owner says otherwise": {"pytorchjob", "imagenet", change(change(jobstest.ElasticPyTorchJob, "annotations: {", `annotations: {gpu-spot.autoscaling/min-replicas: "1", `),
			"restartPolicy: OnFailure", "restartPolicy: Never"), bounds{3, 4, 3}},
		"a Volcano job that restarts when a pod is evicted, whose owner says otherwise": {"vcjob", "resnet", change(withPolicies("[{event: PodEvicted, action: RestartJob}]"), "metadata: {name: resnet, ", `metadata: {name: resnet, annotations: {gpu-spot.autoscaling/min-replicas: "1"}, `), bounds{5, 5, 5}},
		"an AITrainingJob that restarts no pod, whose owner says otherwise": {"aitrainingjob", "horovod", change(change(jobstest.AITrainingJob, "restartPolicy: ExitCode", "restartPolicy: Never"),
			"metadata: {name: horovod, ", `metadata: {name: horovod, annotations: {gpu-spot.autoscaling/min-replicas: "1"}, `), bounds{3, 5, 3}},
		"a JAXJob that cannot lose a pod, whose owner says otherwise": {"jaxjob", "gemma", change(change(jobstest.JAXJob, "uid: uid-gemma", "uid: uid-gemma, annotations: {gpu-spot.autoscaling/min-replicas: \"1\"}"), "OnFailure", "Never"), bounds{3, 3, 3}},
		"a JAXJob needs all": {"jaxjob", "gemma", jobstest.JAXJob, bounds{3, 3, 3}},
		"an MPIJob under horovodrun, in workers of two slots": {"mpijob", "tf", jobstest.ElasticMPIJob, bounds{2, 8, 4}},
		"an MPIJob under mpirun needs all":                    {"mpijob", "tf", change(jobstest.ElasticMPIJob, `--min-np, "3", --max-np, "16", `, ""), bounds{4, 4, 4}},
		"an MPIJob whose launcher is a host, too":             {"mpijob", "tf", change(jobstest.ElasticMPIJob, "  runPolicy", "  runLauncherAsWorker: true\n  runPolicy"), bounds{1, 7, 4}},
		"an MPIJob for which its launcher would be enough": {"mpijob", "tf", change(change(jobstest.ElasticMPIJob, "  runPolicy", "  runLauncherAsWorker: true\n  runPolicy"),
			`--min-np, "3"`, `--min-np, "2"`), bounds{1, 7, 4}},
		"an MPIJob of the training operator":             {"mpijob-v1", "tf", change(change(jobstest.ElasticMPIJob, "v2beta1", "v1"), "    Worker:\n", "    Worker:\n      restartPolicy: ExitCode\n"), bounds{2, 8, 4}},
		"an MPIJob of the training operator, by default": {"mpijob-v1", "tf", change(jobstest.ElasticMPIJob, "v2beta1", "v1"), bounds{4, 8, 4}},
		"an MPIJob of Arena needs all":                   {"mpijob-v1alpha1", "resnet50", jobstest.ArenaMPIJob, bounds{2, 2, 2}},
		"an MPIJob of Arena that states few GPUs":        {"mpijob-v1alpha1", "resnet50", change(jobstest.ArenaMPIJob, "replicas: 2", "gpus: 4"), bounds{1, 1, 1}},
		"an MPIJob of Arena that states many GPUs":       {"mpijob-v1alpha1", "resnet50", change(jobstest.ArenaMPIJob, "replicas: 2", "gpus: 24"), bounds{3, 3, 3}},
		"a JobSet needs all that have not ended":         {"jobset", "llm", jobstest.JobSet, bounds{6, 7, 6}},
		"a JobSet whose owner says otherwise":            {"jobset", "llm", ownersJobSet(""), bounds{6, 7, 6}},
		"a JobSet that outlives evicted pods, whose owner says otherwise": {"jobset", "llm",
			ownersJobSet("podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}"), bounds{2, 7, 6}},
		"a JobSet that may fail with an evicted pod, whose owner says otherwise": {"jobset", "llm",
			ownersJobSet(`podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [143]}},
				{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}`), bounds{6, 7, 6}},
		"a JobSet of which a part outlives evicted pods, whose owner says otherwise": {"jobset", "llm",
			change(ownersJobSet("podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}"),
				"status:\n", "    - {name: loader, template: {spec: {template: {spec: {containers: [{name: load, image: load}]}}}}}\nstatus:\n"), bounds{7, 8, 7}},
		"a JobSet that ignores another state of an eviction, whose owner says otherwise": {"jobset", "llm",
			ownersJobSet("podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget, status: Unknown}]}]}"), bounds{6, 7, 6}},
		"a JobSet with fewer pods left than its owner says": {"jobset", "llm",
			change(change(ownersJobSet("podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}"), "ready: 2, succeeded: 0", "ready: 1, succeeded: 1"),
				`min-replicas: "2"`, `min-replicas: "4"`), bounds{4, 7, 3}},
		"a JobSet that initializes":                        {"jobset", "llm", change(jobstest.JobSet, "succeeded: 1", "succeeded: 0"), bounds{7, 7, 7}},
		"a JobSet of which one Job of two has succeeded":   {"jobset", "llm", change(jobstest.JobSet, "ready: 2, succeeded: 0", "ready: 1, succeeded: 1"), bounds{3, 7, 3}},
		"a JobSet for MPI, without its launcher":           {"jobset", "deepspeed", jobstest.JobSetOfMPITrainJob, bounds{3, 3, 3}},
		"an ElasticJob with a range of nodes":              {"dlrover", "nanogpt", jobstest.ElasticJob, bounds{2, 4, 4}},
		"an ElasticJob with a range in figures":            {"dlrover", "nanogpt", change(jobstest.ElasticJob, "2:$NODE_NUM", "1:6"), bounds{1, 6, 4}},
		"an ElasticJob with a number of nodes":             {"dlrover", "nanogpt", change(jobstest.ElasticJob, "2:$NODE_NUM", "$NODE_NUM"), bounds{4, 4, 4}},
		"an AITrainingJob, without its launcher":           {"aitrainingjob", "horovod", jobstest.AITrainingJob, bounds{1, 5, 3}},
		"an AITrainingJob that is not elastic":             {"aitrainingjob", "horovod", change(jobstest.AITrainingJob, "faultTolerant: true", "faultTolerant: false"), bounds{3, 3, 3}},
		"an AITrainingJob that tolerates a range":          {"aitrainingjob", "horovod", change(jobstest.AITrainingJob, "129,10001,127,137,143,129", "1-100, 130-140"), bounds{1, 5, 3}},
		"an AITrainingJob that tolerates other exit codes": {"aitrainingjob", "horovod", change(jobstest.AITrainingJob, "137,143,", ""), bounds{3, 5, 3}},
		"an AITrainingJob that tolerates nothing":          {"aitrainingjob", "horovod", change(jobstest.AITrainingJob, "faultTolerantPolicy", "nothing"), bounds{3, 5, 3}},
		"an AITrainingJob that tolerates every failure": {"aitrainingjob", "horovod", change(change(jobstest.AITrainingJob, "faultTolerantPolicy", "nothing"),
			"restartPolicy: OnNodeFailWithExitCode", "restartPolicy: OnFailure\n      restartScope: Pod"), bounds{1, 5, 3}},
		"an AITrainingJob of which all pods are restarted":       {"aitrainingjob", "horovod", change(jobstest.AITrainingJob, "restartScope: Pod", "restartScope: All"), bounds{3, 5, 3}},
		"an AITrainingJob that restarts no pod":                  {"aitrainingjob", "horovod", change(jobstest.AITrainingJob, "restartPolicy: ExitCode", "restartPolicy: Never"), bounds{3, 5, 3}},
		"an AITrainingJob with one restart left":                 {"aitrainingjob", "horovod", change(jobstest.AITrainingJob, "{phase: Running}", "{phase: Running, RestartCount: {trainer: 99}}"), bounds{2, 5, 3}},
		"a RayCluster, in pods, without what is suspended":       {"raycluster", "rc", jobstest.RayCluster, bounds{3, 11, 7}},
		"a RayCluster that asks for more than its maximum":       {"raycluster", "rc", change(jobstest.RayCluster, "groupName: big, replicas: 2", "groupName: big, replicas: 9"), bounds{3, 11, 11}},
		"a RayCluster whose minimum is above its maximum":        {"raycluster", "rc", change(jobstest.RayCluster, "replicas: 2, minReplicas: 1", "replicas: 5, minReplicas: 6"), bounds{9, 11, 11}},
		"a RayCluster without maximums":                          {"raycluster", "rc", strings.NewReplacer("maxReplicas: 4, ", "", ", maxReplicas: 3}", "}").Replace(jobstest.RayCluster), bounds{3, 7, 7}},
		"a RayJob":                                               {"rayjob", "rj", jobstest.RayJob, bounds{1, 4, 2}},
		"a LeaderWorkerSet, of whose groups none needs another":  {"leaderworkerset", "vllm", jobstest.LeaderWorkerSet, bounds{0, 6, 6}},
		"a LeaderWorkerSet that says nothing":                    {"leaderworkerset", "vllm", change(change(jobstest.LeaderWorkerSet, "  replicas: 2\n", ""), "    size: 3\n", ""), bounds{0, 1, 1}},
		"a Volcano job, without its launcher":                    {"vcjob", "resnet", jobstest.VolcanoJob, bounds{3, 5, 5}},
		"a Volcano job that restarts when a pod is evicted":      {"vcjob", "resnet", withPolicies("[{event: PodEvicted, action: RestartJob}]"), bounds{5, 5, 5}},
		"a Volcano job with a task that restarts it":             {"vcjob", "resnet", withTaskPolicies("[{events: [PodFailed, Unknown], action: RestartJob}]"), bounds{5, 5, 5}},
		"a Volcano job that is terminated when a pod is evicted": {"vcjob", "resnet", withPolicies("[{event: PodEvicted, action: TerminateJob}]"), bounds{5, 5, 5}},
		"a Volcano job that is aborted when a pod is evicted":    {"vcjob", "resnet", withPolicies("[{events: [TaskFailed, PodEvicted], action: AbortJob}]"), bounds{5, 5, 5}},
		"a Volcano job that is completed whatever happens":       {"vcjob", "resnet", withPolicies(`[{event: "*", action: CompleteJob}]`), bounds{5, 5, 5}},
		"a Volcano job that is terminated by SIGTERM":            {"vcjob", "resnet", withPolicies("[{exitCode: 143, action: TerminateJob}]"), bounds{5, 5, 5}},
		"a Volcano job that is terminated by another exit code":  {"vcjob", "resnet", withPolicies("[{exitCode: 3, action: TerminateJob}]"), bounds{3, 5, 5}},
		"a Volcano job that completes with a task":               {"vcjob", "resnet", withPolicies("[{event: TaskCompleted, action: CompleteJob}]"), bounds{3, 5, 5}},
		"a Volcano job with a task that is restarted":            {"vcjob", "resnet", withTaskPolicies("[{event: PodEvicted, action: RestartTask}]"), bounds{5, 5, 5}},
		"a Volcano job with a task that terminates it":           {"vcjob", "resnet", withTaskPolicies("[{event: PodEvicted, action: TerminateJob}]"), bounds{5, 5, 5}},
		"a Volcano job with a task that knows better": {"vcjob", "resnet", change(withTaskPolicies(`[{event: "*", action: RestartPod}]`), "  queue: default\n",
			"  policies: [{event: PodEvicted, action: TerminateJob}]\n"), bounds{3, 5, 5}},
		"a Volcano job with retries for one pod": {"vcjob", "resnet", change(withTaskPolicies("[{event: PodEvicted, action: RestartPod}]"), "running: 6",
			"running: 6, retryCount: 1"), bounds{4, 5, 5}},
		"a Volcano job whose launcher ends it": {"vcjob", "resnet", change(jobstest.VolcanoJob, "{event: TaskCompleted, action: CompleteJob}",
			"{event: PodEvicted, action: TerminateJob}"), bounds{3, 5, 5}},
		"a Volcano job without minAvailable": {"vcjob", "resnet", change(jobstest.VolcanoJob, "  minAvailable: 4\n", ""), bounds{5, 5, 5}},
	} {
		covered.Insert(test.system)
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, test.document)
			job := f.Get(test.system, test.job)
			assert.Equal(t, test.want, bounds{job.Min, job.Max, job.Replicas})
			assert.False(t, job.Suspended || job.Finished)
		})
	}
	requireEverySystem(t, covered, "trainingjob")
}

func TestWhatHasEnded(t *testing.T) {
	condition := "status: {conditions: [{type: %s, status: \"%s\"}]}\n"
	covered := sets.New[string]()
	for name, test := range map[string]struct {
		system, job, document string
		want                  bool
	}{
		"Job":                      {"job", "train", strings.Replace(jobstest.IndexedJob, "status: {active: 4}", fmt.Sprintf(condition, "Complete", "True"), 1), true},
		"Job that has not failed":  {"job", "train", strings.Replace(jobstest.IndexedJob, "status: {active: 4}", fmt.Sprintf(condition, "Failed", "False"), 1), false},
		"PyTorchJob":               {"pytorchjob", "bert", jobstest.PyTorchJob + fmt.Sprintf(condition, "Succeeded", "True"), true},
		"PyTorchJob that restarts": {"pytorchjob", "bert", jobstest.PyTorchJob + fmt.Sprintf(condition, "Restarting", "True"), false},
		"TFJob":                    {"tfjob", "ctr", jobstest.TFJob + fmt.Sprintf(condition, "Failed", "True"), true},
		"TFJob that restarts":      {"tfjob", "ctr", jobstest.TFJob + fmt.Sprintf(condition, "Restarting", "True"), false},
		"JAXJob":                   {"jaxjob", "gemma", jobstest.JAXJob + fmt.Sprintf(condition, "Succeeded", "True"), true},
		"MPIJob":                   {"mpijob", "tf", jobstest.ElasticMPIJob + fmt.Sprintf(condition, "Failed", "True"), true},
		"MPIJob of Arena":          {"mpijob-v1alpha1", "resnet50", strings.Replace(jobstest.ArenaMPIJob, "Active", "Succeeded", 1), true},
		"MPIJob of Arena that may be tried again": {"mpijob-v1alpha1", "resnet50", strings.Replace(jobstest.ArenaMPIJob, "Active", "Failed", 1), false},
		"ElasticJob":                  {"dlrover", "nanogpt", strings.Replace(jobstest.ElasticJob, "phase: Running", "phase: Succeeded", 1), true},
		"AITrainingJob":               {"aitrainingjob", "horovod", strings.Replace(jobstest.AITrainingJob, "phase: Running", "phase: Succeed", 1), true},
		"RayJob":                      {"rayjob", "rj", strings.Replace(jobstest.RayJob, "jobDeploymentStatus: Running", "jobDeploymentStatus: Complete", 1), true},
		"JobSet":                      {"jobset", "llm", jobstest.JobSet + "  conditions: [{type: Completed, status: \"True\"}]\n", true},
		"JobSet that restarts":        {"jobset", "llm", jobstest.JobSet + "  conditions: [{type: Failed, status: \"False\"}]\n", false},
		"Volcano job":                 {"vcjob", "resnet", strings.Replace(jobstest.VolcanoJob, "phase: Running", "phase: Completed", 1), true},
		"Volcano job that is aborted": {"vcjob", "resnet", strings.Replace(jobstest.VolcanoJob, "phase: Running", "phase: Aborted", 1), false},
	} {
		covered.Insert(test.system)
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, test.document)
			job := f.Get(test.system, test.job)
			assert.Equal(t, test.want, job.Finished)
			if test.want {
				f.Writes()
				err := f.Registry.Suspend(context.Background(), job, jobs.HeldForReclaim)
				assert.True(t, err == nil || errors.Is(err, jobs.ErrUnsupported), "%v", err)
				assert.Empty(t, f.Writes(), "it is left in peace")
			}
		})
	}
	requireEverySystem(t, covered, "trainingjob", "mpijob-v1", "raycluster", "leaderworkerset")
}

// What the training operator makes of the policies is told in test/operators, by the operator itself.
func TestAJobThatNoPodMayLeaveNeedsAllOfThem(t *testing.T) {
	const horovod = `Launcher: {template: {spec: {containers: [{command: [horovodrun, --min-np, "2"]}]}}}`
	tests := map[string]struct {
		system string
		spec   string
		least  int
	}{
		"elastic": {pytorchjob.Name,
			`{elasticPolicy: {minReplicas: 2, maxReplicas: 6}, pytorchReplicaSpecs: {Worker: {replicas: 4, restartPolicy: ExitCode}}}`, 2},
		"elastic, by default": {pytorchjob.Name,
			`{elasticPolicy: {minReplicas: 2, maxReplicas: 6}, pytorchReplicaSpecs: {worker: {replicas: 4}}}`, 2},
		"elastic, with workers that are never restarted": {pytorchjob.Name,
			`{elasticPolicy: {minReplicas: 2, maxReplicas: 6}, pytorchReplicaSpecs: {worker: {replicas: 4, restartPolicy: Never}}}`, 4},
		"elastic, with a master that is never restarted": {pytorchjob.Name,
			`{elasticPolicy: {minReplicas: 2, maxReplicas: 6}, pytorchReplicaSpecs: {Master: {restartPolicy: Never}, Worker: {replicas: 3}}}`, 4},
		"MPI v1": {mpijob.NameV1,
			`{mpiReplicaSpecs: {` + horovod + `, Worker: {replicas: 4, restartPolicy: ExitCode}}}`, 2},
		"MPI v1, by default": {mpijob.NameV1,
			`{mpiReplicaSpecs: {` + horovod + `, Worker: {replicas: 4}}}`, 4},
		"MPI v2": {mpijob.Name,
			`{mpiReplicaSpecs: {` + horovod + `, Worker: {replicas: 4}}}`, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			job, err := newFixture(t).System(test.system).Read(jobstest.Parse(t, "{apiVersion: kubeflow.org/v1, kind: Any, metadata: {name: job}, spec: "+test.spec+"}"))
			require.NoError(t, err)
			assert.Equal(t, test.least, job.Min)
			assert.Equal(t, 4, job.Replicas)
		})
	}
}
