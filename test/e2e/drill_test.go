package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/test/alisim"
)

// drilling is the command drill at work.
type drilling struct {
	command *exec.Cmd
	out     bytes.Buffer
}

// startDrill runs the command as the administrator.
func startDrill(s *jobSuite, arguments ...string) *drilling {
	s.t.Helper()
	d := &drilling{command: s.Subcommand(context.WithoutCancel(s.t.Context()), append([]string{"drill", "--kubeconfig=" + s.Cluster.AdminKubeconfig()}, arguments...)...)}
	d.command.Stdout, d.command.Stderr = &d.out, &d.out
	require.NoError(s.t, d.command.Start())
	s.t.Cleanup(func() { _ = d.command.Process.Kill() })
	return d
}

// await returns what the command has printed, and its exit code.
func (d *drilling) await(t *testing.T) (string, int) {
	t.Helper()
	ended := make(chan struct{})
	go func() { _ = d.command.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(3 * time.Minute):
		t.Fatal("the command does not end")
	}
	t.Logf("drill:\n%s", d.out.String())
	return d.out.String(), d.command.ProcessState.ExitCode()
}

// train runs a job of one pod in the pool, whose checkpoint is awaited, and returns its pod.
func train(s *jobSuite, name string) corev1.Pod {
	s.t.Helper()
	pod := member(name, "worker")
	pod.Annotations[api.AnnotationAwaitCheckpoint] = "true"
	s.Submit(s.t, pod)
	return s.awaitRunningPods("job="+name, 1)[0]
}

// awaitRestored waits until nothing on the Node and the pod is left of a drill.
func awaitRestored(s *jobSuite, node, pod string) {
	s.t.Helper()
	s.eventually("the Node is as before", func(ctx context.Context) (bool, error) {
		now, err := s.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		// Core may look upon it as idle by now, and say so.
		now.Spec.Taints = slices.DeleteFunc(now.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == "DeletionCandidateOfClusterAutoscaler" })
		return !hasMarks(now) && !now.Spec.Unschedulable, nil
	})
	if pod == "" {
		return
	}
	s.eventually("the pod is not warned any more", func(ctx context.Context) (bool, error) {
		now, err := s.pod(ctx, pod)
		return now != nil && now.Annotations[api.AnnotationCheckpointRequest] == "" && now.Annotations[api.AnnotationReclaimDeadline] == "", err
	})
}

func TestDrill(t *testing.T) {
	s := newSharedJobSuite(t, "saves", "moves", "taken")
	for name, part := range map[string]func(*jobSuite){
		"until the checkpoint":              drillUntilCheckpoint,
		"until the drain":                   drillUntilDrain,
		"a notice takes the place of drill": noticeDuringDrill,
	} {
		t.Run(name, func(t *testing.T) { part(s.subtest(t)) })
	}
}

func drillUntilCheckpoint(s *jobSuite) {
	pod := train(s, "saves")
	patch := `{"metadata":{"annotations":{"gpu-spot.autoscaling/training-step":"1234","gpu-spot.autoscaling/checkpoint-step":"1000"}}}`
	_, err := s.Client.CoreV1().Pods(pod.Namespace).Patch(s.t.Context(), pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(s.t, err)
	before := s.instances("asg-saves")
	d := startDrill(s, "--node="+pod.Spec.NodeName, "--notice=2m")
	request := awaitCheckpointRequest(s, []corev1.Pod{pod})
	assert.True(s.t, strings.HasSuffix(request, "-drill"), request)
	acknowledge(s, pod, request)
	said, code := d.await(s.t)
	assert.Zero(s.t, code)
	for _, words := range []string{"notice ", "mark ", "asked ", "acknowledged ", "restored ", "completed: all work is saved", "234 steps of training would be lost"} {
		assert.Contains(s.t, said, words)
	}
	assert.NotContains(s.t, said, request, "it is secret")
	awaitRestored(s, pod.Spec.NodeName, pod.Name)
	now, err := s.pod(s.t.Context(), pod.Name)
	require.NoError(s.t, err)
	assert.Equal(s.t, pod.UID, now.UID, "nobody was evicted")
	assert.Contains(s.t, instanceIDs(s.instances("asg-saves")), before[0].ID, "the instance stays")
	s.awaitEvent("SpotCheckpointAcknowledged", "DRILL: ", request)
}

func drillUntilDrain(s *jobSuite) {
	pod := train(s, "moves")
	instance := s.instanceOfPod(pod)
	d := startDrill(s, "--node="+pod.Spec.NodeName, "--notice=2m", "--until=drain", "-o", "json")
	acknowledge(s, pod, awaitCheckpointRequest(s, []corev1.Pod{pod}))
	said, code := d.await(s.t)
	assert.Zero(s.t, code)
	report := struct {
		Completed bool
		Nodes     []struct{ Outcome string }
		Steps     []struct{ Step string }
	}{}
	require.NoError(s.t, json.Unmarshal([]byte(said), &report), said)
	assert.True(s.t, report.Completed)
	steps := map[string]bool{}
	for _, step := range report.Steps {
		steps[step.Step] = true
	}
	for _, step := range []string{"notice", "mark", "asked", "acknowledged", "evicted", "drained", "restored"} {
		assert.True(s.t, steps[step], "%s in %v", step, steps)
	}
	awaitRestored(s, pod.Spec.NodeName, "")
	assert.Contains(s.t, instanceIDs(s.instances("asg-moves")), instance, "the instance stays")
}

func noticeDuringDrill(s *jobSuite) {
	pod := train(s, "taken")
	d := startDrill(s, "--node="+pod.Spec.NodeName, "--notice=3m")
	rehearsed := awaitCheckpointRequest(s, []corev1.Pod{pod})
	reclaiming := s.reclaimNodesOf(pod)
	said, code := d.await(s.t)
	assert.Equal(s.t, 1, code)
	assert.Contains(s.t, said, "takes the place of the drill")
	s.eventually("the job is asked again", func(ctx context.Context) (bool, error) {
		now, err := s.pod(ctx, pod.Name)
		return now != nil && now.Annotations[api.AnnotationCheckpointRequest] != rehearsed && now.Annotations[api.AnnotationCheckpointRequest] != "", err
	})
	acknowledge(s, pod, awaitCheckpointRequest(s, []corev1.Pod{pod}))
	s.awaitGone(reclaiming)
}

func TestADrillOutlivesItsLeaderAndItsCommand(t *testing.T) {
	s := newJobSuite(t, "killed")
	pod := train(s, "killed")
	node, instance := pod.Spec.NodeName, s.instanceOfPod(pod)

	d := startDrill(s, "--node="+node, "--notice=3m", "--until=drain")
	request := awaitCheckpointRequest(s, []corev1.Pod{pod})
	s.autoscaler.Kill()
	acknowledge(s, pod, request)
	s.runLeader()
	said, code := d.await(t)
	assert.Zero(t, code, "the next leader goes on")
	assert.Contains(t, said, "completed: the node was drained")
	assert.Contains(t, said, "acknowledged ")
	awaitRestored(s, node, "")
	assert.Contains(t, instanceIDs(s.instances("asg-killed")), instance)

	again := member("killed", "again")
	again.Annotations[api.AnnotationAwaitCheckpoint] = "true"
	s.Submit(t, again)
	pod = s.awaitRunningPods("job=killed", 1)[0]
	d = startDrill(s, "--node="+pod.Spec.NodeName, "--notice=20s")
	awaitCheckpointRequest(s, []corev1.Pod{pod})
	require.NoError(t, d.command.Process.Kill())
	awaitRestored(s, pod.Spec.NodeName, pod.Name)
	remains, err := podsRemain(t.Context(), s, pod)
	require.NoError(t, err)
	assert.True(t, remains)
}

func TestADrillIsOverWhenItsCommandIsInterrupted(t *testing.T) {
	s := newJobSuite(t, "stopped")
	pod := train(s, "stopped")
	d := startDrill(s, "--node="+pod.Spec.NodeName, "--notice=3m")
	awaitCheckpointRequest(s, []corev1.Pod{pod})
	require.NoError(t, d.command.Process.Signal(os.Interrupt))
	said, code := d.await(t)
	assert.Equal(t, 2, code)
	assert.Contains(t, said, "the drill was interrupted")
	assert.Contains(t, said, "restored ")
	awaitRestored(s, pod.Spec.NodeName, pod.Name)
}

// drillers may all do the same to Nodes and their status, and one of them may start drills.
const drillers = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: writer}
rules:
- {apiGroups: [""], resources: [nodes, nodes/status], verbs: [get, patch, update, create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: writer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: writer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: writer}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: driller}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: driller}
rules:
- {apiGroups: [gpu-spot.autoscaling], resources: [drills], verbs: [start]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: driller}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: driller}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: driller}]
`

func TestDrillsAreStartedByThoseWhoMayStartThemAndNobodyElse(t *testing.T) {
	s := newJobSuiteWithoutAutoscaler(t, newWorld())
	s.submit(drillers)
	set := func(value string, subresource ...string) attempt {
		return attempt{of: nodeResource, name: "system", subresource: subresource, patch: `{metadata: {annotations: {gpu-spot.autoscaling/drill: ` + value + `}}}`}
	}
	const value = `drain 2000-01-01T00:00:00Z/2000-01-01T00:05:00Z`
	made := attempt{of: nodeResource, create: `{apiVersion: v1, kind: Node, metadata: {name: new, annotations: {gpu-spot.autoscaling/drill: ` + value + `}}}`}
	const refused = "only users who may start drills.gpu-spot.autoscaling"
	for what, a := range map[string]attempt{"set": set(value), "set with the status": set(value, "status"), "made with it": made} {
		assert.ErrorContains(t, tryAttempt(s, clientOf(s, "writer"), a), refused, what)
		assert.NoError(t, tryAttempt(s, clientOf(s, "driller"), a), what)
		assert.NoError(t, tryAttempt(s, s.objects, a), "%s, by the administrator", what)
	}
	assert.ErrorContains(t, tryAttempt(s, stolenTokenClient(s.suite), set(value)), refused, "nor by the autoscaler itself")
	_, err := s.Client.CoreV1().Nodes().Patch(t.Context(), "system", types.MergePatchType, []byte(`{"metadata":{"annotations":{"gpu-spot.autoscaling/drill":"`+value+`"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	assert.NoError(t, tryAttempt(s, clientOf(s, "writer"), attempt{of: nodeResource, name: "system", patch: `{metadata: {labels: {theirs: "1"}}}`}), "kept")
	assert.NoError(t, tryAttempt(s, clientOf(s, "writer"), set("null")), "removed")
	assert.NoError(t, tryAttempt(s, stolenTokenClient(s.suite), set("null")), "removed by the autoscaler")
	assert.ErrorContains(t, tryAttempt(s, clientOf(s, "writer"), set("other")), refused, "changed")
}

func instanceIDs(instances []alisim.InstanceView) (ids []string) {
	for _, instance := range instances {
		ids = append(ids, instance.ID)
	}
	return ids
}
