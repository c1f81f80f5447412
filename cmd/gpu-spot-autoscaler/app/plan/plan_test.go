package plan

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
	"gpu-spot-autoscaler/cloudprovider/jobs/systems"
	"gpu-spot-autoscaler/pricing"
)

const template = `template: {metadata: {labels: {a: b}}, spec: {containers: [{name: main, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}}`

// read returns what is submitted with the documents of the standard input.
func read(t *testing.T, documents string) (*Submitted, error) {
	t.Helper()
	found, err := ReadFiles([]string{Stdin}, strings.NewReader(documents), "research")
	if err != nil {
		return nil, err
	}
	f := jobstest.New(t, systems.All)
	return Read(found, f.Registry, f.Clock)
}

func TestObjectsOfKubernetesAndOfJobSystemsMakePods(t *testing.T) {
	for name, test := range map[string]struct {
		document string
		pods     int
		owner    string
	}{
		"Pod":            {`{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c}]}}`, 1, ""},
		"Deployment":     {`{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: 3, ` + template + `}}`, 3, "ReplicaSet"},
		"one replica":    {`{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {` + template + `}}`, 1, "ReplicaSet"},
		"ReplicaSet":     {`{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: a}, spec: {replicas: 2, ` + template + `}}`, 2, "ReplicaSet"},
		"batch Job":      {`{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {parallelism: 4, completions: 2, ` + template + `}}`, 2, "Job"},
		"generated name": {`{apiVersion: batch/v1, kind: Job, metadata: {generateName: a-}, spec: {` + template + `}}`, 1, "Job"},
		"a List":         {`{apiVersion: v1, kind: List, items: [{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {` + template + `}}]}`, 1, "Job"},
		"PyTorchJob":     {jobstest.PyTorchJob, 4, "PyTorchJob"},
		"JobSet":         {jobstest.JobSet, 6, "Job"},
		"Volcano job":    {jobstest.VolcanoJob, 6, "Job"},
		"RayJob":         {jobstest.RayJob, 3, "RayCluster"},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := read(t, "# a comment\n---\n"+test.document+"\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}\n")
			require.NoError(t, err)
			pods := found.Pods()
			require.Len(t, pods, test.pods)
			for _, pod := range pods {
				assert.Equal(t, "research", pod.Namespace)
				assert.True(t, IsPlanned(pod))
				assert.Equal(t, corev1.PodReasonUnschedulable, pod.Status.Conditions[0].Reason)
				if test.owner != "" {
					assert.Equal(t, test.owner, pod.OwnerReferences[0].Kind)
				}
				for name, limit := range pod.Spec.Containers[0].Resources.Limits {
					assert.Equal(t, limit, pod.Spec.Containers[0].Resources.Requests[name], "as the API server has it")
				}
			}
		})
	}
}

func TestWhatIsWrongIsNamedWithFileDocumentAndField(t *testing.T) {
	for document, want := range map[string]string{
		"":                                 "standard input: there is no object",
		"{apiVersion: v1, kind: Pod":       "standard input, document 1: ",
		"just text":                        "standard input, document 1: is no object",
		"{kind: Pod, metadata: {name: a}}": "standard input, document 1: apiVersion: is missing",
		"{apiVersion: v1, kind: Pod, metadata: {}}":                                                                        "metadata.name: is missing",
		"{apiVersion: v1, kind: Pod, metadata: {name: A_b}}":                                                               "metadata.name: a lowercase RFC 1123",
		"{apiVersion: v1, kind: Pod, metadata: {name: a}, kind: Pod}":                                                      `key "kind" already set`,
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}":                                                           "standard input: no object makes pods",
		"{apiVersion: v1, kind: Pod, metadata: {name: a}}":                                                                 "standard input, document 1 (Pod research/a): spec.containers: is missing",
		"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {container: []}}":                                          `unknown field "spec.container"`,
		"{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: many}}":                             "spec.replicas: is string, not int32",
		"{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}":                                                     "spec.template.spec.containers: is missing",
		"{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: a}}":                                                    "kind: it is not known which pods a StatefulSet.apps makes",
		"{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: a}}":                                 "Plan the JobSet",
		"{apiVersion: kubeflow.org/v1beta1, kind: PyTorchJob, metadata: {name: a}}":                                        "apiVersion: v1beta1 of PyTorchJob.kubeflow.org is not read, only v1",
		"{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: a}}":                                             "document 1 (PyTorchJob research/a): pytorchjob/research/a: spec.pytorchReplicaSpecs: is missing",
		"{apiVersion: v1, kind: Secret, metadata: {name: a}}\n---\n{apiVersion: batch/v1, kind: Job, metadata: {name: a}}": "document 2 (Job research/a): job/research/a: spec: is missing",
	} {
		_, err := read(t, document)
		assert.ErrorContains(t, err, want, document)
	}
	_, err := ReadFiles([]string{filepath.Join(t.TempDir(), "none.yaml")}, nil, "default")
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestAFileIsNamedByItsName(t *testing.T) {
	file := filepath.Join(t.TempDir(), "job.yaml")
	require.NoError(t, os.WriteFile(file, []byte("---\nkind: Pod\n"), 0o600))
	_, err := ReadFiles([]string{file}, nil, "default")
	assert.ErrorContains(t, err, "job.yaml, document 1: apiVersion: is missing")
}

func TestASuspendedJobAndOneThatAsksForNothingSayWhyTheyHaveNoPods(t *testing.T) {
	for document, want := range map[string]string{
		`{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {suspend: true, ` + template + `}}`:     "suspended",
		`{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {parallelism: 0, ` + template + `}}`:    "asks for no pods",
		`{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeName: node-1, containers: [{name: c}]}}`: "names its node",
		`{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: 0, ` + template + `}}`: "asks for no pods",
	} {
		found, err := read(t, document)
		require.NoError(t, err)
		assert.Empty(t, found.Pods())
		assert.Contains(t, found.Jobs[0].Nothing, want)
	}
}

func TestAJobInAQueueOfKueueIsPlannedAsIfItWereAdmitted(t *testing.T) {
	found, err := read(t, `{apiVersion: batch/v1, kind: Job, metadata: {name: a, labels: {kueue.x-k8s.io/queue-name: q}}, spec: {`+template+`}}`)
	require.NoError(t, err)
	assert.Len(t, found.Pods(), 1)
	assert.Contains(t, strings.Join(found.Notes, " "), "waits for Kueue first")
}

func TestObjectsOfTheFilesAreReadBeforeThoseOfTheCluster(t *testing.T) {
	f := jobstest.New(t, systems.All, jobstest.PyTorchJob)
	resource := f.Resource("pytorchjob")
	found, err := read(t, strings.Replace(jobstest.JAXJob, "metadata: {", "metadata: {namespace: ml, ", 1))
	require.NoError(t, err)
	client := found.Dynamic(f.Dynamic)
	_, err = client.Resource(resource).Namespace("ml").Get(t.Context(), "bert", metav1.GetOptions{})
	require.NoError(t, err, "of the cluster")
	job := found.Jobs[0].Object
	read, err := client.Resource(schema.GroupVersionResource{Group: "kubeflow.org", Version: "v1", Resource: "jaxjobs"}).Namespace(job.GetNamespace()).Get(t.Context(), job.GetName(), metav1.GetOptions{})
	require.NoError(t, err, "of the file")
	assert.Equal(t, job.Object["spec"], read.Object["spec"])
	_, err = client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace("ml").Get(t.Context(), found.Pods()[0].Name, metav1.GetOptions{})
	assert.NoError(t, err, "a pod")
	var none *Submitted
	assert.Equal(t, f.Dynamic, none.Dynamic(f.Dynamic))
}

func TestNothingIsBoughtOfWhatThePlanIsWithout(t *testing.T) {
	all := func(string, []*corev1.Pod) bool { return true }
	allows := (&Submitted{}).Without("a").Allows(all)
	assert.False(t, allows("a", nil))
	assert.True(t, allows("b", nil))
	assert.True(t, (*Submitted)(nil).Allows(all)("a", nil))
}

func TestTheSettingsAreThoseOfTheDeployment(t *testing.T) {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "gpu"}}
	deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "sidecar", Args: []string{"--no"}}, {
		Name: "autoscaler", Command: []string{"/gpu-spot-autoscaler", "--v=1"}, Args: []string{"--cluster-name=$(CLUSTER)"},
		Env: []corev1.EnvVar{{Name: "CLUSTER", Value: "c"}, {Name: "ALIBABA_CLOUD_REGION_ID", Value: "cn-hangzhou"}},
	}}
	client := fake.NewClientset(deployment)
	arguments, err := ArgumentsOf(t.Context(), client, "kube-system", "gpu")
	require.NoError(t, err)
	assert.Equal(t, []string{"--namespace=kube-system", "--region=cn-hangzhou", "--v=1", "--cluster-name=c"}, arguments)
	_, err = ArgumentsOf(t.Context(), client, "kube-system", "other")
	assert.ErrorContains(t, err, "read the settings of the autoscaler from its Deployment kube-system/other")
	deployment.Spec.Template.Spec.Containers[1].Args = []string{"serve", "--serve-address=:8087"}
	_, err = ArgumentsOf(t.Context(), fake.NewClientset(deployment), "kube-system", "gpu")
	assert.ErrorContains(t, err, "serves another Cluster Autoscaler")
}

func TestAGangIsLostWithAnyOfItsInstances(t *testing.T) {
	items := []Item{{Count: 4, Price: ptr.To(2.), LifeHours: ptr.To(40.)}, {Count: 1, Price: ptr.To(10.)}}
	terms := pricing.Terms{Restart: 3600e9}
	alone, gang := NewPurchase(items, 10*3600e9, false, terms), NewPurchase(items, 10*3600e9, true, terms)
	assert.InDelta(t, 18, *alone.PricePerHour, 1e-9)
	assert.InDelta(t, 4*2*10*40./39+100, *alone.CostToFinish, 1e-6)
	assert.InDelta(t, 4*2*10*10./9+100, *gang.CostToFinish, 1e-6, "one of four is lost every ten hours")
	assert.Nil(t, NewPurchase(items, 0, false, terms).CostToFinish)
	items[1].Price = nil
	assert.Nil(t, NewPurchase(items, 10, false, terms).PricePerHour)
}

func TestPodsGetWhatAdmissionAddsToOthersOfTheSameSpecAndNothingElseOfThose(t *testing.T) {
	const worker = `{metadata: {annotations: {gpu-spot.autoscaling/on-demand-after: never}}, spec: {containers: [{name: pytorch, image: torch}]}}`
	const master = `{spec: {containers: [{name: pytorch, image: torch}]}}`
	found, err := read(t, `{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: a}, spec: {pytorchReplicaSpecs: {Worker: {replicas: 1, template: `+worker+`}, Master: {replicas: 1, template: `+master+`}}}}`)
	require.NoError(t, err)
	client := fake.NewClientset()
	client.PrependReactor("create", "selfsubjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}, nil
	})
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		pod := action.(clienttesting.CreateActionImpl).Object.(*corev1.Pod).DeepCopy()
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "added", "yes")
		return true, pod, nil
	})
	require.NoError(t, found.Admit(t.Context(), client))
	require.Len(t, found.Pods(), 2)
	var never int
	for _, pod := range found.Pods() {
		assert.Equal(t, "yes", pod.Annotations["added"])
		if pod.Annotations["gpu-spot.autoscaling/on-demand-after"] == "never" {
			never++
		}
	}
	assert.Equal(t, 1, never, "the worker alone")
}

func TestPodsAreAsTheAPIServerAdmitsThem(t *testing.T) {
	job := `{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {parallelism: 3, ` + template + `}}`
	refused := apierrors.NewForbidden(corev1.Resource("pods"), "planned-x", errors.New("exceeded quota: gpus"))
	for name, test := range map[string]struct {
		allowed       bool
		err           error
		pods, creates int
		priority      *int32
		nothing, note string
	}{
		"admitted":                         {allowed: true, pods: 3, creates: 1, priority: ptr.To[int32](7)},
		"refused":                          {allowed: true, err: refused, creates: 1, nothing: "exceeded quota: gpus"},
		"a webhook that knows no dry runs": {allowed: true, err: apierrors.NewBadRequest("does not support dry run"), pods: 3, creates: 1, note: "does not support dry run"},
		"who may create no pods":           {pods: 3, note: "You may not create pods in namespace research"},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := read(t, job)
			require.NoError(t, err)
			client, creates := fake.NewClientset(), 0
			client.PrependReactor("create", "selfsubjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: test.allowed}}, nil
			})
			client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				creates++
				create := action.(clienttesting.CreateActionImpl)
				assert.Equal(t, []string{metav1.DryRunAll}, create.CreateOptions.DryRun)
				pod := create.Object.(*corev1.Pod).DeepCopy()
				pod.Spec.Priority = test.priority
				return true, pod, test.err
			})
			require.NoError(t, found.Admit(t.Context(), client))
			assert.Equal(t, test.creates, creates, "one for all that are alike")
			require.Len(t, found.Pods(), test.pods)
			for _, pod := range found.Pods() {
				assert.Equal(t, test.priority, pod.Spec.Priority)
				assert.NotEmpty(t, pod.OwnerReferences)
			}
			assert.Contains(t, found.Jobs[0].Nothing, test.nothing)
			assert.Contains(t, strings.Join(found.Notes, " "), test.note)
		})
	}
}
