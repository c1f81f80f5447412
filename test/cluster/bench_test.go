package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

const (
	benchNodes       = 1000
	benchPodsPerNode = 10
)

// BenchmarkCluster measures a cluster's start and what it can take: the creation of Nodes and of pods already bound to
// them, until the last pod runs, and the memory of all its processes before and after.
func BenchmarkCluster(b *testing.B) {
	for b.Loop() {
		c := StartForTestWith(b, Options{NodeGracePeriod: 10 * time.Minute})
		b.ReportMetric(c.StartTime().Seconds(), "start-s")
		b.ReportMetric(residentMiB(b, c), "idle-MiB")

		nodes, pods := benchObjects()
		b.ReportMetric(benchNodes/timed(b, func() error { return c.CreateNodes(b.Context(), nodes) }), "nodes/s")
		began := time.Now()
		b.ReportMetric(float64(len(pods))/timed(b, func() error { return c.CreatePods(b.Context(), pods) }), "pods/s")
		awaitRunning(b, c, len(pods))
		b.ReportMetric(float64(len(pods))/time.Since(began).Seconds(), "running-pods/s")
		b.ReportMetric(residentMiB(b, c), "full-MiB")
	}
}

func benchObjects() (nodes []*corev1.Node, pods []*corev1.Pod) {
	for i := range benchNodes {
		node := fmt.Sprintf("node-%d", i)
		nodes = append(nodes, NewFakeNode(node, capacity()))
		for j := range benchPodsPerNode {
			pod := podFor(fmt.Sprintf("%s-%d", node, j), "", nil)
			pod.Spec.NodeName = node
			pods = append(pods, pod)
		}
	}
	return nodes, pods
}

func timed(b *testing.B, work func() error) (seconds float64) {
	b.Helper()
	began := time.Now()
	require.NoError(b, work())
	return time.Since(began).Seconds()
}

func awaitRunning(b *testing.B, c *Cluster, count int) {
	b.Helper()
	client, err := kubernetes.NewForConfig(c.AdminConfig())
	require.NoError(b, err)
	err = wait.PollUntilContextTimeout(b.Context(), 500*time.Millisecond, 10*time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{FieldSelector: "status.phase!=Running", Limit: 1})
		return err == nil && len(list.Items) == 0, err
	})
	require.NoError(b, err, "waiting for %d pods", count)
}

// residentMiB is the sum of the resident memory of all processes of a cluster, in MiB; pages that they share, such as
// the program text, count for each.
func residentMiB(b *testing.B, c *Cluster) float64 {
	b.Helper()
	pages := 0
	for _, pid := range allProcesses(c) {
		statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			b.Skip("no /proc to read memory from")
		}
		resident, err := strconv.Atoi(string(bytes.Fields(statm)[1]))
		require.NoError(b, err)
		pages += resident
	}
	return float64(pages) * float64(os.Getpagesize()) / (1 << 20)
}
