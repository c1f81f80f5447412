package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/test/standin"
)

// submitETJob makes a job of four workers of a pool of its own name, and returns them when it trains.
func submitETJob(s *jobSuite, name string, least int) (workers []corev1.Pod) {
	s.t.Helper()
	s.runOperator(standin.NewETOperator)
	s.submit(fmt.Sprintf(`
apiVersion: kai.alibabacloud.com/v1alpha1
kind: TrainingJob
metadata: {name: %s}
spec:
  restartPolicy: OnFailure
  backoffLimit: 0
  etReplicaSpecs:
    launcher: {replicas: 1, template: %s}
    worker: {replicas: 4, minReplicas: %d, maxReplicas: 4, template: %s}
`, name, systemTemplate("horovodrun python train.py"), least, gpuTemplate(name)))
	workers = s.awaitRunningPods(workersOfET(name), 4)
	s.awaitField(standin.TrainingJobs, name, "status.phase", "Running")
	return workers
}

func workersOfET(name string) string {
	return standin.LabelTrainingJob + "=" + name + ",training-job-role=worker"
}

// setOperatorBusy makes the operator busy with other jobs, or idle.
func setOperatorBusy(s *jobSuite, name string, busy bool) {
	s.t.Helper()
	value := "null"
	if busy {
		value = `"true"`
	}
	body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, standin.AnnotationBusy, value)
	_, err := s.objects.Resource(standin.TrainingJobs).Namespace(metav1.NamespaceDefault).
		Patch(s.t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	require.NoError(s.t, err)
}

// scalersOf returns the ScaleIns or ScaleOuts of the job, or only the open ones.
func scalersOf(s *jobSuite, of schema.GroupVersionResource, name string, open bool) (scalers []unstructured.Unstructured) {
	s.t.Helper()
	list, err := s.objects.Resource(of).Namespace(metav1.NamespaceDefault).List(s.t.Context(), metav1.ListOptions{})
	require.NoError(s.t, err)
	for _, scaler := range list.Items {
		target, _, _ := unstructured.NestedString(scaler.Object, "spec", "selector", "name")
		done := hasCondition(scaler, "ScaleSucceeded") || hasCondition(scaler, "ScaleFailed")
		if target == name && !(open && done) {
			scalers = append(scalers, scaler)
		}
	}
	return scalers
}

// awaitScaleInOf waits until the status of the ScaleIn says that it took out these workers, and no others: the operator writes
// it after it has deleted their pods.
func awaitScaleInOf(s *jobSuite, name string, workers ...string) {
	s.t.Helper()
	s.eventually(name+" is noted as carried out", func(ctx context.Context) (bool, error) {
		object, err := s.getObject(ctx, standin.ScaleIns, name)
		if err != nil {
			return false, err
		}
		names, _, err := unstructured.NestedStringSlice(object.Object, "status", "toDeletePods")
		return sets.New(names...).Equal(sets.New(workers...)), err
	})
}

func hasCondition(object unstructured.Unstructured, kind string) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, item := range conditions {
		if condition, _ := item.(map[string]any); condition["type"] == kind {
			return true
		}
	}
	return false
}

// scaleInThatComesTooLateCostsNoOtherWorker: carried out when the pods are gone that it names, a ScaleIn deletes all.
func scaleInThatComesTooLateCostsNoOtherWorker(s *jobSuite) {
	workers := submitETJob(s, "late", 1)
	setOperatorBusy(s, "late", true)
	reclaiming := s.reclaimNodesOf(workers[0])
	s.awaitJobEvent("TrainingJob", "late", "SpotJobShrunk", 1)
	require.Len(s.t, scalersOf(s, standin.ScaleIns, "late", true), 1)
	requirePodsStayUntil(s, reclaiming, reclaiming.deadline.Add(-20*time.Second))
	s.awaitGone(reclaiming)
	assert.Empty(s.t, scalersOf(s, standin.ScaleIns, "late", true), "it was taken back before the eviction")

	setOperatorBusy(s, "late", false)
	now := s.awaitRunningPods(workersOfET("late"), 4)
	s.requireOtherNodes(reclaiming, now)
	s.awaitNotHeld(standin.TrainingJobs, "late")
	now = s.awaitRunningPods(workersOfET("late"), 4)
	for _, survivor := range workers[1:] {
		assert.True(s.t, has(now, survivor), "%s trained on", survivor.Name)
	}
	assert.EqualValues(s.t, 0, s.field(standin.TrainingJobs, "late", "status.restartCount"))
}

func has(pods []corev1.Pod, pod corev1.Pod) bool { return reclaimedPods{pods: pods}.has(pod.UID) }

// scaleInDoesNotOutliveTheWorkersItNames: the workers of the next life have the same names.
func scaleInDoesNotOutliveTheWorkersItNames(s *jobSuite) {
	workers := submitETJob(s, "outlived", 3)
	setOperatorBusy(s, "outlived", true)
	first := s.reclaimNodesOf(workers[0])
	s.awaitJobEvent("TrainingJob", "outlived", "SpotJobShrunk", 1)
	require.Len(s.t, scalersOf(s, standin.ScaleIns, "outlived", true), 1)
	s.submit(`{apiVersion: kai.alibabacloud.com/v1alpha1, kind: ScaleOut, metadata: {name: theirs}, spec: {selector: {name: outlived}, toAdd: {count: 1}}}`)
	second := s.reclaimNodesOf(workers[1:3]...)
	s.awaitJobEvent("TrainingJob", "outlived", "SpotJobSuspended", 1)
	setOperatorBusy(s, "outlived", false)
	s.awaitGone(first)
	s.awaitGone(second)
	s.awaitJobEvent("TrainingJob", "outlived", "SpotJobResumed", 1)
	s.awaitNotHeld(standin.TrainingJobs, "outlived")
	s.awaitField(standin.TrainingJobs, "outlived", "status.phase", "Running")
	assert.Empty(s.t, append(scalersOf(s, standin.ScaleIns, "outlived", false), scalersOf(s, standin.ScaleOuts, "outlived", false)...))
	now := s.awaitRunningPods(workersOfET("outlived"), 4)
	s.requireOtherNodes(first, now)
	s.requireOtherNodes(second, now)
	assert.EqualValues(s.t, 0, s.field(standin.TrainingJobs, "outlived", "status.restartCount"))
}

// documentedCommandIsToldBeforeItIsSuspended is about what Arena renders for the command of ACK's documentation, and nothing
// else: arena submit etjob --workers=4 --min-workers=4 --max-workers=4 --spot-instance --max-wait-time=600. Its training code
// uses the SDK, which listens on port 9009 of each worker, and ends with an error when it has saved its work.
func documentedCommandIsToldBeforeItIsSuspended(s *jobSuite) {
	workers, launcher := runDocumentedCommand(s, "told")
	told := listenAs(s, workers)

	reclaiming := s.reclaimNodesOf(workers[0])
	s.eventually("all workers are told to stop", func(context.Context) (bool, error) { return told.Load() >= 4, nil })
	s.awaitJobEvent("TrainingJob", "told", "SpotJobStopped", 1)
	all := reclaiming
	all.pods = append(workers, launcher)
	requirePodsStayUntil(s, all, time.Now().Add(10*time.Second)) // it saves its work
	failPod(s, launcher)
	awaitReturnAfterStop(s, "told", reclaiming)
}

// TestJobThatStopsAsItWasToldWhileNobodyLeadsComesBack: without a retry to spend, its end would be for good.
func TestJobThatStopsAsItWasToldWhileNobodyLeadsComesBack(t *testing.T) {
	s := newJobSuite(t, "orphaned")
	workers, launcher := runDocumentedCommand(s, "orphaned")
	told := listenAs(s, workers)
	reclaiming := s.reclaimNodesOf(workers[0])
	s.eventually("all workers are told to stop", func(context.Context) (bool, error) { return told.Load() >= 4, nil })
	s.autoscaler.Kill()
	failPod(s, launcher)
	s.awaitField(standin.TrainingJobs, "orphaned", "status.phase", "Failed")
	s.awaitRunningPods(workersOfET("orphaned"), 0)

	s.runLeader()
	awaitReturnAfterStop(s, "orphaned", reclaiming)
}

// TestScaleInOfWorkersThatWentWhileNobodyLedIsTakenBack: et-operator would delete all workers of the job when it comes to it.
func TestScaleInOfWorkersThatWentWhileNobodyLedIsTakenBack(t *testing.T) {
	s := newJobSuite(t, "unled")
	workers := submitETJob(s, "unled", 1)
	setOperatorBusy(s, "unled", true)
	reclaiming := s.reclaimNodesOf(workers[0])
	s.awaitJobEvent("TrainingJob", "unled", "SpotJobShrunk", 1)
	s.autoscaler.Kill()
	require.Len(t, scalersOf(s, standin.ScaleIns, "unled", true), 1)
	require.NoError(t, s.Client.CoreV1().Pods(metav1.NamespaceDefault).Delete(t.Context(), workers[0].Name, *metav1.NewDeleteOptions(0)))
	s.awaitGone(reclaiming)

	s.runLeader()
	s.eventually("the new leader takes back the ScaleIn", func(context.Context) (bool, error) {
		return len(scalersOf(s, standin.ScaleIns, "unled", true)) == 0, nil
	})
	setOperatorBusy(s, "unled", false)
	s.awaitNotHeld(standin.TrainingJobs, "unled")
	now := s.awaitRunningPods(workersOfET("unled"), 4)
	s.requireOtherNodes(reclaiming, now)
	for _, survivor := range workers[1:] {
		assert.True(t, has(now, survivor), "%s trained on", survivor.Name)
	}
	assert.EqualValues(t, 0, s.field(standin.TrainingJobs, "unled", "status.restartCount"))
}

// runDocumentedCommand submits what the command of the ACK documentation makes, with no retry, and returns its pods when it runs.
func runDocumentedCommand(s *jobSuite, name string) (workers []corev1.Pod, launcher corev1.Pod) {
	s.t.Helper()
	const annotations = `annotations: {job-supervisor.kube-ai.io/spot-instance: "true", job-supervisor.kube-ai.io/max-wait-time: "600"}`
	s.runOperator(standin.NewETOperator)
	s.submit(`
apiVersion: kai.alibabacloud.com/v1alpha1
kind: TrainingJob
metadata: {name: ` + name + `, ` + annotations + `}
spec:
  backoffLimit: 0
  cleanPodPolicy: Running
  etReplicaSpecs:
    launcher: {replicas: 1, template: ` + systemTemplate("horovodrun python train.py") + `}
    worker: {replicas: 4, minReplicas: 4, maxReplicas: 4, template: ` + gpuTemplate(name, "metadata: {"+annotations+"}") + `}
`)
	workers = s.awaitRunningPods(workersOfET(name), 4)
	launcher = s.awaitRunningPods(standin.LabelTrainingJob+"="+name+",training-job-role=launcher", 1)[0]
	s.awaitField(standin.TrainingJobs, name, "status.phase", "Running")
	return workers, launcher
}

// failPod sets the status of a pod whose process has exited with an error.
func failPod(s *jobSuite, pod corev1.Pod) {
	s.t.Helper()
	_, err := s.Client.CoreV1().Pods(metav1.NamespaceDefault).Patch(s.t.Context(), pod.Name, types.MergePatchType,
		[]byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{}, "status")
	require.NoError(s.t, err)
}

// awaitReturnAfterStop waits until the job is suspended, and until it runs again as if it had not failed.
func awaitReturnAfterStop(s *jobSuite, name string, reclaiming reclaimedPods) {
	s.t.Helper()
	s.awaitJobEvent("TrainingJob", name, "SpotJobSuspended", 1)
	s.awaitGone(reclaiming)
	s.awaitJobEvent("TrainingJob", name, "SpotJobResumed", 1)
	defer func() {
		if s.t.Failed() {
			job, err := s.getObject(context.Background(), standin.TrainingJobs, name)
			s.t.Logf("The job: %v %v", job, err)
		}
	}()
	s.requireOtherNodes(reclaiming, s.awaitRunningPods(workersOfET(name), 4))
	s.awaitNotHeld(standin.TrainingJobs, name)
	s.awaitField(standin.TrainingJobs, name, "status.phase", "Running")
	assert.EqualValues(s.t, 0, s.field(standin.TrainingJobs, name, "status.restartCount"), "its end was no failure")
}

// stopPort is held by the one test at a time that listens on the fixed port to which jobs are told to stop.
var stopPort sync.Mutex

// listenAs listens for the processes of the pods at an address of this machine, and counts the requests to stop.
func listenAs(s *jobSuite, pods []corev1.Pod) *atomic.Int32 {
	s.t.Helper()
	stopPort.Lock()
	s.t.Cleanup(stopPort.Unlock)
	address := ownAddress(s.t)
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "9009"))
	require.NoError(s.t, err)
	told := &atomic.Int32{}
	server := &http.Server{ReadHeaderTimeout: soon, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == "/stop" {
			told.Add(1)
		}
		_, _ = w.Write([]byte("ok"))
	})}
	go func() { _ = server.Serve(listener) }()
	s.t.Cleanup(func() { _ = server.Close() })
	body := fmt.Appendf(nil, `{"status":{"podIP":%q,"podIPs":[{"ip":%q}]}}`, address, address)
	for _, pod := range pods {
		_, err := s.Client.CoreV1().Pods(metav1.NamespaceDefault).Patch(s.t.Context(), pod.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
		require.NoError(s.t, err)
	}
	return told
}

// ownAddress returns an address of this machine that is not on the loopback network, so that a pod or an endpoint may have it.
func ownAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && network.IP.To4() != nil && network.IP.IsGlobalUnicast() {
			return network.IP.String()
		}
	}
	require.Fail(t, "this machine has no address but loopback")
	return ""
}
