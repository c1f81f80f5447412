package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/util/taints"
	"sigs.k8s.io/yaml"

	"gpu-spot-autoscaler/test/cluster"
	"gpu-spot-autoscaler/test/operators"
	"gpu-spot-autoscaler/test/rig"
	"gpu-spot-autoscaler/test/standin"
)

var (
	podResource       = corev1.SchemeGroupVersion.WithResource("pods")
	nodeResource      = corev1.SchemeGroupVersion.WithResource("nodes")
	configMapResource = corev1.SchemeGroupVersion.WithResource("configmaps")
	leaseResource     = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	scaleIns          = standin.TrainingJobs.GroupVersion().WithResource("scaleins")
	scaleOuts         = standin.TrainingJobs.GroupVersion().WithResource("scaleouts")
)

// attempt is a change that somebody with the autoscaler's token asks for.
type attempt struct {
	of              schema.GroupVersionResource
	namespace, name string
	subresource     []string
	// patch is a merge patch, as YAML, a strategic one of pods. Where it is empty the object is deleted.
	patch string
	// create is the object to make instead.
	create string
}

// tryAttempt asks for it, as a dry run: what it comes upon stays as it is.
func tryAttempt(s *jobSuite, as dynamic.Interface, a attempt) error {
	s.t.Helper()
	var objects dynamic.ResourceInterface = as.Resource(a.of)
	if a.namespace != "" {
		objects = as.Resource(a.of).Namespace(a.namespace)
	}
	dryRun := []string{metav1.DryRunAll}
	switch {
	case a.create != "":
		object := &unstructured.Unstructured{}
		require.NoError(s.t, yaml.Unmarshal([]byte(a.create), &object.Object))
		_, err := objects.Create(s.t.Context(), object, metav1.CreateOptions{DryRun: dryRun})
		return err
	case a.patch != "":
		body, err := yaml.YAMLToJSON([]byte(a.patch))
		require.NoError(s.t, err)
		kind := types.MergePatchType
		if a.of == podResource {
			kind = types.StrategicMergePatchType
		}
		_, err = objects.Patch(s.t.Context(), a.name, kind, body, metav1.PatchOptions{DryRun: dryRun}, a.subresource...)
		return err
	default:
		return objects.Delete(s.t.Context(), a.name, metav1.DeleteOptions{DryRun: dryRun})
	}
}

// requireDenied says that the admission policies refuse it, and not a role or the API server's own rules.
func requireDenied(s *jobSuite, as dynamic.Interface, what string, a attempt) {
	s.t.Helper()
	err := tryAttempt(s, as, a)
	if assert.Error(s.t, err, what) {
		assert.Regexp(s.t, `ValidatingAdmissionPolicy '[\w-]+' with binding '[\w-]+' denied request: the autoscaler `, err.Error(), what)
	}
}

// stolenTokenClient is a client with the autoscaler's token.
func stolenTokenClient(s *suite) dynamic.Interface {
	s.t.Helper()
	client, err := dynamic.NewForConfig(autoscalerConfig(s))
	require.NoError(s.t, err)
	return client
}

func TestStolenTokenOfTheAutoscalerTakesOverNoPodAndNoNode(t *testing.T) {
	s := newJobSuiteWithoutAutoscaler(t, newWorld())
	privileged := rig.GPUPod("privileged", 0)
	privileged.Namespace = rig.Namespace
	privileged.Annotations = map[string]string{"theirs": "1"}
	privileged.Spec.HostPID = true
	s.Submit(t, privileged)
	capacity := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourcePods: resource.MustParse("16")}
	for name, change := range map[string]func(*corev1.Node){
		"worker":  func(node *corev1.Node) { node.Labels["theirs"] = "1" },
		"newer":   func(node *corev1.Node) { node.Spec.ProviderID = "alicloud://" + node.Spec.ProviderID },
		"control": func(node *corev1.Node) { node.Labels["node-role.kubernetes.io/control-plane"] = "" },
		"foreign": func(node *corev1.Node) { node.Spec.ProviderID = "cn-shanghai.i-foreign" },
		"longer":  func(node *corev1.Node) { node.Spec.ProviderID = s.World.Region + "-2.i-longer" },
		"nobodys": func(node *corev1.Node) { node.Spec.ProviderID = "" },
		"large": func(node *corev1.Node) { // expressions may cost only so much
			for i := range 250 {
				node.Labels[fmt.Sprintf("example.org/theirs-%d", i)] = "1"
				metav1.SetMetaDataAnnotation(&node.ObjectMeta, fmt.Sprintf("example.org/theirs-%d", i), strings.Repeat("1", 900))
				node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: fmt.Sprintf("example.org/theirs-%d", i), Effect: corev1.TaintEffectNoSchedule})
			}
		},
	} {
		node := cluster.NewFakeNode(name, capacity)
		node.Spec.ProviderID = s.World.Region + ".i-" + name
		change(node)
		require.NoError(t, s.Cluster.CreateNodes(t.Context(), []*corev1.Node{node}))
	}
	rig.Eventually(t, soon, "no Node has a taint that the merge patches below would take from it", func(ctx context.Context) (bool, error) {
		nodes, err := s.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		notReady := &corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
		return err == nil && !slices.ContainsFunc(nodes.Items, func(node corev1.Node) bool {
			return taints.TaintExists(node.Spec.Taints, notReady)
		}), err
	})
	patchObject(s, nodeResource, "", "system", `{spec: {taints: [{key: theirs, effect: NoSchedule}]}}`)
	pod := func(patch string) attempt {
		return attempt{of: podResource, namespace: rig.Namespace, name: privileged.Name, patch: patch}
	}
	node := func(name, patch string) attempt { return attempt{of: nodeResource, name: name, patch: patch} }
	const mark = `{metadata: {labels: {gpu-spot.autoscaling/reclaiming: "true"}, annotations: {gpu-spot.autoscaling/reclaim-deadline: "2026-01-01T00:00:00Z"}},
      spec: {unschedulable: true, taints: [{key: status-taint.cluster-autoscaler.kubernetes.io/spot-reclaim, value: "1", effect: NoSchedule}]}}`

	thief := stolenTokenClient(s.suite)
	for what, a := range map[string]attempt{
		"image of a privileged pod":   pod(`{spec: {containers: [{name: train, image: theirs}]}}`),
		"lifetime of a pod":           pod(`{spec: {activeDeadlineSeconds: 1}}`),
		"label of a pod":              pod(`{metadata: {labels: {app: other}}}`),
		"own label on a pod":          pod(`{metadata: {labels: {gpu-spot.autoscaling/keep-off-reclaiming: "true"}}}`),
		"annotation of a pod":         pod(`{metadata: {annotations: {theirs: "2"}}}`),
		"annotation of a pod taken":   pod(`{metadata: {annotations: {theirs: null}}}`),
		"finalizer of a pod":          pod(`{metadata: {finalizers: [example.org/theirs]}}`),
		"owner of a pod":              pod(`{metadata: {ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: a, uid: b}]}}`),
		"control-plane label":         node("worker", `{metadata: {labels: {node-role.kubernetes.io/control-plane: ""}}}`),
		"foreign label":               node("worker", `{metadata: {labels: {theirs: "2"}}}`),
		"foreign label taken":         node("worker", `{metadata: {labels: {theirs: null}}}`),
		"foreign annotation":          node("worker", `{metadata: {annotations: {kwok.x-k8s.io/node: real}}}`),
		"finalizer of a Node":         node("worker", `{metadata: {finalizers: [example.org/theirs]}}`),
		"pod network of a Node":       node("worker", `{spec: {podCIDR: 10.0.0.0/8, podCIDRs: [10.0.0.0/8]}}`),
		"taint that evicts":           node("worker", `{spec: {taints: [{key: ToBeDeletedByClusterAutoscaler, value: "1", effect: NoExecute}]}}`),
		"taint of others":             node("worker", `{spec: {taints: [{key: node.kubernetes.io/out-of-service, value: nodeshutdown, effect: NoExecute}]}}`),
		"control-plane Node":          node("control", mark),
		"control-plane Node deleted":  node("control", ""),
		"Node of another region":      node("foreign", mark),
		"Node of another region gone": node("foreign", ""),
		"Node of a region like ours":  node("longer", mark),
		"Node that is no instance":    node("nobodys", mark),
		"ConfigMap of a pool":         {of: configMapResource, namespace: rig.Namespace, create: `{apiVersion: v1, kind: ConfigMap, metadata: {name: pool, labels: {gpu-spot.autoscaling/pool: asg-1}}}`},
		"pool in the status":          {of: configMapResource, namespace: rig.Namespace, create: `{apiVersion: v1, kind: ConfigMap, metadata: {name: cluster-autoscaler-status, labels: {gpu-spot.autoscaling/pool: asg-1}}}`},
		"Lease of another's leader":   {of: leaseResource, namespace: rig.Namespace, create: `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: other}}`},
		"taint of others lifted":      node("system", `{spec: {taints: null}}`),
	} {
		requireDenied(s, thief, what, a)
	}
	for what, a := range map[string]attempt{
		"warning of a pod":                    pod(`{metadata: {annotations: {gpu-spot.autoscaling/reclaim-deadline: "2026-01-01T00:00:00Z"}}}`),
		"mark of a Node":                      node("worker", mark),
		"mark of a Node of the newer form":    node("newer", mark),
		"mark of a Node full of others":       node("large", `{metadata: {labels: {gpu-spot.autoscaling/reclaiming: "true"}}, spec: {unschedulable: true}}`),
		"taints beside others'":               node("system", `{spec: {taints: [{key: theirs, effect: NoSchedule}, {key: DeletionCandidateOfClusterAutoscaler, value: "1", effect: PreferNoSchedule}]}}`),
		"cordon and the taint that goes with": node("worker", `{spec: {unschedulable: true, taints: [{key: node.kubernetes.io/unschedulable, effect: NoSchedule}]}}`),
		"Node deleted":                        node("worker", ""),
		"own status":                          {of: configMapResource, namespace: rig.Namespace, create: `{apiVersion: v1, kind: ConfigMap, metadata: {name: cluster-autoscaler-status}}`},
		"own Lease":                           {of: leaseResource, namespace: rig.Namespace, create: `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: gpu-spot-autoscaler}}`},
	} {
		assert.NoError(t, tryAttempt(s, thief, a), what)
	}
	err := autoscalerClient(s.suite).PolicyV1().Evictions(rig.Namespace).Evict(t.Context(), &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: privileged.Name, Namespace: rig.Namespace},
		DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
	})
	assert.NoError(t, err, "eviction")
}

func TestStolenTokenOfTheAutoscalerTakesOnlyTheFinalizerOfItsJobOffAPodThatHasNotEnded(t *testing.T) {
	s := newJobSuiteWithoutAutoscaler(t, newWorld())
	require.NoError(t, s.Cluster.Pause(t.Context(), cluster.ControllerManager), "it takes the finalizer off pods without a Job")
	t.Cleanup(func() { assert.NoError(t, s.Cluster.Resume(context.Background(), cluster.ControllerManager)) })
	running, ended := rig.GPUPod("running", 0), rig.GPUPod("ended", 0)
	for _, pod := range []*corev1.Pod{running, ended} {
		pod.Finalizers = []string{"example.org/kept", batchv1.JobTrackingFinalizer}
		pod.Spec.SchedulerName = "nobody" // on a node the pod that ended would be said to run
	}
	s.Submit(t, running, ended)
	_, err := s.Client.CoreV1().Pods(ended.Namespace).Patch(
		t.Context(), ended.Name, types.MergePatchType, []byte(`{"status": {"phase": "Succeeded"}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	without := func(pod *corev1.Pod, finalizers string) attempt {
		return attempt{of: podResource, namespace: pod.Namespace, name: pod.Name, patch: `{metadata: {$deleteFromPrimitiveList/finalizers: [` + finalizers + `]}}`}
	}
	thief := stolenTokenClient(s.suite)
	requireDenied(s, thief, "success of a pod", without(ended, batchv1.JobTrackingFinalizer))
	requireDenied(s, thief, "all finalizers", without(running, "example.org/kept, "+batchv1.JobTrackingFinalizer))
	requireDenied(s, thief, "finalizer of others", without(running, "example.org/kept"))
	assert.NoError(t, tryAttempt(s, thief, without(running, batchv1.JobTrackingFinalizer)))
	for _, pod := range []*corev1.Pod{running, ended} {
		patchObject(s, podResource, pod.Namespace, pod.Name, `{metadata: {finalizers: null}}`)
	}
}

func TestStolenTokenOfTheAutoscalerRunsNothingInTheJobsOfOthers(t *testing.T) {
	s := newJobSuiteWithoutAutoscaler(t, newWorld())
	for _, system := range []operators.System{operators.MPIOperator, operators.JobSet, operators.Trainer, operators.KubeRay} {
		require.NoError(t, operators.Install(t.Context(), system, s.Cluster))
	}
	for _, system := range []func(*rest.Config) (*standin.Operator, error){standin.NewETOperator, standin.NewVolcano} {
		operator, err := system(s.Cluster.AdminConfig())
		require.NoError(t, err)
		require.NoError(t, operator.Install(t.Context(), s.Cluster))
	}
	const template = `template: {spec: {restartPolicy: Never, containers: [{name: main, image: train}]}}`
	jobs := []struct {
		of                       schema.GroupVersionResource
		kind, spec               string
		template, allowed, field string // patches of the spec
	}{
		{batchJobs, "Job", `{parallelism: 2, ` + template + `}`, `{parallelism: 3}`, `{suspend: true}`, ""},
		{operators.MPIJobs, "MPIJob", `{runPolicy: {backoffLimit: 1}, mpiReplicaSpecs: {Worker: {replicas: 2, ` + template + `}}}`,
			`{mpiReplicaSpecs: {Worker: {replicas: 3}}}`, `{runPolicy: {suspend: true}}`, `{runPolicy: {backoffLimit: 9}}`},
		{standin.TrainingJobs, "TrainingJob", `{etReplicaSpecs: {worker: {replicas: 2, ` + template + `}, launcher: {` + template + `}}}`,
			`{etReplicaSpecs: {worker: {template: {spec: {containers: [{name: main, image: theirs}]}}}}}`, `{etReplicaSpecs: {worker: {replicas: 1}}}`,
			`{etReplicaSpecs: {launcher: {restartPolicy: Never}}}`},
		{operators.JobSets, "JobSet", `{replicatedJobs: [{name: w, template: {spec: {` + template + `}}}]}`, `{replicatedJobs: []}`, `{suspend: true}`, `{failurePolicy: {maxRestarts: 1}}`},
		{operators.TrainJobs, "TrainJob", `{runtimeRef: {name: torch}, trainer: {image: train}}`, `{trainer: {image: theirs}}`, `{suspend: true}`, `{podTemplateOverrides: []}`},
		{operators.RayClusters, "RayCluster", `{headGroupSpec: {` + template + `}}`, `{headGroupSpec: {template: {spec: {containers: [{name: main, image: theirs}]}}}}`, `{suspend: true}`, `{workerGroupSpecs: []}`},
		{operators.RayClusters.GroupVersion().WithResource("rayjobs"), "RayJob", `{entrypoint: train, rayClusterSpec: {headGroupSpec: {` + template + `}}}`, `{entrypoint: theirs}`, `{suspend: true}`, ""},
		{standin.VolcanoJobs, "Job", `{tasks: [{name: w, replicas: 2, ` + template + `}]}`, `{tasks: [{name: w, replicas: 3, ` + template + `}]}`, "", `{minAvailable: 1}`},
	}
	thief := stolenTokenClient(s.suite)
	for _, job := range jobs {
		s.submit(`{apiVersion: ` + job.of.GroupVersion().String() + `, kind: ` + job.kind + `, metadata: {name: theirs, labels: {theirs: "1"}}, spec: ` + job.spec + `}`)
		patch := func(patch string) attempt {
			return attempt{of: job.of, namespace: metav1.NamespaceDefault, name: "theirs", patch: patch}
		}
		what := " of " + job.of.GroupResource().String()
		requireDenied(s, thief, "template"+what, patch(`{spec: `+job.template+`}`))
		requireDenied(s, thief, "label"+what, patch(`{metadata: {labels: {theirs: "2"}}}`))
		requireDenied(s, thief, "labels taken off"+what, patch(`{metadata: {labels: {theirs: null}}}`))
		requireDenied(s, thief, "queue"+what, patch(`{metadata: {labels: {kueue.x-k8s.io/queue-name: theirs}}}`))
		requireDenied(s, thief, "owner"+what, patch(`{metadata: {ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: a, uid: b}]}}`))
		requireDenied(s, thief, "annotation"+what, patch(`{metadata: {annotations: {theirs: "1"}}}`))
		if job.field != "" {
			requireDenied(s, thief, "other field"+what, patch(`{spec: `+job.field+`}`))
		}
		if job.allowed != "" {
			assert.NoError(t, tryAttempt(s, thief, patch(`{metadata: {labels: {gpu-spot.autoscaling/held: suspended}}, spec: `+job.allowed+`}`)), "field%s", what)
		}
		assert.NoError(t, tryAttempt(s, thief, patch(`{metadata: {annotations: {gpu-spot.autoscaling/held-reason: reclaim}}}`)), "mark%s", what)
	}
	grows := func(patch string) attempt {
		return attempt{of: operators.MPIJobs, namespace: metav1.NamespaceDefault, name: "theirs", patch: patch}
	}
	requireDenied(s, thief, "growth that nobody wants", grows(`{metadata: {labels: {gpu-spot.autoscaling/grow: buy}}}`))
	patchObject(s, operators.MPIJobs, metav1.NamespaceDefault, "theirs", `{metadata: {labels: {gpu-spot.autoscaling/grow: free}}}`)
	requireDenied(s, thief, "another growth", grows(`{metadata: {labels: {gpu-spot.autoscaling/grow: buy}}}`))
	requireDenied(s, thief, "fewer workers", grows(`{spec: {mpiReplicaSpecs: {Worker: {replicas: 1}}}}`))
	requireDenied(s, thief, "another type of workers", grows(`{spec: {mpiReplicaSpecs: {worker: {replicas: 3, `+template+`}}}}`))
	requireDenied(s, thief, "another image of more workers", grows(`{spec: {mpiReplicaSpecs: {Worker: {replicas: 3, template: {spec: {containers: [{name: main, image: theirs}]}}}}}}`))
	assert.NoError(t, tryAttempt(s, thief, grows(`{spec: {mpiReplicaSpecs: {Worker: {replicas: 3}}}}`)), "more workers")
	status := func(patch string) attempt {
		return attempt{of: standin.TrainingJobs, namespace: metav1.NamespaceDefault, name: "theirs", subresource: []string{"status"}, patch: `{status: {replicaStatuses: {Worker: {active: null}}, restartCount: 0, conditions: [], ` + patch + `}}`}
	}
	scaler := func(of schema.GroupVersionResource, kind, spec string) attempt {
		return attempt{of: of, namespace: metav1.NamespaceDefault, create: `{apiVersion: kai.alibabacloud.com/v1alpha1, kind: ` + kind + `, metadata: {name: new}, spec: ` + spec + `}`}
	}
	command := func(action, kind string) attempt {
		return attempt{of: standin.VolcanoCommands, namespace: metav1.NamespaceDefault, create: `{apiVersion: bus.volcano.sh/v1alpha1, kind: Command,
          metadata: {name: new}, action: ` + action + `, target: {apiVersion: batch.volcano.sh/v1alpha1, kind: ` + kind + `, name: theirs, uid: u}}`}
	}
	for what, a := range map[string]attempt{
		"workers of a TrainingJob":  status(`phase: Created, targetWorkers: ["'; theirs; '"]`),
		"phase of a TrainingJob":    status(`phase: Succeeded`),
		"start of a TrainingJob":    status(`phase: Created, startTime: "2026-01-01T00:00:00Z"`),
		"script of a ScaleIn":       scaler(scaleIns, "ScaleIn", `{selector: {name: theirs}, script: /theirs.sh, toDelete: {podNames: [a]}}`),
		"environment of a ScaleOut": scaler(scaleOuts, "ScaleOut", `{selector: {name: theirs}, env: [{name: A, value: $(theirs)}], toAdd: {count: 1}}`),
		"ScaleIn that never goes": {of: scaleIns, namespace: metav1.NamespaceDefault, create: `{apiVersion: kai.alibabacloud.com/v1alpha1, kind: ScaleIn,
          metadata: {name: new, finalizers: [example.org/theirs]}, spec: {selector: {name: theirs}, toDelete: {podNames: [a]}}}`},
		"any workers of a TrainingJob": scaler(scaleIns, "ScaleIn", `{selector: {name: theirs}, toDelete: {count: 2}}`),
		"end of a Volcano job":         command("TerminateJob", "Job"),
		"restart of a Volcano job":     command("RestartJob", "Job"),
		"closing of a queue":           command("CloseQueue", "Queue"),
		"abortion of a queue":          command("AbortJob", "Queue"),
	} {
		requireDenied(s, thief, what, a)
	}
	for what, a := range map[string]attempt{
		"new life of a TrainingJob": status(`phase: Created, targetWorkers: null`),
		"ScaleIn of pods":           scaler(scaleIns, "ScaleIn", `{selector: {name: theirs}, toDelete: {podNames: [a]}}`),
		"ScaleOut by a number":      scaler(scaleOuts, "ScaleOut", `{selector: {name: theirs}, timeout: 300, toAdd: {count: 1}}`),
		"abortion of a Volcano job": command("AbortJob", "Job"),
		"resumption of one":         command("ResumeJob", "Job"),
	} {
		assert.NoError(t, tryAttempt(s, thief, a), what)
	}
}

// The API server checks expressions against the types of what they are for, where it knows them.
func TestAdmissionPoliciesAreOfTheTypesOfWhatTheyAreFor(t *testing.T) {
	s := newJobSuiteWithoutAutoscaler(t, newWorld())
	policies := s.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	s.eventually("all are checked", func(ctx context.Context) (bool, error) {
		list, err := policies.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		checked := 0
		for _, policy := range list.Items {
			if policy.Status.ObservedGeneration < policy.Generation || policy.Status.TypeChecking == nil {
				return false, nil
			}
			if strings.HasPrefix(policy.Name, rig.ServiceAccount) {
				checked++
			}
			for _, warning := range policy.Status.TypeChecking.ExpressionWarnings {
				assert.Fail(t, policy.Name, "%s: %s", warning.FieldRef, warning.Warning)
			}
		}
		return checked > 0, nil
	})
}

// patchObject is a merge patch by the administrator.
func patchObject(s *jobSuite, of schema.GroupVersionResource, namespace, name, patch string) {
	s.t.Helper()
	body, err := yaml.YAMLToJSON([]byte(patch))
	require.NoError(s.t, err)
	_, err = s.objects.Resource(of).Namespace(namespace).Patch(s.t.Context(), name, types.MergePatchType, body, metav1.PatchOptions{})
	require.NoError(s.t, err)
}
