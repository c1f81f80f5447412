package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/pricing/ledger"
	"gpu-spot-autoscaler/test/rig"
	"gpu-spot-autoscaler/test/standin"
)

// uninstallNotice is how long an instance lives from its notice: so long that its Node is there when release-all comes to it.
const uninstallNotice = 4 * time.Minute

// TestReleaseAllLeavesNothingOfTheAutoscalerBehind runs the hook of the chart as the Job that helm uninstall would create runs it: with
// its arguments, and a token of its ServiceAccount. The pod of the autoscaler is killed meanwhile, one that runs elsewhere takes over, and
// the hook itself is killed once.
func TestReleaseAllLeavesNothingOfTheAutoscalerBehind(t *testing.T) {
	rig.Long(t)
	hook := renderReleaseAll(t)
	s := newJobSuiteWithoutAutoscaler(t, newWorld(), "train", "elastic")
	s.World.NoticePeriod = metav1.Duration{Duration: uninstallNotice}
	require.NoError(t, s.ReplaceWorld(t.Context(), s.World))
	require.NoError(t, s.Cluster.ApplyYAML(t.Context(), strings.NewReader(hook.manifests)))
	kubeconfig, err := s.Cluster.ServiceAccountKubeconfig(t.Context(), rig.Namespace, hook.serviceAccount)
	require.NoError(t, err)
	requireBound(s, kubeconfig)
	createAutoscalerDeployment(s)

	pod := startCandidate(s, "pod")
	s.autoscaler = pod
	awaitLeader(s, "pod")
	elsewhere := startCandidate(s, "elsewhere")
	s.runOperator(standin.NewETOperator)
	reclaiming, fillers := holdJobs(s)

	pod.Kill() // its lease is free a quarter of a minute later
	first := hook.start(s, kubeconfig)
	select {
	case <-elsewhere.Done():
	case <-time.After(soon):
		t.Fatal("the one elsewhere goes on although it has lost the lease")
	}
	s.deletePods(fillers...) // now there is room, and none of the autoscalers resumes the jobs
	elsewhere = startCandidate(s, "elsewhere")
	s.autoscaler = elsewhere
	code, report := first.await(t)
	assert.Equal(t, 1, code, "it names the one elsewhere")
	require.Len(t, report.Faults, 1)
	assert.Contains(t, report.Faults[0], "elsewhere still led after the Deployment was stopped")
	assert.Contains(t, report.Lease, "held until")
	assert.Equal(t, 1, report.ScaledFrom)
	requireReleased(s, report, reclaiming)

	victim := s.awaitRunningPods("job-name=train", 2)[0]
	s.reclaimNodesOf(victim)
	rig.Always(t, 10*time.Second, "the one elsewhere, which was started again, marks no Node", func(ctx context.Context) (bool, error) {
		node, err := s.Client.CoreV1().Nodes().Get(ctx, victim.Spec.NodeName, metav1.GetOptions{})
		return err == nil && !hasMarks(node) && !node.Spec.Unschedulable, err
	})
	assert.NoError(t, elsewhere.Stop())

	patch := fmt.Sprintf(`{"metadata": {"labels": {"gpu-spot.autoscaling/reclaiming": "true"}, "annotations": {"gpu-spot.autoscaling/reclaim-deadline": %q,
		"gpu-spot.autoscaling/reclaim-cordoned": "true"}}, "spec": {"unschedulable": true}}`, time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
	_, err = s.Client.CoreV1().Nodes().Patch(t.Context(), victim.Spec.NodeName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err, "as after a false alarm whose end nobody was there to see")
	hook.start(s, kubeconfig).killAt(t, "Resuming held jobs")
	code, report = hook.start(s, kubeconfig).await(t)
	assert.Zero(t, code, "%v", report)
	requireUnmarked(s, reclaiming)
	assert.Equal(t, "removed", report.Lease)
	assert.Empty(t, report.Faults)
	assert.Empty(t, report.Jobs)
	_, err = s.Client.CoordinationV1().Leases(rig.Namespace).Get(t.Context(), rig.ServiceAccount, metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
	for _, name := range []string{"status", "ledger", "market"} {
		_, err := s.Client.CoreV1().ConfigMaps(rig.Namespace).Get(t.Context(), rig.ServiceAccount+"-"+name, metav1.GetOptions{})
		assert.True(t, apierrors.IsNotFound(err), "%s: %v", name, err)
	}

	code, report = hook.start(s, kubeconfig).await(t)
	assert.Zero(t, code, "with nothing left to do: %v", report)
}

// holdJobs has a Job suspended and a TrainingJob shrunk, and returns the Nodes that they lose. There is room for both where the pods run
// that it returns too.
func holdJobs(s *jobSuite) (lost []string, fillers []*corev1.Pod) {
	s.t.Helper()
	for _, pool := range []string{"train", "elastic"} {
		filler := rig.GPUPod("filler-"+pool, 1)
		filler.Spec.NodeSelector = map[string]string{"pool": pool}
		fillers = append(fillers, filler)
	}
	s.Submit(s.t, fillers...)
	s.submit(`
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec: {completionMode: Indexed, parallelism: 2, completions: 2, backoffLimit: 0, template: ` + gpuTemplate("train") + `}
---
apiVersion: kai.alibabacloud.com/v1alpha1
kind: TrainingJob
metadata: {name: elastic}
spec:
  restartPolicy: OnFailure
  backoffLimit: 0
  etReplicaSpecs:
    launcher: {replicas: 1, template: ` + systemTemplate("horovodrun -np 3 --min-np 2 --max-np 3 --host-discovery-script /etc/edl/discover_hosts.sh python train.py") + `}
    worker: {replicas: 3, minReplicas: 2, maxReplicas: 3, template: ` + gpuTemplate("elastic") + `}
`)
	s.awaitRunning(fillers...)
	pods := s.awaitRunningPods("job-name=train", 2)
	workers := s.awaitRunningPods("training-job-name=elastic,training-job-role=worker", 3)
	s.awaitField(standin.TrainingJobs, "elastic", "status.phase", "Running")
	setPoolMaximum(s, "train", 2)
	setPoolMaximum(s, "elastic", 3)
	s.eventually("the cost ledger with the instances is saved", func(ctx context.Context) (bool, error) {
		saved, err := s.Client.CoreV1().ConfigMaps(rig.Namespace).Get(ctx, rig.ServiceAccount+"-ledger", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		running, err := ledger.RunningOf(saved.BinaryData["state.json.gz"])
		n := 0
		for _, line := range running.Lines {
			n += len(line.Instances)
		}
		return n == 7, err
	})
	reclaimed := s.reclaimNodesOf(pods[0], workers[2])
	s.awaitJobEvent("Job", "train", "SpotJobSuspended", 1)
	s.awaitJobEvent("TrainingJob", "elastic", "SpotJobShrunk", 1)
	s.awaitGone(reclaimed)
	return []string{pods[0].Spec.NodeName, workers[2].Spec.NodeName}, fillers
}

// requireReleased checks that nothing of the autoscaler is on jobs, pods and Nodes, and that the jobs run.
func requireReleased(s *jobSuite, report releaseReport, reclaiming []string) {
	s.t.Helper()
	outcomes := map[string]string{}
	for _, job := range report.Jobs {
		outcomes[job.Job] = job.Outcome + job.Error
	}
	assert.Equal(s.t, map[string]string{"job/default/train": "resumed", "trainingjob/default/elastic": "grows"}, outcomes)
	s.awaitNotHeld(batchJobs, "train")
	s.awaitNotHeld(standin.TrainingJobs, "elastic")
	s.awaitRunningPods("job-name=train", 2)
	assert.Nil(s.t, s.field(batchJobs, "train", "status.failed"))
	s.awaitField(standin.TrainingJobs, "elastic", "status.phase", "Running")

	var leaving []string
	for _, node := range report.Nodes {
		assert.Empty(s.t, node.Error, node.Name)
		if node.Leaving {
			leaving = append(leaving, node.Name)
		}
	}
	assert.ElementsMatch(s.t, reclaiming, leaving)
	requireUnmarked(s, reclaiming)
	pods, err := s.Client.CoreV1().Pods(metav1.NamespaceAll).List(s.t.Context(), metav1.ListOptions{})
	require.NoError(s.t, err)
	for _, pod := range pods.Items {
		assert.NotContains(s.t, pod.Annotations, "gpu-spot.autoscaling/checkpoint-request", pod.Name)
	}
	require.NotNil(s.t, report.Instances)
	assert.Contains(s.t, []int{5, 7}, report.Instances.Count, "with those that were reclaimed, if the ledger was saved before")
	assert.NotZero(s.t, report.Instances.PerHour)
}

// requireUnmarked checks that no Node has anything of the autoscaler but those that are leaving.
func requireUnmarked(s *jobSuite, leaving []string) {
	s.t.Helper()
	nodes, err := s.nodes(s.t.Context())
	require.NoError(s.t, err)
	for _, node := range nodes {
		if slices.Contains(leaving, node.Name) {
			assert.True(s.t, hasMarks(&node) && node.Spec.Unschedulable, "%s: jobs that tolerate all taints must not start there", node.Name)
			continue
		}
		assert.False(s.t, hasMarks(&node), "%s: %v %v", node.Name, node.Annotations, node.Spec.Taints)
		assert.False(s.t, node.Spec.Unschedulable, node.Name)
	}
}

// hasMarks returns whether the Node has anything that the autoscaler writes.
func hasMarks(node *corev1.Node) bool {
	for key := range node.Annotations {
		if strings.HasPrefix(key, "gpu-spot.autoscaling/") {
			return true
		}
	}
	return node.Labels["gpu-spot.autoscaling/reclaiming"] != "" || slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return strings.Contains(taint.Key, "spot-reclaim") || strings.Contains(taint.Key, "ClusterAutoscaler")
	})
}

// createAutoscalerDeployment creates the Deployment of the autoscaler, whose pod nobody runs: the process beside it plays the pod.
func createAutoscalerDeployment(s *jobSuite) {
	s.t.Helper()
	labels := map[string]string{"app": "autoscaler"}
	_, err := s.Client.AppsV1().Deployments(rig.Namespace).Create(s.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: rig.ServiceAccount},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "autoscaler", Image: "autoscaler"}}},
			},
		},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.eventually("the Deployment has its pod", func(ctx context.Context) (bool, error) {
		pods, err := s.Client.CoreV1().Pods(rig.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=autoscaler"})
		return err == nil && len(pods.Items) == 1, err
	})
}

// startCandidate starts an autoscaler that takes part in the election under the name. It may be killed, or end because it loses the lease.
func startCandidate(s *jobSuite, name string) *rig.Autoscaler {
	s.t.Helper()
	a, err := s.StartAutoscaler(s.t.Context(), []string{"POD_NAME=" + name}, "--leader-elect=true",
		"--reclaim-notice-period="+uninstallNotice.String(), "--reclaim-poll-interval=1s", "--scale-down-unneeded-time=10m")
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		a.Kill()
		if s.t.Failed() {
			s.t.Logf("the last words of %s:\n%s", name, a.Log(25))
		}
	})
	return a
}

func awaitLeader(s *jobSuite, name string) {
	s.t.Helper()
	s.eventually(name+" leads", func(ctx context.Context) (bool, error) {
		lease, err := s.Client.CoordinationV1().Leases(rig.Namespace).Get(ctx, rig.ServiceAccount, metav1.GetOptions{})
		return err == nil && *lease.Spec.HolderIdentity == name, err
	})
}

// requireBound waits until the admission policies hold for the hook's ServiceAccount: what it may not write is refused by them.
func requireBound(s *jobSuite, kubeconfig string) {
	s.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(s.t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(s.t, err)
	s.eventually("the policies bind the hook", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Nodes().Patch(ctx, "system", types.MergePatchType, []byte(`{"metadata": {"labels": {"pool": "mine"}}}`),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "the autoscaler writes no labels and annotations of a Node but its own"), nil
	})
	_, err = client.CoreV1().Secrets(rig.Namespace).List(s.t.Context(), metav1.ListOptions{})
	assert.True(s.t, apierrors.IsForbidden(err), "%v", err)
	err = client.CoreV1().ConfigMaps(rig.Namespace).Delete(s.t.Context(), "kube-root-ca.crt", metav1.DeleteOptions{})
	assert.ErrorContains(s.t, err, "the autoscaler deletes no ConfigMap")
}

// releaseHook is the hook of the chart: what helm uninstall creates, without the Job, and the arguments of that.
type releaseHook struct {
	manifests, serviceAccount string
	args                      []string
}

// renderReleaseAll has helm render the hook, and the admission policies that are in force with it.
func renderReleaseAll(t *testing.T) (hook releaseHook) {
	t.Helper()
	const binary = "../../out/bin/helm"
	require.FileExists(t, binary, "make lint builds it")
	text, err := exec.CommandContext(t.Context(), binary, "template", rig.ServiceAccount, "../../deploy/chart/gpu-spot-autoscaler",
		"--namespace="+rig.Namespace, "--kube-version=1.36.1", "--set=region=ap-southeast-1", "--set=clusterName=rig",
		"--show-only=templates/release-all.yaml", "--show-only=templates/policies.yaml").CombinedOutput()
	require.NoError(t, err, "%s", text)
	decoder := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
	for buffer := make([]byte, 1<<20); ; {
		n, err := decoder.Read(buffer)
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		var job batchv1.Job
		if err := utilyaml.Unmarshal(buffer[:n], &job); err == nil && job.Kind == "Job" {
			hook.serviceAccount, hook.args = job.Spec.Template.Spec.ServiceAccountName, job.Spec.Template.Spec.Containers[0].Args
			continue
		}
		hook.manifests += "---\n" + string(buffer[:n]) + "\n"
	}
	require.NotEmpty(t, hook.args)
	return hook
}

// releaseReport is what the command prints with -o json, as far as it is looked at.
type releaseReport struct {
	ScaledFrom int
	Lease      string
	Jobs       []struct{ Job, Outcome, Error string }
	Nodes      []struct {
		Name, Error string
		Leaving     bool
	}
	Faults    []string
	Instances *struct {
		Count   int
		PerHour float64
	}
}

// releaseRun is a run of the hook.
type releaseRun struct {
	command *exec.Cmd
	out     bytes.Buffer
	said    *bufio.Scanner
	lines   []string
}

// start runs the hook.
func (h releaseHook) start(s *jobSuite, kubeconfig string) *releaseRun {
	s.t.Helper()
	run := &releaseRun{command: exec.Command(s.BinaryPath(), append(slices.Clone(h.args), "-o", "json", "--kubeconfig="+kubeconfig)...)}
	run.command.Env = append(os.Environ(), "GORACE=halt_on_error=1")
	said, err := run.command.StderrPipe()
	require.NoError(s.t, err)
	run.command.Stdout = &run.out
	require.NoError(s.t, run.command.Start())
	run.said = bufio.NewScanner(said)
	s.t.Cleanup(func() { _ = run.command.Process.Kill() })
	return run
}

// listen reads what the command says until it says this, or ends.
func (r *releaseRun) listen(until string) bool {
	for r.said.Scan() {
		r.lines = append(r.lines, r.said.Text())
		if until != "" && strings.Contains(r.said.Text(), until) {
			return true
		}
	}
	return false
}

// await waits for the end of the command.
func (r *releaseRun) await(t *testing.T) (code int, report releaseReport) {
	t.Helper()
	r.listen("")
	_ = r.command.Wait()
	t.Logf("release-all ended with %d:\n%s\n%s", r.command.ProcessState.ExitCode(), strings.Join(r.lines, "\n"), r.out.String())
	if err := json.Unmarshal(r.out.Bytes(), &report); err != nil {
		t.Fatal(fmt.Errorf("its summary: %w", err))
	}
	return r.command.ProcessState.ExitCode(), report
}

// killAt kills the command when it says this, as kill -9 does.
func (r *releaseRun) killAt(t *testing.T, this string) {
	t.Helper()
	require.True(t, r.listen(this), "it says %q, before it ends: %v", this, r.lines)
	require.NoError(t, r.command.Process.Kill())
	_ = r.command.Wait()
}
