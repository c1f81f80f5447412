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

	"gpu-spot-autoscaler/test/standin"
)

// submitETJob makes a job of four workers of a pool of its own name, and returns them when it trains.
func (s *jobStory) submitETJob(name string, least int) (workers []corev1.Pod) {
	s.t.Helper()
	s.play(standin.NewETOperator)
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
	workers = s.whole(workersOfET(name), 4)
	s.becomes(standin.TrainingJobs, name, "status.phase", "Running")
	return workers
}

func workersOfET(name string) string {
	return standin.LabelTrainingJob + "=" + name + ",training-job-role=worker"
}

// busy says whether the operator is, with other jobs.
func (s *jobStory) busy(name string, busy bool) {
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

// scalers are those of the job, or only those that are not done.
func (s *jobStory) scalers(of schema.GroupVersionResource, name string, open bool) (scalers []unstructured.Unstructured) {
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
func scaleInThatComesTooLateCostsNoOtherWorker(s *jobStory) {
	workers := s.submitETJob("late", 1)
	s.busy("late", true)
	doomed := s.reclaimUnder(workers[0])
	s.noted("TrainingJob", "late", "SpotJobShrunk", 1)
	require.Len(s.t, s.scalers(standin.ScaleIns, "late", true), 1)
	s.staysUntil(doomed, doomed.deadline.Add(-20*time.Second))
	s.left(doomed)
	assert.Empty(s.t, s.scalers(standin.ScaleIns, "late", true), "it was taken back before the eviction")

	s.busy("late", false)
	now := s.whole(workersOfET("late"), 4)
	s.elsewhere(doomed, now)
	s.released(standin.TrainingJobs, "late")
	now = s.whole(workersOfET("late"), 4)
	for _, survivor := range workers[1:] {
		assert.True(s.t, has(now, survivor), "%s trained on", survivor.Name)
	}
	assert.EqualValues(s.t, 0, s.field(standin.TrainingJobs, "late", "status.restartCount"))
}

func has(pods []corev1.Pod, pod corev1.Pod) bool { return doomed{pods: pods}.has(pod.UID) }

// scaleInDoesNotOutliveTheWorkersItNames: the workers of the next life have the same names.
func scaleInDoesNotOutliveTheWorkersItNames(s *jobStory) {
	workers := s.submitETJob("outlived", 3)
	s.busy("outlived", true)
	first := s.reclaimUnder(workers[0])
	s.noted("TrainingJob", "outlived", "SpotJobShrunk", 1)
	require.Len(s.t, s.scalers(standin.ScaleIns, "outlived", true), 1)
	s.submit(`{apiVersion: kai.alibabacloud.com/v1alpha1, kind: ScaleOut, metadata: {name: theirs}, spec: {selector: {name: outlived}, toAdd: {count: 1}}}`)
	second := s.reclaimUnder(workers[1:3]...)
	s.noted("TrainingJob", "outlived", "SpotJobSuspended", 1)
	s.busy("outlived", false)
	s.left(first)
	s.left(second)
	s.noted("TrainingJob", "outlived", "SpotJobResumed", 1)
	s.released(standin.TrainingJobs, "outlived")
	s.becomes(standin.TrainingJobs, "outlived", "status.phase", "Running")
	assert.Empty(s.t, append(s.scalers(standin.ScaleIns, "outlived", false), s.scalers(standin.ScaleOuts, "outlived", false)...))
	now := s.whole(workersOfET("outlived"), 4)
	s.elsewhere(first, now)
	s.elsewhere(second, now)
	assert.EqualValues(s.t, 0, s.field(standin.TrainingJobs, "outlived", "status.restartCount"))
}

// documentedCommandIsToldBeforeItIsSuspended is about what Arena renders for the command of ACK's documentation, and nothing
// else: arena submit etjob --workers=4 --min-workers=4 --max-workers=4 --spot-instance --max-wait-time=600. Its training code
// uses the SDK, which listens on port 9009 of each worker, and ends with an error when it has saved its work.
func documentedCommandIsToldBeforeItIsSuspended(s *jobStory) {
	workers, launcher := s.runDocumentedCommand("told")
	told := s.listenAs(workers)

	doomed := s.reclaimUnder(workers[0])
	s.eventually("all workers are told to stop", func(context.Context) (bool, error) { return told.Load() >= 4, nil })
	s.noted("TrainingJob", "told", "SpotJobStopped", 1)
	all := doomed
	all.pods = append(workers, launcher)
	s.staysUntil(all, time.Now().Add(10*time.Second)) // it saves its work
	s.fails(launcher)
	s.comesBackAfterItStopped("told", doomed)
}

// TestJobThatStopsAsItWasToldWhileNobodyLeadsComesBack: without a retry to spend, its end would be for good.
func TestJobThatStopsAsItWasToldWhileNobodyLeadsComesBack(t *testing.T) {
	s := tellOfJobs(t, "orphaned")
	workers, launcher := s.runDocumentedCommand("orphaned")
	told := s.listenAs(workers)
	doomed := s.reclaimUnder(workers[0])
	s.eventually("all workers are told to stop", func(context.Context) (bool, error) { return told.Load() >= 4, nil })
	s.autoscaler.Kill()
	s.fails(launcher)
	s.becomes(standin.TrainingJobs, "orphaned", "status.phase", "Failed")
	s.whole(workersOfET("orphaned"), 0)

	s.lead()
	s.comesBackAfterItStopped("orphaned", doomed)
}

// runDocumentedCommand submits what the command of the ACK documentation makes, with no retry, and returns its pods when it runs.
func (s *jobStory) runDocumentedCommand(name string) (workers []corev1.Pod, launcher corev1.Pod) {
	s.t.Helper()
	const annotations = `annotations: {job-supervisor.kube-ai.io/spot-instance: "true", job-supervisor.kube-ai.io/max-wait-time: "600"}`
	s.play(standin.NewETOperator)
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
	workers = s.whole(workersOfET(name), 4)
	launcher = s.whole(standin.LabelTrainingJob+"="+name+",training-job-role=launcher", 1)[0]
	s.becomes(standin.TrainingJobs, name, "status.phase", "Running")
	return workers, launcher
}

// fails has the pod end as its process does that exits with an error.
func (s *jobStory) fails(pod corev1.Pod) {
	s.t.Helper()
	_, err := s.Client.CoreV1().Pods(metav1.NamespaceDefault).Patch(s.t.Context(), pod.Name, types.MergePatchType,
		[]byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{}, "status")
	require.NoError(s.t, err)
}

// comesBackAfterItStopped waits for the job to be suspended, and to run again as if it had not failed.
func (s *jobStory) comesBackAfterItStopped(name string, doomed doomed) {
	s.t.Helper()
	s.noted("TrainingJob", name, "SpotJobSuspended", 1)
	s.left(doomed)
	s.noted("TrainingJob", name, "SpotJobResumed", 1)
	s.elsewhere(doomed, s.whole(workersOfET(name), 4))
	s.released(standin.TrainingJobs, name)
	s.becomes(standin.TrainingJobs, name, "status.phase", "Running")
	assert.EqualValues(s.t, 0, s.field(standin.TrainingJobs, name, "status.restartCount"), "its end was no failure")
}

// stopPort is for one story at a time: what is told to stop listens on a port that is always the same.
var stopPort sync.Mutex

// listenAs plays the processes of the pods at an address of this machine, and counts how often they are told to stop.
func (s *jobStory) listenAs(pods []corev1.Pod) *atomic.Int32 {
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

// ownAddress is one of this machine's at which pods may be: loopback is none.
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
