package systems_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
)

func TestSuspendIsOnePatchAndResumeUndoesIt(t *testing.T) {
	covered := sets.New[string]()
	for name, test := range map[string]struct{ system, job, document, replicas, field string }{
		"Job":        {"job", "train", jobstest.IndexedJob, "4", `"spec":{"suspend":%t}`},
		"PyTorchJob": {"pytorchjob", "imagenet", jobstest.ElasticPyTorchJob, "3", `"spec":{"runPolicy":{"suspend":%t}}`},
		"TFJob":      {"tfjob", "ctr", jobstest.TFJob, "7", `"spec":{"runPolicy":{"suspend":%t}}`},
		"JAXJob":     {"jaxjob", "gemma", jobstest.JAXJob, "3", `"spec":{"runPolicy":{"suspend":%t}}`},
		"MPIJob":     {"mpijob", "tf", jobstest.ElasticMPIJob, "4", `"spec":{"runPolicy":{"suspend":%t}}`},
		"MPIJob v1":  {"mpijob-v1", "tf", strings.Replace(jobstest.ElasticMPIJob, "v2beta1", "v1", 1), "4", `"spec":{"runPolicy":{"suspend":%t}}`},
		"JobSet":     {"jobset", "llm", jobstest.JobSet, "6", `"spec":{"suspend":%t}`},
		"RayCluster": {"raycluster", "rc", jobstest.RayCluster, "7", `"spec":{"suspend":%t}`},
		"RayJob":     {"rayjob", "rj", jobstest.RayJob, "2", `"spec":{"suspend":%t}`},
	} {
		covered.Insert(test.system)
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, test.document)
			ctx := context.Background()
			job := f.Get(test.system, test.job)
			resource := f.Resource(test.system)

			require.NoError(t, f.Registry.Suspend(ctx, job, jobs.HeldForReclaim))
			parts := ""
			if len(job.Parts) > 0 {
				parts = fmt.Sprintf(`"gpu-spot.autoscaling/held-parts":%q,`, "raycluster/rc")
			}
			assert.Equal(t, []string{fmt.Sprintf(`patch %s {"metadata":{"annotations":{%s"gpu-spot.autoscaling/held-reason":"reclaim","gpu-spot.autoscaling/held-replicas":%q,`+
				`"gpu-spot.autoscaling/held-since":%q},"labels":{"gpu-spot.autoscaling/held":"suspended"},"uid":%q},%s}`,
				resource.Resource, parts, test.replicas, jobstest.EpochText, job.UID, fmt.Sprintf(test.field, true))}, f.Writes())
			assert.Equal(t, []string{jobs.ReasonSuspended}, f.Events())
			now := f.Get(test.system, test.job)
			assert.True(t, now.Suspended)
			assert.Equal(t, job.Replicas, now.Replicas)

			f.Writes()
			require.NoError(t, f.Registry.Suspend(ctx, job, jobs.HeldForReclaim))
			assert.Empty(t, f.Writes(), "the same again")
			assert.Empty(t, f.Events())

			f.Clock.SetTime(jobstest.Epoch.Add(3600e9))
			require.NoError(t, f.Registry.Suspend(ctx, job, jobs.HeldForMaxWait))
			writes := f.Writes()
			assert.Len(t, writes, 1, "for another reason")
			assert.Contains(t, writes[0], `"gpu-spot.autoscaling/held-reason":"max-wait"`)
			assert.Contains(t, writes[0], jobstest.EpochText, "it has been held since then")
			assert.Equal(t, []string{jobs.ReasonTimedOut}, f.Events())

			require.NoError(t, f.Registry.Resume(ctx, f.Get(test.system, test.job), job.Replicas))
			assert.Equal(t, []string{fmt.Sprintf(`patch %s {"metadata":{"annotations":{"gpu-spot.autoscaling/held-parts":null,"gpu-spot.autoscaling/held-reason":null,"gpu-spot.autoscaling/held-replicas":null,`+
				`"gpu-spot.autoscaling/held-since":null},"labels":{"gpu-spot.autoscaling/held":null},"uid":%q},%s}`,
				resource.Resource, job.UID, fmt.Sprintf(test.field, false))}, f.Writes())
			assert.Equal(t, []string{jobs.ReasonResumed}, f.Events())
			assert.False(t, f.Get(test.system, test.job).Suspended)

			f.Writes()
			require.NoError(t, f.Registry.Resume(ctx, job, job.Replicas))
			assert.Empty(t, f.Writes(), "the same again")
		})
	}
	for _, system := range newFixture(t).Config.Systems {
		if _, suspends := system.(jobs.Suspender); !suspends {
			covered.Insert(system.Name()) // see TestWhatCannotBeSuspended
		}
	}
	requireEverySystem(t, covered, "trainingjob", "vcjob")
}

func TestAJobThatItsOwnerSuspendedIsNotMarkedNorResumed(t *testing.T) {
	f := newFixture(t, strings.Replace(jobstest.ElasticPyTorchJob, "suspend: false", "suspend: true", 1))
	job := f.Get("pytorchjob", "imagenet")
	require.True(t, job.Suspended)
	require.NoError(t, f.Registry.Suspend(context.Background(), job, jobs.HeldForReclaim))
	require.NoError(t, f.Registry.Resume(context.Background(), job, 3))
	assert.Empty(t, f.Writes())
	assert.Empty(t, f.Events())
}

func TestAnOperatorThatDoesNotKnowSuspensionLeavesNoHeldLabel(t *testing.T) {
	f := newFixture(t, strings.Replace(jobstest.ElasticPyTorchJob, "  runPolicy: {suspend: false}\n", "", 1))
	resource := f.Resource("pytorchjob")
	f.PruneOnPatch(resource, "spec", "runPolicy")
	require.ErrorIs(t, f.Registry.Suspend(context.Background(), f.Get("pytorchjob", "imagenet"), jobs.HeldForReclaim), jobs.ErrUnsupported)
	assert.Empty(t, f.Object(resource, "imagenet").GetLabels())
	assert.Empty(t, f.Events())
}

func TestWhatCannotBeSuspended(t *testing.T) {
	owned := strings.Replace(jobstest.IndexedJob, "  uid: uid-train\n", "  uid: uid-train\n  ownerReferences: [{apiVersion: x.io/v1, kind: Workflow, name: w, uid: u, controller: true}]\n", 1)
	drains := strings.NewReplacer("  completions: 4\n", "", "  completionMode: Indexed\n", "", "status: {active: 4}", "status: {active: 2, succeeded: 1}").Replace(jobstest.IndexedJob)
	served := strings.Replace(jobstest.RayClusterOfRayJob, "kind: RayJob, name: rj", "kind: RayService, name: rs", 1)
	covered := sets.New[string]()
	for name, test := range map[string]struct{ system, job, document string }{
		"ElasticJob":                {"dlrover", "nanogpt", jobstest.ElasticJob},
		"AITrainingJob":             {"aitrainingjob", "horovod", jobstest.AITrainingJob},
		"LeaderWorkerSet":           {"leaderworkerset", "vllm", jobstest.LeaderWorkerSet},
		"MPIJob of Arena":           {"mpijob-v1alpha1", "resnet50", jobstest.ArenaMPIJob},
		"Job of another controller": {"job", "train", owned},
		"Job without completions of which a pod has succeeded": {"job", "train", drains},
		"RayCluster of a RayService":                           {"raycluster", "rc", served},
		"RayJob that leaves its cluster":                       {"rayjob", "rj", strings.Replace(jobstest.RayJob, "  shutdownAfterJobFinishes: true\n", "", 1)},
		"RayJob on a cluster of others":                        {"rayjob", "rj", strings.Replace(jobstest.RayJob, "  suspend: false\n", "  clusterSelector: {ray.io/cluster: rc}\n", 1)},
		"Volcano job with one retry left":                      {"vcjob", "resnet", strings.Replace(jobstest.VolcanoJob, "running: 6", "running: 6, retryCount: 2", 1)},
		"Volcano job with no retries at all":                   {"vcjob", "resnet", strings.Replace(jobstest.VolcanoJob, "maxRetry: 3", "maxRetry: 1", 1)},
	} {
		covered.Insert(test.system)
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, test.document)
			require.ErrorIs(t, f.Registry.Suspend(context.Background(), f.Get(test.system, test.job), jobs.HeldForReclaim), jobs.ErrUnsupported)
			assert.Empty(t, f.Writes())
		})
	}
	for _, system := range newFixture(t).Config.Systems {
		if _, suspends := system.(jobs.Suspender); suspends {
			covered.Insert(system.Name()) // see TestSuspendIsOnePatchAndResumeUndoesIt
		}
	}
	requireEverySystem(t, covered)
}

func TestJobsThatHealByThemselvesNeedNothingToShrinkOrGrow(t *testing.T) {
	for name, test := range map[string]struct{ system, job, document string }{
		"Job": {"job", "train", jobstest.IndexedJob}, "PyTorchJob": {"pytorchjob", "imagenet", jobstest.ElasticPyTorchJob},
		"TFJob": {"tfjob", "ctr", jobstest.TFJob}, "MPIJob": {"mpijob", "tf", jobstest.ElasticMPIJob},
		"ElasticJob": {"dlrover", "nanogpt", jobstest.ElasticJob}, "AITrainingJob": {"aitrainingjob", "horovod", jobstest.AITrainingJob},
		"RayCluster": {"raycluster", "rc", jobstest.RayCluster}, "LeaderWorkerSet": {"leaderworkerset", "vllm", jobstest.LeaderWorkerSet}, "Volcano job": {"vcjob", "resnet", jobstest.VolcanoJob},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, test.document)
			job := f.Get(test.system, test.job)
			require.NoError(t, f.Registry.Shrink(context.Background(), job, []string{test.job + "-worker-1"}))
			require.NoError(t, f.Registry.Grow(context.Background(), job, 3))
			assert.Empty(t, f.Writes())
			assert.Empty(t, f.Events())
		})
	}
}

// What is held is resumed and bought for, so that nobody else may say of a job that it is, whatever its system.
func TestTheHeldLabelOfJobsOfEverySystemIsReserved(t *testing.T) {
	manifest, err := os.ReadFile("../../../deploy/manifests/policies.yaml")
	require.NoError(t, err)
	policy := &admissionv1.ValidatingAdmissionPolicy{}
	for document := range strings.SplitSeq(string(manifest), "\n---\n") {
		if strings.Contains(document, "kind: ValidatingAdmissionPolicy\n") && strings.Contains(document, "name: gpu-spot-autoscaler-marks\n") {
			require.NoError(t, yaml.UnmarshalStrict([]byte(document), policy))
		}
	}
	f := newFixture(t)
	for _, system := range f.Config.Systems {
		resource := system.Resource()
		assert.True(t, slices.ContainsFunc(policy.Spec.MatchConstraints.ResourceRules, func(rule admissionv1.NamedRuleWithOperations) bool {
			return slices.Contains(rule.APIGroups, resource.Group) && slices.Contains(rule.Resources, resource.Resource) &&
				slices.Contains(rule.Operations, admissionv1.Create) && slices.Contains(rule.Operations, admissionv1.Update)
		}), "anybody may set the held label of %s: add it to the policy -marks in policies.yaml of the chart, and run make manifests", resource.GroupResource())
	}
	job := jobs.Job{Object: jobstest.Parse(t, `{kind: Job, metadata: {name: held}}`), Parts: []jobs.Ref{jobstest.Ref("raycluster", "part")}}
	patch := f.Config.Cluster.HoldPatch(job, jobs.HeldSuspended, jobs.HeldForReclaim)
	annotations, _, err := unstructured.NestedMap(patch, "metadata", "annotations")
	require.NoError(t, err)
	require.NotEmpty(t, annotations)
	values := map[string]string{}
	for _, variable := range policy.Spec.Variables {
		values[variable.Name] = variable.Expression
	}
	assert.Equal(t, strconv.Quote(api.LabelHeld), values["label"])
	for key := range annotations {
		assert.Contains(t, values["notes"], "key.startsWith("+strconv.Quote(api.LabelHeld+"-")+")")
		assert.Contains(t, values["notes"], "key == "+strconv.Quote(api.AnnotationStopRequested))
		assert.True(t, strings.HasPrefix(key, api.LabelHeld+"-"), key)
	}
}
