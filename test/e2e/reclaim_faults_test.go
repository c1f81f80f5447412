package e2e

import (
	"context"
	"fmt"
	"maps"
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
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/test/cluster"
	"gpu-spot-autoscaler/test/rig"
	"gpu-spot-autoscaler/test/standin"
)

// awaiting returns a pod of the job that is not evicted before the job acknowledges the request.
func awaiting(job string) *corev1.Pod {
	pod := member(job, "worker")
	pod.Name = job
	pod.Annotations[api.AnnotationAwaitCheckpoint] = "true"
	return pod
}

func TestReclaimsGoOnWhereTheAPIServerWasAway(t *testing.T) {
	const away = 30 * time.Second
	w := newWorld(jobPool("train"))
	w.NoticePeriod = metav1.Duration{Duration: 3 * time.Minute}
	// Heartbeats of Nodes fail too while the API server is away, which is not what this test is about.
	s := &jobSuite{suite: newSuiteWith(t, rig.Options{World: w, NodeGracePeriod: 2 * time.Minute})}
	flags := []string{"--leader-elect=true", "--reclaim-notice-period=3m", "--reclaim-poll-interval=1s"}
	container := []string{"POD_NAME=gpu-spot-autoscaler-0"}
	leader, err := s.StartAutoscaler(t.Context(), container, flags...)
	require.NoError(t, err)
	t.Cleanup(leader.Kill)
	createDeployment(s.suite, 3, awaiting("train"))
	pods := s.awaitRunningPods("job=train", 3)
	first, second := instanceOf(nodeOfPod(s.suite, pods[0].Name)), instanceOf(nodeOfPod(s.suite, pods[1].Name))

	early := s.reclaimNodesOf(pods[0])
	request := awaitCheckpointRequest(s, pods)
	s.eventually("a replacement is asked for", func(context.Context) (bool, error) { return boughtOfPool(s, "train") == 4, nil })
	require.NoError(t, s.Cluster.KillAPIServer(t.Context()))
	gone := time.Now()
	require.NoError(t, s.Cloud.Reclaim(second))
	select {
	case <-leader.Done():
	case <-time.After(soon):
		t.Fatal("the leader goes on without its lease")
	}
	require.Contains(t, leader.Log(50), "lost the leader lease")
	s.RunAutoscalerWithEnv(t, container, flags...) // as the kubelet does
	time.Sleep(time.Until(gone.Add(away)))
	require.NoError(t, s.Cluster.StartAPIServer(t.Context()))

	s.eventually("the pod whose notice came meanwhile is told of it", func(ctx context.Context) (bool, error) {
		pod, err := s.pod(ctx, pods[1].Name)
		return pod != nil && pod.Annotations["gpu-spot.autoscaling/reclaim-instance"] == second, err
	})
	assert.Equal(t, request, awaitCheckpointRequest(s, pods), "the request is still open")
	requireOnlyMarked(s.suite, first, second)
	acknowledge(s, pods[2], request)
	s.awaitGone(reclaimedPods{pods: pods[:2], deadline: early.deadline})
	now := s.awaitRunningPods("job=train", 3)
	s.requireOtherNodes(reclaimedPods{pods: pods[:2]}, now)
	remains, err := podsRemain(t.Context(), s, pods[2])
	require.NoError(t, err)
	assert.True(t, remains, "the pod whose node lives")
	requireOnlyMarked(s.suite, first, second)
	s.requireBought("train", 3+2)
}

// requireOnlyMarked waits until the Nodes of the instances are marked, or gone, and fails where a reclaim has to do with any other.
func requireOnlyMarked(s *suite, instances ...string) {
	s.t.Helper()
	s.eventually("the reclaiming Nodes are marked", func(ctx context.Context) (bool, error) {
		nodes, err := s.nodes(ctx)
		unmarked := 0
		for i := range nodes {
			if node := &nodes[i]; !slices.Contains(instances, instanceOf(node)) {
				// It may hold another pod of a job that was asked.
				rest := slices.DeleteFunc(traces(node), func(trace string) bool { return trace == api.AnnotationAwaitedAcknowledgements })
				require.Empty(s.t, rest, node.Name)
				require.False(s.t, node.Spec.Unschedulable, node.Name)
			} else if !marked(node) {
				unmarked++
			}
		}
		return unmarked == 0, err
	})
}

// traces are what a reclaim has put on the Node, or left there, but for its cordon.
func traces(node *corev1.Node) (found []string) {
	for annotation := range node.Annotations {
		if strings.HasPrefix(annotation, "gpu-spot.autoscaling/") && annotation != "gpu-spot.autoscaling/reclaim-cancelled" {
			found = append(found, annotation)
		}
	}
	if _, labelled := node.Labels["gpu-spot.autoscaling/reclaiming"]; labelled {
		found = append(found, "the label")
	}
	for _, taint := range node.Spec.Taints {
		if strings.HasSuffix(taint.Key, "/spot-reclaim") {
			found = append(found, "the taint")
		}
	}
	return found
}

// TestNodesThatOthersChangeDuringAReclaim has others than the autoscaler at its Nodes.
func TestNodesThatOthersChangeDuringAReclaim(t *testing.T) {
	rig.Long(t)
	s := newSharedJobSuite(t, "renamed", "meddled")
	t.Run("parts", func(t *testing.T) {
		t.Run("a Node that comes back under another name is reclaiming still", func(t *testing.T) { nodeComesBackUnderAnotherName(s.subtest(t)) })
		t.Run("people cordon and untaint", func(t *testing.T) { peopleCordonAndUntaint(s.subtest(t)) })
	})
	s.eventually("no reclaim is under way", func(ctx context.Context) (bool, error) {
		metrics, err := s.autoscaler.Metrics(ctx)
		gauge := metrics["gpu_spot_reclaims_in_progress"].GetMetric()
		return len(gauge) == 1 && gauge[0].GetGauge().GetValue() == 0, err
	})
}

func nodeComesBackUnderAnotherName(s *jobSuite) {
	createDeployment(s.suite, 1, awaiting("renamed"))
	pods := s.awaitRunningPods("job=renamed", 1)
	early := s.reclaimNodesOf(pods...)
	awaitCheckpointRequest(s, pods)
	was := nodeOfPod(s.suite, pods[0].Name)
	require.True(s.t, marked(was))
	instance := instanceOf(was)

	require.NoError(s.t, s.Client.CoreV1().Nodes().Delete(s.t.Context(), was.Name, metav1.DeleteOptions{}))
	is := registerNode(s, "renamed", was)
	late := awaiting("late") // whichever controller made it
	late.Spec.NodeName, late.Spec.NodeSelector = is.Name, nil
	s.Submit(s.t, late)
	s.deletePods(&pods[0]) // as the pod garbage collector does, in about a minute
	s.eventually("the Node is marked under its new name", func(ctx context.Context) (bool, error) {
		node, err := s.node(ctx, instance)
		return node != nil && node.Name == is.Name && marked(node) &&
			node.Annotations[api.AnnotationReclaimDeadline] == was.Annotations[api.AnnotationReclaimDeadline], err
	})
	last := s.awaitRunningPods("job=late", 1)
	acknowledge(s, last[0], awaitCheckpointRequest(s, last))
	s.awaitGone(reclaimedPods{pods: last, deadline: early.deadline})
	now := s.awaitRunningPods("job=renamed", 1)
	assert.NotContains(s.t, []string{was.Name, is.Name}, now[0].Spec.NodeName)
	s.eventually("the Node goes with its instance", func(ctx context.Context) (bool, error) {
		node, err := s.node(ctx, instance)
		return node == nil, err
	})
	s.requireBought("renamed", 1+1)
	s.awaitRunningPods("job=renamed", 1)
}

// registerNode makes a Node of the machine of another one, as a kubelet does that finds none of its name.
func registerNode(s *jobSuite, name string, machine *corev1.Node) *corev1.Node {
	s.t.Helper()
	node := cluster.NewFakeNode(name, machine.Status.Capacity)
	labels := maps.Clone(machine.Labels)
	delete(labels, "gpu-spot.autoscaling/reclaiming")
	maps.Copy(labels, node.Labels)
	node.Labels = labels
	node.Spec.ProviderID = machine.Spec.ProviderID
	require.NoError(s.t, s.Cluster.CreateNodes(s.t.Context(), []*corev1.Node{node}))
	return node
}

func peopleCordonAndUntaint(s *jobSuite) {
	createDeployment(s.suite, 2, awaiting("meddled"))
	pods := s.awaitRunningPods("job=meddled", 2)
	cordoned, other := nodeOfPod(s.suite, pods[0].Name), nodeOfPod(s.suite, pods[1].Name)
	patchNode(s.suite, cordoned.Name, `{"spec": {"unschedulable": true}}`)
	s.reclaimNodesOf(pods...)
	awaitCheckpointRequest(s, pods)
	patchNode(s.suite, other.Name, `{"spec": {"unschedulable": null, "taints": null}, "metadata": {"labels": {"gpu-spot.autoscaling/reclaiming": null}}}`)
	for _, node := range []*corev1.Node{cordoned, other} {
		s.eventually(node.Name+" is marked", func(ctx context.Context) (bool, error) {
			now, err := s.node(ctx, instanceOf(node))
			return now != nil && marked(now), err
		})
	}
	for _, node := range []*corev1.Node{cordoned, other} {
		require.NoError(s.t, s.Cloud.Withdraw(instanceOf(node)))
	}
	for _, node := range []*corev1.Node{cordoned, other} {
		s.eventually(node.Name+" is as people left it", func(ctx context.Context) (bool, error) {
			now, err := s.node(ctx, instanceOf(node))
			return now != nil && len(traces(now)) == 0 && now.Spec.Unschedulable == (node == cordoned), err
		})
	}
	s.eventually("the pods are asked for nothing", func(ctx context.Context) (bool, error) {
		for _, pod := range pods {
			now, err := s.pod(ctx, pod.Name)
			if now == nil || now.Annotations[api.AnnotationCheckpointRequest] != "" {
				return false, err
			}
		}
		return true, nil
	})
	remain, err := podsRemain(s.t.Context(), s, pods...)
	require.NoError(s.t, err)
	assert.True(s.t, remain, "and never left")
}

// patchNode changes a Node as a person would.
func patchNode(s *suite, name, patch string) {
	s.t.Helper()
	_, err := s.Client.CoreV1().Nodes().Patch(s.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(s.t, err)
}

// keepHeld is an admission policy that refuses to take the label off a held TrainingJob.
const keepHeld = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: keep-held}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [kai.alibabacloud.com], apiVersions: ["*"], operations: [UPDATE], resources: [trainingjobs]}]}
  validations:
    - message: the mark stays
      expression: >-
        !('gpu-spot.autoscaling/held' in oldObject.metadata.?labels.orValue({})) ||
        'gpu-spot.autoscaling/held' in object.metadata.?labels.orValue({})
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: keep-held}
spec: {policyName: keep-held, validationActions: [Deny]}
`

// A leader is killed when the job is suspended, another when it has bought what the job needs, and a third when it has
// resumed the job, but could not yet take the marks off it.
func TestJobRecoversOnceWhereLeadersAreKilled(t *testing.T) {
	w := newWorld()
	w.ActivityDelay = metav1.Duration{Duration: 8 * time.Second} // a purchase is under way when the next leader looks
	s := newJobSuiteWithoutAutoscaler(t, w, "mourned")
	lead := func() { s.runLeader("--scale-down-unneeded-time=10m") }
	lead()
	s.runOperator(standin.NewETOperator)
	s.submit(keepHeld)
	s.submit(fmt.Sprintf(`
apiVersion: kai.alibabacloud.com/v1alpha1
kind: TrainingJob
metadata: {name: mourned}
spec:
  restartPolicy: OnFailure
  backoffLimit: 0
  etReplicaSpecs:
    launcher: {replicas: 1, template: %s}
    worker: {replicas: 4, minReplicas: 3, maxReplicas: 4, restartPolicy: Always, template: %s}
`, systemTemplate("horovodrun -np 4 --min-np 3 --max-np 4 --host-discovery-script /etc/edl/discover_hosts.sh python train.py"), gpuTemplate("mourned")))
	const workersOf = "training-job-name=mourned,training-job-role=worker"
	workers := s.awaitRunningPods(workersOf, 4)
	s.awaitField(standin.TrainingJobs, "mourned", "status.phase", "Running")

	setPoolMaximum(s, "mourned", 2) // so that the leader does not live to see it resumed
	reclaiming := s.reclaimNodesOf(workers[:2]...)
	s.awaitJobEvent("TrainingJob", "mourned", "SpotJobSuspended", 1)
	s.awaitGone(reclaiming)
	s.awaitField(standin.TrainingJobs, "mourned", "status.phase", "Suspended")
	s.autoscaler.Kill()
	s.requireBought("mourned", 4)

	setPoolMaximum(s, "mourned", 4)
	lead()
	s.eventually("the purchase is asked for", func(context.Context) (bool, error) { return boughtOfPool(s, "mourned") > 4, nil })
	s.autoscaler.Kill()

	lead()
	again := s.awaitRunningPods(workersOf, 4)
	s.requireOtherNodes(reclaiming, again)
	s.awaitField(standin.TrainingJobs, "mourned", "status.phase", "Running")
	job, err := s.getObject(t.Context(), standin.TrainingJobs, "mourned")
	require.NoError(t, err)
	require.Equal(t, string(jobs.HeldSuspended), job.GetLabels()[labelHeld], "the next leader goes by the label")
	s.autoscaler.Kill()
	policies := s.Client.AdmissionregistrationV1()
	require.NoError(t, policies.ValidatingAdmissionPolicyBindings().Delete(t.Context(), "keep-held", metav1.DeleteOptions{}))
	require.NoError(t, policies.ValidatingAdmissionPolicies().Delete(t.Context(), "keep-held", metav1.DeleteOptions{}))

	lead()
	s.awaitNotHeld(standin.TrainingJobs, "mourned")
	remain, err := podsRemain(t.Context(), s, again...)
	require.NoError(t, err)
	assert.True(t, remain, "no worker was started twice")
	// There is no Event where the answer to the write that took off the marks was lost, with the third leader or with a connection.
	assert.LessOrEqual(t, countEvents(s, "TrainingJob", "mourned", "SpotJobResumed"), 1)
	assert.Equal(t, 1, countEvents(s, "TrainingJob", "mourned", "SpotJobSuspended"))
	assert.EqualValues(t, 0, s.field(standin.TrainingJobs, "mourned", "status.restartCount"))
	s.requireBought("mourned", 4+2)
}
