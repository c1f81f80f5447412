package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/test/rig"
)

const (
	noticeOfAgent  = "gpu-spot.autoscaling/notice-agent"
	wordsOfAgent   = "gpu-spot.autoscaling/checkpoint-acknowledged"
	keepOff        = "gpu-spot.autoscaling/keep-off-reclaiming"
	keepOffInstall = "deploy/manifests/optional/keep-off-reclaiming.yaml"
)

func TestPodsThatSayHowLongACheckpointTakesAreToldHowOftenToSaveOne(t *testing.T) {
	s := newSuite(t, newWorld(spotPool("asg-1", 10)))
	s.InstallNodeAgent(t)
	s.RunAutoscaler(t)
	pods := gpuPods("train", 2)
	pods[0].Annotations = map[string]string{api.AnnotationCheckpointTime: "40s"}
	s.Submit(t, pods...)
	s.awaitRunning(pods...)
	s.GivePodAddress(t, pods[0], rig.PodAddress)
	id := instanceOf(nodeOfPod(s, pods[0].Name))

	var advised time.Duration
	s.eventually("the pod is told by an annotation", func(ctx context.Context) (bool, error) {
		pod, err := s.pod(ctx, pods[0].Name)
		if pod == nil || err != nil || pod.Annotations[api.AnnotationCheckpointInterval] == "" {
			return false, err
		}
		advised, err = time.ParseDuration(pod.Annotations[api.AnnotationCheckpointInterval])
		return err == nil, err
	})
	assert.Greater(t, advised, 10*time.Minute, "the instances are kept for hours")
	assert.Less(t, advised, 4*time.Hour)
	s.eventually("the Node says so to its agent", func(ctx context.Context) (bool, error) {
		node, err := s.node(ctx, id)
		return node != nil && node.Annotations[api.AnnotationCheckpointIntervals] != "", err
	})
	agent := s.RunNodeAgent(t, nodeOfPod(s, pods[0].Name), id) // which reads it at its start, and every five minutes
	s.eventually("the pod is told by the node-agent", func(ctx context.Context) (bool, error) {
		seconds, err := agent.CheckpointInterval(ctx)
		return seconds == int(advised.Seconds()), err
	})
	silent, err := s.pod(t.Context(), pods[1].Name)
	require.NoError(t, err)
	assert.NotContains(t, silent.Annotations, api.AnnotationCheckpointInterval, "it does not say how long a checkpoint takes")
}

func TestNodeAgentHearsOfTheReclaimBeforeThePollAndTakesTheAcknowledgementsOfThePods(t *testing.T) {
	w := newWorld(spotPool("asg-1", 10))
	w.RequireIMDSv2 = true
	w.NoticePeriod = metav1.Duration{Duration: 4 * time.Minute} // longer than this test waits for anything
	s := newSuite(t, w)
	s.InstallNodeAgent(t)
	s.RunAutoscaler(t, "--reclaim-poll-interval=1h")
	pods := gpuPods("train", 2)
	pods[0].Annotations = map[string]string{api.AnnotationAwaitCheckpoint: "true"}
	s.Submit(t, pods...)
	s.awaitRunning(pods...)
	s.GivePodAddress(t, pods[0], rig.PodAddress)
	reclaiming := nodeOfPod(s, pods[0].Name)
	id := instanceOf(reclaiming)
	agent := s.RunNodeAgent(t, reclaiming, id)
	s.eventually("the agent says that there is no notice", func(ctx context.Context) (bool, error) {
		deadline, left, err := agent.Reclaim(ctx)
		return deadline == nil && left == nil, err
	})
	word := `{"namespace": "default", "pod": "` + pods[0].Name + `"}`
	status, err := agent.Say(t.Context(), word)
	require.NoError(t, err)
	assert.Equal(t, http.StatusConflict, status, "nobody waits for a word yet")

	require.NoError(t, s.Cloud.Reclaim(id))
	s.eventually("the Node is marked for what the agent heard", func(ctx context.Context) (bool, error) {
		node, err := s.node(ctx, id)
		return node != nil && marked(node) && node.Annotations["gpu-spot.autoscaling/reclaim-source"] == "node-agent", err
	})
	node, err := s.node(t.Context(), id)
	require.NoError(t, err)
	deadline, left, err := agent.Reclaim(t.Context())
	require.NoError(t, err)
	require.NotNil(t, deadline)
	assert.Equal(t, node.Annotations[noticeOfAgent], *deadline)
	assert.Equal(t, node.Annotations["gpu-spot.autoscaling/reclaim-deadline"], *deadline, "the metadata states the deadline")
	assert.LessOrEqual(t, *left, 240)
	assert.Greater(t, *left, 120)

	s.eventually("the pod is asked for a checkpoint", func(ctx context.Context) (bool, error) {
		pod, err := s.pod(ctx, pods[0].Name)
		return pod != nil && pod.Annotations[api.AnnotationCheckpointRequest] != "", err
	})
	before := time.Now()
	s.eventually("the pod is heard", func(ctx context.Context) (bool, error) {
		status, err := agent.Say(ctx, word)
		return status == http.StatusNoContent, err
	})
	if node, err = s.node(t.Context(), id); assert.NoError(t, err) && assert.NotNil(t, node) {
		said := strings.Split(node.Annotations[wordsOfAgent], "@")
		require.Len(t, said, 3)
		assert.Equal(t, "default/"+pods[0].Name, said[0])
		assert.Equal(t, rig.PodAddress, said[2])
		seconds, err := strconv.ParseInt(said[1], 10, 64)
		assert.NoError(t, err)
		assert.GreaterOrEqual(t, seconds, before.Unix())
	}
	s.eventually("the pod is gone, long before it would be without a word", func(ctx context.Context) (bool, error) {
		pod, err := s.pod(ctx, pods[0].Name)
		return pod == nil, err
	})
}

// A node is shared. Whoever runs on it reaches its agent, may know the names of all pods, and perhaps the ids of requests.
func TestNodeAgentHearsNobodyButThePodThatWasAsked(t *testing.T) {
	w := newWorld(spotPool("asg-1", 10))
	w.NoticePeriod = metav1.Duration{Duration: 4 * time.Minute} // longer than this test waits for anything
	s := newSuite(t, w)
	s.InstallNodeAgent(t)
	s.RunAutoscaler(t, "--reclaim-poll-interval=1s")
	pods := gpuPods("train", 1)
	pods[0].Annotations = map[string]string{api.AnnotationAwaitCheckpoint: "true"}
	s.Submit(t, pods...)
	s.awaitRunning(pods...)
	node := nodeOfPod(s, pods[0].Name)
	foreign := runOtherPodOn(s, pods[0].Name, node.Name)
	const own, others = "127.1.0.1", "127.1.0.2"
	s.GivePodAddress(t, pods[0], own)
	s.GivePodAddress(t, foreign, others)
	agent := s.RunNodeAgent(t, node, instanceOf(node))
	require.NoError(t, s.Cloud.Reclaim(instanceOf(node)))
	js := &jobSuite{suite: s}
	pod, err := s.pod(t.Context(), pods[0].Name)
	require.NoError(t, err)
	id := awaitCheckpointRequest(js, []corev1.Pod{*pod})

	byName, byID := fmt.Sprintf(`{"namespace": "default", "pod": %q}`, pod.Name), fmt.Sprintf(`{"id": %q}`, id)
	for range 300 { // a flood of what is forged
		for _, from := range []string{others, "127.0.0.2"} {
			for _, said := range []string{byName, byID, `{"id": "1-x"}`} {
				status, err := agent.SayFrom(t.Context(), from, said)
				require.NoError(t, err)
				require.Contains(t, []int{http.StatusConflict, http.StatusTooManyRequests}, status, "%s from %s", said, from)
			}
		}
	}
	writeAsAgent(s, agent, fmt.Sprintf("%[1]s@%[2]s,%[1]s@host,default/%[3]s@%[4]d@%[2]s,%[1]s,default/%[3]s@%[4]d", id, others, pod.Name, time.Now().Unix()+60))
	rig.Always(t, 5*time.Second, "nobody was heard", func(ctx context.Context) (bool, error) {
		return podsRemain(ctx, js, *pod)
	})
	s.eventually("the pod is heard at once, whatever the others say", func(ctx context.Context) (bool, error) {
		status, err := agent.SayFrom(ctx, own, byID)
		return status == http.StatusNoContent, err
	})
	s.awaitEvent("SpotCheckpointAcknowledged", id)
	s.eventually("the pod is gone, long before it would be without a word", func(ctx context.Context) (bool, error) {
		remains, err := podsRemain(ctx, js, *pod)
		return !remains, err
	})
}

// runOtherPodOn runs a pod of another namespace on the Node.
func runOtherPodOn(s *suite, name, node string) *corev1.Pod {
	s.t.Helper()
	const namespace = metav1.NamespacePublic
	pod, err := s.Client.CoreV1().Pods(namespace).Create(s.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "other", Image: "other"}}},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.eventually("the neighbour runs", func(ctx context.Context) (bool, error) {
		now, err := s.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		return err == nil && now.Status.Phase == corev1.PodRunning, err
	})
	return pod
}

// writeAsAgent writes acknowledgements on the Node with the agent's token, as an attacker who stole it would.
func writeAsAgent(s *suite, agent *rig.NodeAgent, acknowledgements string) {
	s.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", agent.Kubeconfig)
	require.NoError(s.t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(s.t, err)
	patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, wordsOfAgent, acknowledgements)
	_, err = client.CoreV1().Nodes().Patch(s.t.Context(), agent.Pod.Spec.NodeName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(s.t, err)
}

func TestNodeAgentMayWriteItsTwoAnnotationsOnItsOwnNodeAndNothingElse(t *testing.T) {
	s := newSuite(t, newWorld(spotPool("asg-1", 10)))
	s.InstallNodeAgent(t)
	s.RunAutoscaler(t)
	pods := gpuPods("train", 2)
	s.Submit(t, pods...)
	s.awaitRunning(pods...)
	own, other := nodeOfPod(s, pods[0].Name), nodeOfPod(s, pods[1].Name)
	agent := s.RunNodeAgent(t, own, instanceOf(own))
	unbound, err := s.Cluster.ServiceAccountKubeconfig(t.Context(), rig.Namespace, agent.Pod.Spec.ServiceAccountName)
	require.NoError(t, err)

	patch := func(kubeconfig, node, body string, dryRun ...string) error {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		require.NoError(t, err)
		client, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)
		_, err = client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(body), metav1.PatchOptions{DryRun: dryRun})
		return err
	}
	s.eventually("the admission policy is in force", func(context.Context) (bool, error) {
		return apierrors.IsForbidden(patch(agent.Kubeconfig, own.Name, `{"spec": {"unschedulable": true}}`, metav1.DryRunAll)), nil
	})
	notice := `{"metadata": {"annotations": {"` + noticeOfAgent + `": "2026-01-01T00:00:00Z"}}}`
	for name, c := range map[string]struct {
		kubeconfig, node, patch string
		allowed                 bool
	}{
		"notice on its own Node":     {agent.Kubeconfig, own.Name, notice, true},
		"word on its own Node":       {agent.Kubeconfig, own.Name, `{"metadata": {"annotations": {"` + wordsOfAgent + `": "id"}}}`, true},
		"notice taken off":           {agent.Kubeconfig, own.Name, `{"metadata": {"annotations": {"` + noticeOfAgent + `": null}}}`, true},
		"another Node":               {agent.Kubeconfig, other.Name, notice, false},
		"token that is of no node":   {unbound, own.Name, notice, false},
		"another annotation":         {agent.Kubeconfig, own.Name, `{"metadata": {"annotations": {"a": "b"}}}`, false},
		"another annotation removed": {agent.Kubeconfig, own.Name, `{"metadata": {"annotations": {"kwok.x-k8s.io/node": null}}}`, false},
		"another annotation changed": {agent.Kubeconfig, own.Name, `{"metadata": {"annotations": {"kwok.x-k8s.io/node": "real"}}}`, false},
		"label":                      {agent.Kubeconfig, own.Name, `{"metadata": {"labels": {"a": "b"}}}`, false},
		"finalizer":                  {agent.Kubeconfig, own.Name, `{"metadata": {"finalizers": ["a.example/b"]}}`, false},
		"cordon":                     {agent.Kubeconfig, own.Name, `{"spec": {"unschedulable": true}}`, false},
		"taint":                      {agent.Kubeconfig, own.Name, `{"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}`, false},
	} {
		err := patch(c.kubeconfig, c.node, c.patch)
		if c.allowed {
			assert.NoError(t, err, name)
		} else {
			assert.True(t, apierrors.IsForbidden(err), "%s: %v", name, err)
			assert.ErrorContains(t, err, "an agent writes", name)
		}
	}
}

func TestNodeAgentWritesWhatItHeardWhileTheAPIServerWasAwayAndTakesItBack(t *testing.T) {
	rig.Long(t)
	s := newSuiteWith(t, rig.Options{World: newWorld(spotPool("asg-1", 10)), OwnCluster: true})
	s.InstallNodeAgent(t)
	autoscaler := s.RunAutoscaler(t)
	pods := gpuPods("train", 1)
	s.Submit(t, pods...)
	s.awaitRunning(pods...)
	autoscaler.Kill()
	node := nodeOfPod(s, pods[0].Name)
	id := instanceOf(node)
	agent := s.RunNodeAgent(t, node, id)
	s.eventually("the agent has started", func(ctx context.Context) (bool, error) {
		_, _, err := agent.Reclaim(ctx)
		return err == nil, err
	})
	require.NoError(t, s.Cluster.KillAPIServer(t.Context()))
	require.NoError(t, s.Cloud.Reclaim(id))
	s.eventually("pods are told", func(ctx context.Context) (bool, error) {
		deadline, _, err := agent.Reclaim(ctx)
		return deadline != nil, err
	})
	status, err := agent.Say(t.Context(), `{"id": "request-1"}`)
	require.NoError(t, err)
	assert.Equal(t, http.StatusServiceUnavailable, status, "nothing is acknowledged that is not written")
	require.NoError(t, s.Cluster.StartAPIServer(t.Context()))
	s.eventually("the Node has the notice", func(ctx context.Context) (bool, error) {
		node, err := s.node(ctx, id)
		return node != nil && node.Annotations[noticeOfAgent] != "", err
	})
	require.NoError(t, s.Cloud.Withdraw(id))
	s.eventually("the notice is taken off with that of the metadata", func(ctx context.Context) (bool, error) {
		node, err := s.node(ctx, id)
		return node != nil && node.Annotations[noticeOfAgent] == "", err
	})
}

// nodeOfPod is where the pod runs.
func nodeOfPod(s *suite, name string) *corev1.Node {
	s.t.Helper()
	pod, err := s.pod(s.t.Context(), name)
	require.NoError(s.t, err)
	require.NotNil(s.t, pod)
	node, err := s.Client.CoreV1().Nodes().Get(s.t.Context(), pod.Spec.NodeName, metav1.GetOptions{})
	require.NoError(s.t, err)
	return node
}

// instanceOf is the id of the Node's instance.
func instanceOf(node *corev1.Node) string {
	_, id, _ := strings.Cut(node.Spec.ProviderID, ".")
	return id
}
