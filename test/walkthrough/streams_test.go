package walkthrough

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	remotecommandconsts "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/kubelet/pkg/cri/streaming/portforward"
	streaming "k8s.io/kubelet/pkg/cri/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

const (
	// idleStream is when a stream is closed that nothing comes through, and newStream how long a caller may take to open one.
	idleStream, newStream = 5 * time.Minute, 30 * time.Second
	// securePort is that of the chart; in the process of a container it is another.
	securePort = 8444
)

// handler serves what the API server asks a kubelet for, at the paths of k8s.io/kubernetes/pkg/kubelet/server.
func (k *kubelet) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/containerLogs/{namespace}/{pod}/{container}", k.serveLog)
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		options, err := streaming.NewOptions(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		streaming.ServeExec(w, r, k, r.PathValue("pod"), "", r.PathValue("container"), r.URL.Query()["command"], options, idleStream, newStream,
			remotecommandconsts.SupportedStreamingProtocols)
	})
	mux.HandleFunc("/portForward/{namespace}/{pod}", func(w http.ResponseWriter, r *http.Request) {
		options, err := portforward.NewV4Options(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		portforward.ServePortForward(w, r, k, r.PathValue("pod"), "", options, idleStream, newStream, portforward.SupportedProtocols)
	})
	return mux
}

// serveLog serves what a container has written, as kubectl logs and helm ask for it.
func (k *kubelet) serveLog(w http.ResponseWriter, r *http.Request) {
	http.ServeFile(w, r, filepath.Join(k.dir, filepath.Base(r.PathValue("pod"))+".log"))
}

// named returns the container that runs in a pod of this name.
func (k *kubelet) named(pod string) (*container, error) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	for _, c := range k.running {
		if c.pod.Name == pod && !c.over {
			return c, nil
		}
	}
	return nil, fmt.Errorf("pod %s has no container that runs", pod)
}

// ExecInContainer runs the binary of the image as the pod does: with its token, its variables and its cloud.
func (k *kubelet) ExecInContainer(ctx context.Context, pod string, _ types.UID, _ string, typed []string, in io.Reader, out, stderr io.WriteCloser, _ bool,
	_ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	c, err := k.named(pod)
	if err != nil {
		return err
	}
	if typed[0] != "/"+ownCommand {
		return fmt.Errorf("exec: %q: no such file or directory", typed[0]) // there is nothing else in the image
	}
	kubeconfig, err := k.rig.Cluster.PodKubeconfig(ctx, c.pod)
	if err != nil {
		return err
	}
	environment, err := k.environment(ctx, c.pod)
	if err != nil {
		return err
	}
	script, err := os.CreateTemp(k.dir, "exec")
	if err != nil {
		return err
	}
	flags := cloudFlags(k.rig.Cloud.Endpoint()) + " --sts-endpoint=" + k.rig.Cloud.STSEndpoint()
	if _, err := script.WriteString(pointed(k.rig.BinaryPath(), flags)); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "sh", append([]string{script.Name()}, typed[1:]...)...)
	command.Env = append(slices.Concat(os.Environ(), environment), "KUBECONFIG="+kubeconfig, "GORACE=atexit_sleep_ms=0")
	command.Stdin, command.Stdout, command.Stderr = in, out, stderr
	command.WaitDelay = newStream // for a standin that nobody closes
	err = errors.Join(script.Close(), command.Run())
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return utilexec.CodeExitError{Err: err, Code: failed.ExitCode()}
	}
	return err
}

// PortForward connects the stream with the port of the pod.
func (k *kubelet) PortForward(ctx context.Context, pod string, _ types.UID, port int32, stream io.ReadWriteCloser) error {
	c, err := k.named(pod)
	if err != nil {
		return err
	}
	if port != securePort {
		return fmt.Errorf("connect to port %d: connection refused", port)
	}
	connection, err := new(net.Dialer).DialContext(ctx, "tcp", c.secure)
	if err != nil {
		return err
	}
	defer connection.Close()
	var both errgroup.Group
	both.Go(func() error {
		defer stream.Close()
		_, err := io.Copy(stream, connection)
		return err
	})
	both.Go(func() error {
		defer connection.Close()
		_, err := io.Copy(connection, stream)
		return err
	})
	if err := both.Wait(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// cloudFlags are those by which commands that ask Alibaba Cloud find the simulated one.
func cloudFlags(endpoint string) string {
	return strings.ReplaceAll("--cloud-scheme=http --ess-endpoint=CLOUD --ecs-endpoint=CLOUD --vpc-endpoint=CLOUD", "CLOUD", endpoint)
}

// pointed returns a script which is the binary, but that commands which ask Alibaba Cloud have these flags besides.
func pointed(binary, flags string) string {
	return fmt.Sprintf(`#!/bin/sh
case "$1 $* " in
doctor*) set -- "$@" %[2]s ;;
plan*' -- '*) set -- "$@" %[2]s ;;
plan*) set -- "$@" -- %[2]s ;;
esac
exec %[1]s "$@"
`, binary, flags)
}
