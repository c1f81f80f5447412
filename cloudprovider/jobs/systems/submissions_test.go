package systems_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
)

// A job that was not submitted yet has to be taken for what it will be, so its pods are known as its pods, and start together as they will.
func TestThePodsOfAJobBeforeItIsSubmittedAreThoseThatItsSystemKnows(t *testing.T) {
	covered := sets.New[string]()
	for name, test := range map[string]struct {
		document string
		// pods are how many there are of each role, gangs how many of the workers and hosts start together, by part.
		pods, gangs string
	}{
		"Job":         {jobstest.IndexedJob, "4 worker", ""},
		"TrainingJob": {jobstest.TrainingJob, "4 worker, 1 launcher", ""},
		"PyTorchJob":  {jobstest.PyTorchJob, "2 worker, 2 host", ":4"},
		"TFJob":       {jobstest.TFJob, "4 worker, 3 host", ":7"},
		"JAXJob":      {jobstest.JAXJob, "2 worker, 1 host", ":3"},
		"MPIJob":      {jobstest.ElasticMPIJob, "4 worker, 1 launcher", ":2"},
		"MPIJob whose launcher trains, beside two workers at least": {
			strings.Replace(strings.Replace(jobstest.ElasticMPIJob, "  runPolicy", "  runLauncherAsWorker: true\n  runPolicy", 1), `"3"`, `"6"`, 1),
			"4 worker, 1 launcher", ":3"},
		"MPIJob of Arena": {jobstest.ArenaMPIJob, "2 worker, 1 launcher", ":2"},
		"JobSet":          {jobstest.JobSet, "6 worker", ":6"},
		"MPI JobSet":      {jobstest.JobSetOfMPITrainJob, "3 worker, 1 launcher", ":4"},
		"ElasticJob":      {jobstest.ElasticJob, "4 worker, 1 launcher", ""},
		"AITrainingJob":   {jobstest.AITrainingJob, "3 worker, 1 launcher", ""},
		"RayCluster":      {jobstest.RayCluster, "7 worker, 1 launcher", ""},
		"RayJob":          {jobstest.RayJob, "2 worker, 1 launcher", ""},
		"RayJob in a gang": {strings.Replace(jobstest.RayJob, "uid: uid-rj", "labels: {ray.io/gang-scheduling-enabled: 'true'}", 1),
			"2 worker, 1 launcher", ":1"},
		"LeaderWorkerSet": {jobstest.LeaderWorkerSet, "4 worker, 2 host", "0:3, 1:3"},
		"Volcano job":     {jobstest.VolcanoJob, "5 worker, 1 launcher", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			object := jobstest.Parse(t, test.document)
			object.SetResourceVersion("")
			found, err := jobs.NewSubmissions(f.Registry).Of(object)
			require.NoError(t, err)
			covered.Insert(found.Job.System)
			require.NoError(t, f.Dynamic.Tracker().Create(f.Resource(found.Job.System), object, "ml"))
			if found.Group != nil && found.Group.GetKind() == "RayCluster" {
				require.NoError(t, f.Dynamic.Tracker().Create(f.Resource("raycluster"), found.Group, "ml"))
			}
			roles, gangs := map[jobs.Role]int{}, map[string]int{}
			for _, pod := range found.Pods {
				member := f.Registry.Member(pod)
				if found.Job.System != "rayjob" {
					assert.Equal(t, found.Job.Ref, member.Ref, pod.Name)
				}
				assert.NotEmpty(t, pod.OwnerReferences[0].UID)
				roles[member.Role]++
				if ref, ok := jobs.NewStarts(f.Registry).JobOf(pod); ok {
					starts, err := jobs.NewStarts(f.Registry).GangsOf(t.Context(), ref)
					require.NoError(t, err)
					if part, size := starts.Of(pod); size > 0 {
						gangs[part] = size
					}
				}
			}
			var counts, sizes []string
			for _, role := range []jobs.Role{jobs.RoleWorker, jobs.RoleHost, jobs.RoleLauncher} {
				if roles[role] > 0 {
					counts = append(counts, fmt.Sprint(roles[role], " ", role))
				}
			}
			for _, part := range []string{"", "0", "1"} {
				if gangs[part] > 0 {
					sizes = append(sizes, fmt.Sprint(part, ":", gangs[part]))
				}
			}
			assert.Equal(t, test.pods, strings.Join(counts, ", "))
			assert.Equal(t, test.gangs, strings.Join(sizes, ", "))
		})
	}
	requireEverySystem(t, covered, "mpijob-v1")
}

func TestTheGroupOfAVolcanoJobSaysHowManyStartTogether(t *testing.T) {
	for change, least := range map[string]int64{"minAvailable: 4": 4, "minAvailable: 0": 6} {
		submissions := jobs.NewSubmissions(newFixture(t).Registry)
		found, err := submissions.Of(jobstest.Parse(t, strings.Replace(jobstest.VolcanoJob, "minAvailable: 4", change, 1)))
		require.NoError(t, err)
		assert.Equal(t, map[string]any{"minMember": least}, found.Group.Object["spec"])
		assert.Equal(t, found.Group.GetName(), found.Pods[0].Annotations["scheduling.k8s.io/group-name"])
	}
}

func TestASuspendedJobHasNoPods(t *testing.T) {
	object := jobstest.Parse(t, jobstest.JobSet)
	require.NoError(t, unstructured.SetNestedField(object.Object, true, "spec", "suspend"))
	found, err := jobs.NewSubmissions(newFixture(t).Registry).Of(object)
	require.NoError(t, err)
	assert.True(t, found.Job.Suspended)
	assert.Empty(t, found.Pods)
}

func TestTheVersionsThatAreReadAreKnown(t *testing.T) {
	submissions := jobs.NewSubmissions(newFixture(t).Registry)
	system, _ := submissions.SystemOf(schema.GroupVersionKind{Group: "kubeflow.org", Version: "v1", Kind: "PyTorchJob"})
	assert.Equal(t, "pytorchjob", system)
	system, others := submissions.SystemOf(schema.GroupVersionKind{Group: "kubeflow.org", Version: "v1beta1", Kind: "MPIJob"})
	assert.Empty(t, system)
	assert.ElementsMatch(t, []string{"v2beta1", "v1", "v1alpha1"}, others)
	system, others = submissions.SystemOf(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"})
	assert.Empty(t, system)
	assert.Empty(t, others)
}
