package e2e

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/test/pki"
	"gpu-spot-autoscaler/test/rig"
)

// runServed runs the autoscaler, as the chart starts it with the values of docs/serve.md, as the provider of a Cluster Autoscaler as its authors build it,
// which runs, too, with the file and the flags of that page. Addresses and directories are those that are free here.
func runServed(s *suite) {
	s.t.Helper()
	address := func() string {
		port, err := rig.FreePort(s.t.Context(), "127.0.0.1")
		require.NoError(s.t, err)
		return net.JoinHostPort("127.0.0.1", port)
	}
	provider, expander := address(), address()
	serverDir, authorityDir, clientDir := s.t.TempDir(), s.t.TempDir(), s.t.TempDir()
	servers, clients := pki.New(s.t, "servers"), pki.New(s.t, "clients")
	servers.Write(serverDir, "serve")
	clients.WriteCA(authorityDir)
	guide := readServeGuide(s.t)
	chart := renderServing(s, guide.values)
	args := chart.argsWith(s.t, map[string]string{"gpu-spot-serve-tls": serverDir, "gpu-spot-serve-clients": authorityDir})
	chart.requireReached(s.t, guide, args)
	s.RunAutoscaler(s.t, append(args, "--serve-address="+provider, "--serve-expander-address="+expander, "--reclaim-notice-period=40s", "--reclaim-poll-interval=1s")...)

	servers.WriteCA(clientDir)
	clients.Write(clientDir, "cluster-autoscaler")
	here := strings.NewReplacer("/etc/gpu-spot-config/", clientDir+"/", "/etc/gpu-spot/", clientDir+"/", guide.address(), provider, guide.valueOf(s.t, "--grpc-expander-url"), expander)
	file := strings.TrimPrefix(here.Replace("--cloud-config="+guide.valueOf(s.t, "--cloud-config")), "--cloud-config=")
	require.NoError(s.t, os.WriteFile(file, []byte(here.Replace(guide.cloudConfig)), 0o600))
	flags := strings.Split(here.Replace(strings.Join(guide.flags, "\n")), "\n")
	s.RunStock(s.t, append(flags, "--scan-interval=1s", "--scale-down-unneeded-time=15s", "--v=2")...)
}

func TestAClusterAutoscalerOfItsAuthorsScalesAndAJobSurvivesAReclaimThroughServe(t *testing.T) {
	s := newSuite(t, newWorld(spotPool("asg-1", 10)))
	runServed(s)

	pod := rig.GPUPod("train", 1)
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	jobs := s.Client.BatchV1().Jobs(metav1.NamespaceDefault)
	_, err := jobs.Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "train"},
		Spec: batchv1.JobSpec{
			CompletionMode: ptr.To(batchv1.IndexedCompletion), Parallelism: ptr.To[int32](2), Completions: ptr.To[int32](2), BackoffLimit: ptr.To[int32](0),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	s.eventually("both workers run", func(ctx context.Context) (bool, error) {
		pods, err := runningReplicas(ctx, s, "train")
		return len(pods) == 2, err
	})
	assert.Equal(t, map[string]int{zoneB: 2}, s.zonesOf("asg-1"), "by the expander: the cheapest")

	reclaiming := s.instances("asg-1")[0].ID
	require.NoError(t, s.Cloud.Reclaim(reclaiming))
	s.eventually("its Node is marked", func(ctx context.Context) (bool, error) {
		node, err := s.node(ctx, reclaiming)
		return node != nil && marked(node), err
	})
	s.awaitEvent("SpotJobSuspended")
	s.awaitEvent("SpotJobResumed")
	s.eventually("both workers run again, elsewhere", func(ctx context.Context) (bool, error) {
		pods, err := runningReplicas(ctx, s, "train")
		if err != nil || len(pods) != 2 {
			return false, err
		}
		node, err := s.node(ctx, reclaiming)
		return node == nil || pods[0].Spec.NodeName != node.Name && pods[1].Spec.NodeName != node.Name, err
	})
	s.eventually("the released instance's Node is gone", func(ctx context.Context) (bool, error) {
		node, err := s.node(ctx, reclaiming)
		return node == nil, err
	})
	assert.Equal(t, 3, boughtInstances(s), "two, and one replacement for one reclaim")
	job, err := jobs.Get(t.Context(), "train", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Zero(t, job.Status.Failed)

	require.NoError(t, jobs.Delete(t.Context(), "train", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}))
	s.eventually("the nodes are given back", func(context.Context) (bool, error) { return len(s.instances("asg-1")) == 0, nil })
	s.eventually("their Nodes go", func(ctx context.Context) (bool, error) {
		nodes, err := s.nodes(ctx)
		return len(nodes) == 0, err
	})
	assert.Equal(t, 3, boughtInstances(s), "nothing more")
}
