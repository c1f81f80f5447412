package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// parentEnv makes this test binary start a cluster, print its processes, and wait to be killed.
const parentEnv = "TEST_CLUSTER_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentEnv) != "" {
		if err := beParent(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func beParent() error {
	c, err := Start(context.Background(), Options{Output: os.Stderr})
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(allProcesses(c)); err != nil {
		return err
	}
	<-c.Done()
	return c.Err()
}

func pauseAPIServer(c *Cluster, ctx context.Context) error { return c.Pause(ctx, APIServer) }

func resumeAPIServer(c *Cluster, ctx context.Context) error { return c.Resume(ctx, APIServer) }

// allProcesses are those of the components and the supervisor.
func allProcesses(c *Cluster) map[string]int {
	all := map[string]int{"supervisor": c.process.cmd.Process.Pid}
	for name, pid := range c.info.Processes {
		all[name] = pid
	}
	return all
}

func TestTwoClustersSideBySide(t *testing.T) {
	one, other := StartForTest(t), StartForTest(t)
	require.NotEqual(t, one.AdminConfig().Host, other.AdminConfig().Host)
	require.NotEqual(t, one.Dir(), other.Dir())
	createNode(t, clientOf(t, one), "only-here", nil)
	nodes, err := clientOf(t, other).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, nodes.Items)

	other.Stop()
	require.NoError(t, one.WaitReady(t.Context()), "one cluster's end is not the other's")
}

func TestStopLeavesNothingBehind(t *testing.T) {
	c := StartForTest(t)
	processes := allProcesses(c)
	require.Len(t, processes, 6)
	c.Stop()
	for name, pid := range processes {
		require.Truef(t, gone(pid), "%s still runs", name)
	}
	require.NoDirExists(t, c.Dir())
	require.NoError(t, c.Err())
	require.ErrorIs(t, c.Pause(t.Context(), APIServer), errStopped)
	c.Stop() // twice does no harm
}

func TestClusterDiesWithAKilledParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentEnv+"=1")
	parent.Stderr = t.Output()
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	line, err := bufio.NewReader(out).ReadBytes('\n')
	require.NoError(t, err)
	var processes map[string]int
	require.NoError(t, json.Unmarshal(line, &processes))
	require.Len(t, processes, 6)

	require.NoError(t, parent.Process.Kill())
	require.Error(t, parent.Wait())
	awaitGone(t, processes)
}

func TestComponentsDieWithAKilledSupervisor(t *testing.T) {
	c := startUnguarded(t)
	require.NoError(t, c.Pause(t.Context(), APIServer)) // a stopped process cannot see its pipe close
	processes := allProcesses(c)
	require.NoError(t, syscall.Kill(processes["supervisor"], syscall.SIGKILL))
	<-c.Done()
	require.ErrorContains(t, c.Err(), "killed")
	awaitGone(t, processes)
}

func TestClusterEndsWithAFailedComponent(t *testing.T) {
	c := startUnguarded(t)
	processes := allProcesses(c)
	require.NoError(t, syscall.Kill(processes[Etcd], syscall.SIGKILL))
	<-c.Done()
	require.ErrorContains(t, c.Err(), "etcd ended by itself")
	require.Error(t, c.WaitReady(t.Context()))
	awaitGone(t, processes)
}

func TestSilentNodeBecomesNotReadyAndItsPodsFreeze(t *testing.T) {
	c := StartForTestWith(t, Options{NodeGracePeriod: minGracePeriod})
	client := clientOf(t, c)
	createNode(t, client, "mortal", nil)
	createNode(t, client, "healthy", nil)
	pod := awaitPod(t, client, createPod(t, client, "frozen", "mortal", map[string]string{RunForAnnotation: "2s"}), podReady)
	setFake(t, client, "mortal", false)

	silent := awaitNode(t, client, "mortal", func(n *corev1.Node) bool { return nodeReady(n) == corev1.ConditionUnknown })
	require.Eventually(t, func() bool {
		silent, err := client.CoreV1().Nodes().Get(t.Context(), "mortal", metav1.GetOptions{})
		return err == nil && len(silent.Spec.Taints) == 2 // NoSchedule and NoExecute
	}, patience, 100*time.Millisecond, "taints of %v", silent.Spec.Taints)
	healthy, err := client.CoreV1().Nodes().Get(t.Context(), "healthy", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, corev1.ConditionTrue, nodeReady(healthy))
	// The Node is unreachable only after twice run-for, so that a pod of it that could complete would have.
	now, err := client.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, corev1.PodRunning, now.Status.Phase)

	setFake(t, client, "mortal", true)
	awaitNode(t, client, "mortal", func(n *corev1.Node) bool { return nodeReady(n) == corev1.ConditionTrue && len(n.Spec.Taints) == 0 })
	awaitPod(t, client, pod, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
}

func TestAPIServerGoesAndComesBack(t *testing.T) {
	tests := map[string]struct {
		away, back func(*Cluster, context.Context) error
	}{
		"silent":           {pauseAPIServer, resumeAPIServer},
		"refusing clients": {(*Cluster).KillAPIServer, (*Cluster).StartAPIServer},
	}
	c := StartForTest(t)
	client := clientOf(t, c)
	createNode(t, client, "stays", nil)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			name := strings.ReplaceAll(name, " ", "-")
			created := createPod(t, client, name, "stays", map[string]string{RunForAnnotation: "1s"})
			require.NoError(t, test.away(c, t.Context()))
			require.Error(t, askOnce(t, c))
			require.NoError(t, test.back(c, t.Context()))
			require.NoError(t, askOnce(t, c))
			awaitPod(t, client, created, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
		})
	}
}

// askOnce makes one request on a connection of its own, with little patience.
func askOnce(t *testing.T, c *Cluster) error {
	t.Helper()
	config := c.AdminConfig()
	config.Timeout = 2 * time.Second
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(config, t.Name()))
	require.NoError(t, err)
	_, err = client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
	return err
}

// startUnguarded starts a cluster that the test means to break.
func startUnguarded(t *testing.T) *Cluster {
	t.Helper()
	c, err := Start(t.Context(), Options{Output: t.Output()})
	require.NoError(t, err)
	t.Cleanup(c.Stop)
	return c
}

func awaitGone(t *testing.T, processes map[string]int) {
	t.Helper()
	for name, pid := range processes {
		require.Eventuallyf(t, func() bool { return gone(pid) }, patience, 20*time.Millisecond, "%s still runs", name)
	}
}

// gone reports whether a process has ended, though perhaps nobody has reaped it yet.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return os.IsNotExist(err)
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "Z")
}
