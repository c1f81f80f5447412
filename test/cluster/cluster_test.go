package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
)

const patience = time.Minute // for what takes seconds on a quiet machine

func TestCluster(t *testing.T) {
	auditLog := filepath.Join(t.TempDir(), "audit.log")
	c := StartForTestWith(t, Options{AuditLog: auditLog, AuditUsers: []string{"system:serviceaccount:default:audited"}})
	t.Logf("started in %s", c.StartTime())
	tests := map[string]func(*testing.T, *Cluster, kubernetes.Interface){
		"the API server is of the version that is asked for": testVersion,
		"a pod is scheduled to a fake Node and runs":         testPodRuns,
		"a fake Node keeps what it came with":                testNodeKeepsItsOwn,
		"a Job completes after run-for":                      testJobCompletes,
		"a deleted pod is gone after its short grace period": testPodIsDeleted,
		"a deleted pod takes term-for":                       testPodTakesTermFor,
		"a ServiceAccount may do what its Role says":         testServiceAccount,
		"manifests are applied in order":                     testApplyYAML,
		"what audited users ask is recorded, and no more": func(t *testing.T, c *Cluster, client kubernetes.Interface) {
			testAudit(t, c, client, auditLog)
		},
		"nodes and pods are created in bulk": testBulk,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, c, clientOf(t, c))
		})
	}
}

func testVersion(t *testing.T, _ *Cluster, client kubernetes.Interface) {
	version, err := client.Discovery().ServerVersion()
	require.NoError(t, err)
	require.Equal(t, "v"+Version(), version.GitVersion)
	createNode(t, client, "version", nil)
	node := awaitNode(t, client, "version", func(n *corev1.Node) bool { return nodeReady(n) == corev1.ConditionTrue })
	require.Equal(t, version.GitVersion, node.Status.NodeInfo.KubeletVersion)
}

func testPodRuns(t *testing.T, _ *Cluster, client kubernetes.Interface) {
	createNode(t, client, "runs", nil)
	pod := createPod(t, client, "runs", "runs", nil)
	running := awaitPod(t, client, pod, podReady)
	require.Equal(t, "runs", running.Spec.NodeName)
	require.NotEmpty(t, running.Status.PodIP)
	require.NotNil(t, running.Status.StartTime)
	require.True(t, running.Status.ContainerStatuses[0].Ready)
}

func testNodeKeepsItsOwn(t *testing.T, _ *Cluster, client kubernetes.Interface) {
	taint := corev1.Taint{Key: "test/own", Value: "1", Effect: corev1.TaintEffectNoSchedule}
	made := createNode(t, client, "own", func(n *corev1.Node) {
		n.Labels["test/own"] = "1"
		n.Spec.Taints = []corev1.Taint{taint}
		n.Status.Capacity["nvidia.com/gpu"] = resource.MustParse("8")
		n.Status.NodeInfo.KubeletVersion = "v1.32.0-aliyun.1"
	})
	ready := awaitNode(t, client, "own", func(n *corev1.Node) bool { return nodeReady(n) == corev1.ConditionTrue })
	require.Subset(t, ready.Labels, made.Labels) // labelReconcileInfo of Kubernetes' node_lifecycle_controller.go adds two more
	require.Contains(t, ready.Spec.Taints, taint)
	require.Equal(t, made.Status.Capacity, ready.Status.Capacity)
	require.Equal(t, made.Status.Allocatable, ready.Status.Allocatable)
	require.NotContains(t, ready.Status.Allocatable, corev1.ResourceName("nvidia.com/gpu"))
	require.Equal(t, "v1.32.0-aliyun.1", ready.Status.NodeInfo.KubeletVersion)
}

func testJobCompletes(t *testing.T, _ *Cluster, client kubernetes.Interface) {
	createNode(t, client, "job", nil)
	template := podFor("job", "", map[string]string{RunForAnnotation: "1500ms"})
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	job, err := client.BatchV1().Jobs("default").Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job"},
		Spec: batchv1.JobSpec{
			Completions: ptr.To[int32](2), Parallelism: ptr.To[int32](2),
			Template: corev1.PodTemplateSpec{ObjectMeta: template.ObjectMeta, Spec: template.Spec},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	poll(t, "the Job's completion", func(ctx context.Context) (bool, error) {
		job, err = client.BatchV1().Jobs("default").Get(ctx, "job", metav1.GetOptions{})
		return err == nil && job.Status.CompletionTime != nil, err
	})
	require.EqualValues(t, 2, job.Status.Succeeded)
	require.Zero(t, job.Status.Failed)
	pods, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "job-name=job"})
	require.NoError(t, err)
	for _, pod := range pods.Items {
		ran := pod.Status.ContainerStatuses[0].State.Terminated
		require.NotNil(t, ran)
		// The API keeps whole seconds, so that 1.5 s are seen as 1 or 2 at the least.
		require.GreaterOrEqual(t, ran.FinishedAt.Sub(ran.StartedAt.Time), time.Second)
	}
}

func testPodIsDeleted(t *testing.T, _ *Cluster, client kubernetes.Interface) {
	createNode(t, client, "deleted", nil)
	pod := createPod(t, client, "deleted", "deleted", nil)
	awaitPod(t, client, pod, podReady)
	require.Less(t, deletePod(t, client, pod), 20*time.Second, "the pod's own grace period is 30 s")
}

func testPodTakesTermFor(t *testing.T, _ *Cluster, client kubernetes.Interface) {
	createNode(t, client, "slow", nil)
	pod := createPod(t, client, "slow", "slow", map[string]string{TermForAnnotation: "3s"})
	awaitPod(t, client, pod, podReady)
	took := deletePod(t, client, pod)
	require.GreaterOrEqual(t, took, 3*time.Second)
	require.Less(t, took, 20*time.Second)
}

func testAudit(t *testing.T, c *Cluster, client kubernetes.Interface, log string) {
	const ns, name = "default", "audited"
	_, err := client.CoreV1().ServiceAccounts(ns).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	path, err := c.ServiceAccountKubeconfig(t.Context(), ns, name)
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	require.NoError(t, err)
	audited, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	_, err = audited.CoreV1().Secrets(ns).Get(t.Context(), "key", metav1.GetOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	_, err = audited.Discovery().ServerVersion() // which is no resource
	require.NoError(t, err)

	var text []byte
	poll(t, "the request in the log", func(context.Context) (bool, error) {
		text, err = os.ReadFile(log)
		return len(text) > 0, err
	})
	var event auditv1.Event
	require.NoError(t, json.Unmarshal(text, &event), "one event, and not those of the components or of this test: %s", text)
	require.Equal(t, "get secrets key", strings.Join([]string{event.Verb, event.ObjectRef.Resource, event.ObjectRef.Name}, " "))
	require.Equal(t, "forbid", event.Annotations["authorization.k8s.io/decision"])
}

func testServiceAccount(t *testing.T, c *Cluster, client kubernetes.Interface) {
	ctx := t.Context()
	const ns, name = "kube-system", "reader"
	_, err := c.ServiceAccountKubeconfig(ctx, ns, name)
	require.ErrorContains(t, err, "kube-system/reader")
	_, err = client.CoreV1().ServiceAccounts(ns).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.RbacV1().Roles(ns).Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.RbacV1().RoleBindings(ns).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: name}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	path, err := c.ServiceAccountKubeconfig(ctx, ns, name)
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	require.NoError(t, err)
	reader, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)

	poll(t, "the Role to be known to the authorizer", func(ctx context.Context) (bool, error) {
		_, err := reader.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{})
		return err == nil, nil
	})
	_, err = reader.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "another namespace: %v", err)
	_, err = reader.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "another resource: %v", err)
}

func testApplyYAML(t *testing.T, c *Cluster, client kubernetes.Interface) {
	const manifests = `
apiVersion: v1
kind: Namespace
metadata: {name: applied}
---
# nothing but a comment
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.test.example}
spec:
  group: test.example
  scope: Namespaced
  names: {plural: things, singular: thing, kind: Thing}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: test.example/v1
kind: Thing
metadata: {name: one, namespace: applied}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: applied}
data: {key: %s}
`
	for _, value := range []string{"first", "second"} { // applying again changes what changed
		require.NoError(t, c.ApplyYAML(t.Context(), strings.NewReader(fmt.Sprintf(manifests, value))))
		settings, err := client.CoreV1().ConfigMaps("applied").Get(t.Context(), "settings", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, value, settings.Data["key"])
	}
	err := c.ApplyYAML(t.Context(), strings.NewReader("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: missing}"))
	require.ErrorContains(t, err, "ConfigMap x")
	require.True(t, apierrors.IsNotFound(err))
}

func testBulk(t *testing.T, c *Cluster, client kubernetes.Interface) {
	const count = 50
	nodes, pods := make([]*corev1.Node, count), make([]*corev1.Pod, count)
	for i := range count {
		name := fmt.Sprintf("bulk-%d", i)
		nodes[i], pods[i] = NewFakeNode(name, capacity()), podFor(name, "", map[string]string{"test/bulk": "1"})
		pods[i].Labels, pods[i].Spec.NodeName = map[string]string{"test/bulk": "1"}, name
	}
	require.NoError(t, c.CreateNodes(t.Context(), nodes))
	require.NoError(t, c.CreatePods(t.Context(), pods))
	poll(t, "all pods to run, each bound before its Node was ready", func(ctx context.Context) (bool, error) {
		list, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "test/bulk=1"})
		running := 0
		for i := range list.Items {
			if podReady(&list.Items[i]) {
				running++
			}
		}
		return running == count, err
	})
	err := c.CreateNodes(t.Context(), nodes[:1])
	require.True(t, apierrors.IsAlreadyExists(err), "%v", err)
}

func clientOf(t *testing.T, c *Cluster) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.AdminConfig())
	require.NoError(t, err)
	return client
}

func capacity() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("8"),
		corev1.ResourceMemory: resource.MustParse("32Gi"),
		corev1.ResourcePods:   resource.MustParse("64"),
	}
}

// createNode makes a fake Node that only pods made for it tolerate.
func createNode(t *testing.T, client kubernetes.Interface, name string, change func(*corev1.Node)) *corev1.Node {
	t.Helper()
	node := NewFakeNode(name, capacity())
	node.Labels["test/for"] = name
	if change != nil {
		change(node)
	}
	made, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	require.NoError(t, err)
	return made
}

// podFor returns a pod that fits on the Node of that name, or on any.
func podFor(name, node string, annotations map[string]string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: annotations},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.invalid/none"}}},
	}
	if node != "" {
		pod.Spec.NodeSelector = map[string]string{"test/for": node}
	}
	return pod
}

func createPod(t *testing.T, client kubernetes.Interface, name, node string, annotations map[string]string) *corev1.Pod {
	t.Helper()
	pod, err := client.CoreV1().Pods("default").Create(t.Context(), podFor(name, node, annotations), metav1.CreateOptions{})
	require.NoError(t, err)
	return pod
}

// deletePod deletes the pod with its own grace period and returns how long it took to be gone.
func deletePod(t *testing.T, client kubernetes.Interface, pod *corev1.Pod) time.Duration {
	t.Helper()
	began := time.Now()
	require.NoError(t, client.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	poll(t, "the pod to be gone", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
	return time.Since(began)
}

func awaitPod(t *testing.T, client kubernetes.Interface, pod *corev1.Pod, is func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var now *corev1.Pod
	poll(t, "pod "+pod.Name, func(ctx context.Context) (done bool, err error) {
		now, err = client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		return err == nil && is(now), err
	})
	return now
}

func awaitNode(t *testing.T, client kubernetes.Interface, name string, is func(*corev1.Node) bool) *corev1.Node {
	t.Helper()
	var now *corev1.Node
	poll(t, "node "+name, func(ctx context.Context) (done bool, err error) {
		now, err = client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		return err == nil && is(now), err
	})
	return now
}

// setFake puts the annotation on the Node that makes kwok play it, or takes it away.
func setFake(t *testing.T, client kubernetes.Interface, node string, fake bool) {
	t.Helper()
	value := "null"
	if fake {
		value = fmt.Sprintf("%q", NodeFake)
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, NodeAnnotation, value)
	_, err := client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

func nodeReady(node *corev1.Node) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}
	return ""
}

func podReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return pod.Status.Phase == corev1.PodRunning && condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func poll(t *testing.T, what string, done wait.ConditionWithContextFunc) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, done)
	require.NoErrorf(t, err, "waiting for %s", what)
}

func TestRestoredClusterHoldsWhatItHeldBefore(t *testing.T) {
	c := StartForTest(t)
	client := clientOf(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	baseline, err := c.Baseline(ctx)
	require.NoError(t, err)

	createNode(t, client, "later", nil)
	pod := createPod(t, client, "later", "later", nil)
	awaitPod(t, client, pod, podReady)
	require.NoError(t, c.ApplyYAML(ctx, strings.NewReader(`
apiVersion: v1
kind: Namespace
metadata: {name: later}
---
apiVersion: batch/v1
kind: Job
metadata: {name: later, namespace: later}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: main}]}}}
`)))
	require.NoError(t, c.Restore(ctx, baseline))
	after, err := c.Baseline(ctx)
	require.NoError(t, err)
	require.NoError(t, baseline.check(after.objects))
	require.NoError(t, after.check(baseline.objects), "nothing is left of what came later")

	require.NoError(t, client.RbacV1().ClusterRoles().Delete(ctx, "system:node-bootstrapper", metav1.DeleteOptions{}))
	require.ErrorContains(t, c.Restore(ctx, baseline), "system:node-bootstrapper was deleted")
}
