package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// nodeAgentManifest is what InstallNodeAgent applies.
	nodeAgentManifest = "deploy/manifests/optional/node-agent.yaml"
	// nodeAgentPods selects the pods of its DaemonSet.
	nodeAgentPods = "app.kubernetes.io/name=gpu-spot-node-agent"

	waitForPod = time.Minute

	// nodeAddress is where the agents listen. All of 127.0.0.0/8 leads to this machine, so that whoever calls from another
	// address in it is to the agent a pod with that address, and from nodeAddress one on the node's network.
	nodeAddress = "127.0.0.2"
	// PodAddress is from where a process calls that does not choose.
	PodAddress = "127.0.0.1"
)

var buildNodeAgent = sync.OnceValues(func() (string, error) { return buildBinary("node-agent", "-race") })

// NodeAgent is a process of the real binary, in place of a pod of its DaemonSet: with that pod's name, token and Node, and
// the metadata of that Node's instance.
type NodeAgent struct {
	// Pod is of the DaemonSet, Kubeconfig has its token, and URL is where the process answers.
	Pod             *corev1.Pod
	Kubeconfig, URL string

	command *exec.Cmd
	log     bytes.Buffer
}

// InstallManifest applies a file of this repository, with the region of the world in place of the one that is shipped.
func (r *Rig) InstallManifest(t *testing.T, path string) {
	t.Helper()
	root, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	if err := apply(t.Context(), r, filepath.Join(root, path)); err != nil {
		t.Fatal(err)
	}
}

// InstallNodeAgent applies the shipped DaemonSet, with all that belongs to it.
func (r *Rig) InstallNodeAgent(t *testing.T) {
	t.Helper()
	r.InstallManifest(t, nodeAgentManifest)
}

// RunNodeAgent runs the agent of the Node until the test ends, from when the DaemonSet has a pod there, and returns when it accepts connections.
// Further flags win.
func (r *Rig) RunNodeAgent(t *testing.T, node *corev1.Node, instanceID string, flags ...string) *NodeAgent {
	t.Helper()
	binary, err := buildNodeAgent()
	if err != nil {
		t.Fatal(err)
	}
	a := &NodeAgent{Pod: r.nodeAgentPod(t, node.Name)}
	if a.Kubeconfig, err = r.Cluster.PodKubeconfig(t.Context(), a.Pod); err != nil {
		t.Fatal(err)
	}
	port, err := FreePort(t.Context(), nodeAddress)
	if err != nil {
		t.Fatal(err)
	}
	a.URL = "http://" + net.JoinHostPort(nodeAddress, port)
	a.command = exec.Command(binary, append([]string{
		"--node-name=" + node.Name, "--address=" + nodeAddress, "--port=" + port, "--protected-period=0s",
		"--kubeconfig=" + a.Kubeconfig, "--metadata-endpoint=" + r.Cloud.MetadataURL(instanceID),
	}, flags...)...)
	a.command.Env = append(os.Environ(), "GORACE=halt_on_error=1")
	a.command.Stdout, a.command.Stderr = &a.log, &a.log
	a.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := a.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.stop(t) })
	Eventually(t, waitForPod, "the node-agent of "+node.Name+" accepts connections", func(ctx context.Context) (bool, error) {
		connection, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(nodeAddress, port))
		if err != nil {
			return false, nil
		}
		return true, connection.Close()
	})
	return a
}

func (a *NodeAgent) stop(t *testing.T) {
	_ = a.command.Process.Signal(syscall.SIGTERM) // it may have ended
	err := a.command.Wait()
	var exit *exec.ExitError
	early := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGTERM // before it listened to signals
	if err != nil && !early {
		t.Errorf("the node-agent: %v", err)
	}
	if t.Failed() {
		t.Logf("the node-agent of %s said:\n%s", a.Pod.Spec.NodeName, a.log.String())
	}
}

// nodeAgentPod waits for the DaemonSet's pod on the Node.
func (r *Rig) nodeAgentPod(t *testing.T, node string) (pod *corev1.Pod) {
	t.Helper()
	Eventually(t, waitForPod, "the DaemonSet has a pod on "+node, func(ctx context.Context) (bool, error) {
		pods, err := r.Client.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{
			LabelSelector: nodeAgentPods, FieldSelector: "spec.nodeName=" + node,
		})
		if err != nil || len(pods.Items) == 0 {
			return false, err
		}
		pod = &pods.Items[0]
		return true, nil
	})
	return pod
}

// Reclaim is what the agent tells the pods of its node: nil and nil while there is no notice.
func (a *NodeAgent) Reclaim(ctx context.Context) (deadline *string, secondsLeft *int, err error) {
	answer, err := a.reclaim(ctx, http.DefaultClient)
	return answer.Deadline, answer.SecondsLeft, err
}

// CheckpointInterval returns how many seconds the pod at PodAddress is told to train from one checkpoint to the next, zero if it is told nothing.
func (a *NodeAgent) CheckpointInterval(ctx context.Context) (int, error) {
	answer, err := a.reclaim(ctx, clientAt(PodAddress))
	return answer.CheckpointInterval, err
}

type reclaimAnswer struct {
	Deadline           *string `json:"deadline"`
	SecondsLeft        *int    `json:"seconds_left"`
	CheckpointInterval int     `json:"checkpoint_interval_seconds"`
}

func (a *NodeAgent) reclaim(ctx context.Context, client *http.Client) (answer reclaimAnswer, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL+"/v1/reclaim", nil)
	if err != nil {
		return answer, err
	}
	response, err := client.Do(request)
	if err != nil {
		return answer, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return answer, fmt.Errorf("GET /v1/reclaim: %s", response.Status)
	}
	return answer, json.NewDecoder(response.Body).Decode(&answer)
}

// clientAt returns a client that calls from an address of this machine.
func clientAt(address string) *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
}

// GivePodAddress has the pod's status say that it is at an address of this machine, from which a process can speak for it.
func (r *Rig) GivePodAddress(t *testing.T, pod *corev1.Pod, address string) {
	t.Helper()
	patch := fmt.Sprintf(`{"status": {"podIP": %[1]q, "podIPs": [{"ip": %[1]q}]}}`, address)
	if _, err := r.Client.CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

// Say posts the acknowledgement that a checkpoint is saved from PodAddress, and returns the status.
func (a *NodeAgent) Say(ctx context.Context, acknowledgement string) (status int, err error) {
	return a.SayFrom(ctx, PodAddress, acknowledgement)
}

// SayFrom is Say from an address of this machine.
func (a *NodeAgent) SayFrom(ctx context.Context, address, acknowledgement string) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.URL+"/v1/checkpoint-acknowledged", bytes.NewBufferString(acknowledgement))
	if err != nil {
		return 0, err
	}
	response, err := clientAt(address).Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}
