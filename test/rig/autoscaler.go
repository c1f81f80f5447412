package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Autoscaler is one process of the real binary.
type Autoscaler struct {
	command *exec.Cmd
	address string
	logPath string
	done    chan struct{}
	err     error
}

// StartAutoscaler starts the binary under the shipped ServiceAccount, with quick loops and without leader election;
// further flags and environment variables win.
func (r *Rig) StartAutoscaler(ctx context.Context, env []string, flags ...string) (*Autoscaler, error) {
	key := r.Cloud.AccessKey()
	return r.startProcess(ctx, r.binary, append([]string{
		"ALIBABA_CLOUD_ACCESS_KEY_ID=" + key.ID, "ALIBABA_CLOUD_ACCESS_KEY_SECRET=" + key.Secret, "GORACE=halt_on_error=1",
	}, env...), append([]string{
		"--kubeconfig=" + r.kubeconfig,
		"--cluster-name=" + r.ClusterName, "--region=" + r.World.Region, "--cloud-scheme=http",
		"--ess-endpoint=" + r.Cloud.Endpoint(), "--ecs-endpoint=" + r.Cloud.Endpoint(), "--vpc-endpoint=" + r.Cloud.Endpoint(),
		"--scan-interval=1s", "--scale-down-unneeded-time=5s", "--scale-down-unready-time=20s", "--v=2",
	}, flags...)...)
}

// Subcommand returns the command that runs the binary as a person does, who gives it a kubeconfig of his own.
func (r *Rig) Subcommand(ctx context.Context, arguments ...string) *exec.Cmd {
	return exec.CommandContext(ctx, r.binary, arguments...)
}

// StartInTree starts another binary, Cluster Autoscaler with its in-tree alicloud provider, as the cluster's administrator. Its SDK knows
// the endpoints of Alibaba Cloud alone, so the simulator is the proxy on the way to them.
func (r *Rig) StartInTree(ctx context.Context, binary string, flags ...string) (*Autoscaler, error) {
	key, proxy := r.Cloud.AccessKey(), "http://"+r.Cloud.Endpoint()
	return r.startProcess(ctx, binary, []string{
		"ACCESS_KEY_ID=" + key.ID, "ACCESS_KEY_SECRET=" + key.Secret, "REGION_ID=" + r.World.Region,
		"HTTP_PROXY=" + proxy, "HTTPS_PROXY=" + proxy, "SSL_CERT_FILE=" + r.Cloud.CAFile(),
	}, append([]string{"--kubeconfig=" + r.Cluster.AdminKubeconfig(), "--cloud-provider=alicloud"}, flags...)...)
}

// RunStock runs Cluster Autoscaler as its authors build it, with the cloud provider externalgrpc, as the cluster's administrator, for the
// length of a test.
func (r *Rig) RunStock(t *testing.T, flags ...string) *Autoscaler {
	t.Helper()
	binary, err := buildStock()
	if err != nil {
		t.Fatal(err)
	}
	a, err := r.startProcess(t.Context(), binary, nil, append([]string{
		"--kubeconfig=" + r.Cluster.AdminKubeconfig(), "--cloud-provider=externalgrpc", "--write-status-configmap=false",
	}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.Kill() // how it ends is not our matter
		if t.Failed() {
			t.Logf("the last words of Cluster Autoscaler; all of them are in %s:\n%s", a.keepLog(t), a.Log(lastWords))
		}
	})
	return a
}

func (r *Rig) startProcess(ctx context.Context, binary string, env []string, flags ...string) (*Autoscaler, error) {
	port, err := FreePort(ctx, "127.0.0.1")
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort("127.0.0.1", port)
	log, err := os.CreateTemp(r.Dir, "autoscaler-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	command := exec.Command(binary, append([]string{"--namespace=" + Namespace, "--address=" + address, "--leader-elect=false"}, flags...)...)
	command.Env = append(os.Environ(), env...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return nil, err
	}
	a := &Autoscaler{command: command, address: address, logPath: log.Name(), done: make(chan struct{})}
	go func() { // ends with the process
		a.err = command.Wait()
		close(a.done)
	}()
	return a, nil
}

// RunAutoscaler is StartAutoscaler for the length of a test, which fails if the process ends badly.
func (r *Rig) RunAutoscaler(t *testing.T, flags ...string) *Autoscaler {
	t.Helper()
	return r.RunAutoscalerWithEnv(t, nil, flags...)
}

// RunAutoscalerWithEnv is RunAutoscaler with further environment variables.
func (r *Rig) RunAutoscalerWithEnv(t *testing.T, env []string, flags ...string) *Autoscaler {
	t.Helper()
	a, err := r.StartAutoscaler(t.Context(), env, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := a.Stop()
		if err != nil {
			t.Errorf("the autoscaler: %v", err)
		}
		if t.Failed() {
			t.Logf("the autoscaler's last words; all of them are in %s:\n%s", a.keepLog(t), a.Log(lastWords))
		}
	})
	return a
}

// lastWords is how many lines of a log are shown with a failure, which would not be found among more.
const lastWords = 25

// keepLog copies the log from the test's directory, which goes with the test, into out/test, and says where it is.
func (a *Autoscaler) keepLog(t *testing.T) string {
	t.Helper()
	root, err := repositoryRoot()
	if err != nil {
		return err.Error()
	}
	text, err := os.ReadFile(a.logPath)
	if err != nil {
		return err.Error()
	}
	kept := filepath.Join(root, "out", "test", strings.ReplaceAll(t.Name(), "/", "_")+"-"+filepath.Base(a.logPath))
	if err := errors.Join(os.MkdirAll(filepath.Dir(kept), 0o755), os.WriteFile(kept, text, 0o644)); err != nil {
		return err.Error()
	}
	return kept
}

// Kill ends the process at once, as kill -9 does.
func (a *Autoscaler) Kill() {
	_ = a.command.Process.Kill() // it may have ended
	<-a.done
}

// Stop asks the process to end, and says how it did. A process that was killed before did so well.
func (a *Autoscaler) Stop() error {
	_ = a.command.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-a.done:
	case <-time.After(20 * time.Second):
		a.Kill()
		return errors.New("did not end within 20s of SIGTERM")
	}
	var exit *exec.ExitError
	if errors.As(a.err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return nil
	}
	return a.err
}

// Done is closed when the process has ended.
func (a *Autoscaler) Done() <-chan struct{} { return a.done }

// PID is the process's.
func (a *Autoscaler) PID() int { return a.command.Process.Pid }

// Address is the host:port at which the process serves metrics and health.
func (a *Autoscaler) Address() string { return a.address }

// Log returns the last lines that the process wrote.
func (a *Autoscaler) Log(lines int) string {
	text, err := os.ReadFile(a.logPath)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Readyz is what the process says of its readiness, in full.
func (a *Autoscaler) Readyz(ctx context.Context) (ready bool, text string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.address+"/readyz?verbose", nil)
	if err != nil {
		return false, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode == http.StatusOK, string(body), err
}

// Metrics scrapes the process.
func (a *Autoscaler) Metrics(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept-Encoding", "identity") // compressing would cost it more than the rest
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	return new(expfmt.TextParser).TextToMetricFamilies(bytes.NewReader(body))
}

// Loops are main loops of core.
type Loops struct {
	Count uint64
	// Seconds is how long they took together.
	Seconds float64
}

// Loops reads core's own histogram of its main loop.
func (a *Autoscaler) Loops(ctx context.Context) (Loops, error) {
	families, err := a.Metrics(ctx)
	if err != nil {
		return Loops{}, err
	}
	for _, metric := range families["cluster_autoscaler_function_duration_seconds"].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == "function" && label.GetValue() == "main" {
				h := metric.GetHistogram()
				return Loops{h.GetSampleCount(), h.GetSampleSum()}, nil
			}
		}
	}
	return Loops{}, nil
}

// Requests are how many the process has sent to the API server, by method and status code ("PATCH 200"), by what client-go counts.
func (a *Autoscaler) Requests(ctx context.Context) (map[string]float64, error) {
	families, err := a.Metrics(ctx)
	if err != nil {
		return nil, err
	}
	requests := map[string]float64{}
	for _, metric := range families["rest_client_requests_total"].GetMetric() {
		labels := map[string]string{}
		for _, label := range metric.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}
		requests[labels["method"]+" "+labels["code"]] += metric.GetCounter().GetValue()
	}
	return requests, nil
}

// AwaitLoops waits until there were at least n main loops since the process started.
func (a *Autoscaler) AwaitLoops(ctx context.Context, n uint64, timeout time.Duration) error {
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		select {
		case <-a.done:
			return false, errors.New("it has ended")
		default:
		}
		loops, err := a.Loops(ctx)
		return err == nil && loops.Count >= n, nil // it may not serve metrics yet
	})
	if err != nil {
		return fmt.Errorf("wait for %d loops of the autoscaler: %w\n%s", n, err, a.Log(20))
	}
	return nil
}

// buildPlain and buildRace build the binary once per process; go's cache does the work when nothing has changed.
var (
	buildPlain = sync.OnceValues(func() (string, error) { return buildBinary("gpu-spot-autoscaler", "") })
	buildRace  = sync.OnceValues(func() (string, error) { return buildBinary("gpu-spot-autoscaler", "-race") })
	// buildStock builds Cluster Autoscaler's own command. With the detector it consists of what the tests have compiled already.
	buildStock = sync.OnceValues(func() (string, error) {
		return buildPackage("k8s.io/autoscaler/cluster-autoscaler", "cluster-autoscaler", "-race")
	})
)

// Build builds the binary as tests run it, with the race detector, and returns where it is. It is for those that need no control plane.
func Build() (string, error) { return buildRace() }

// buildBinary builds a command of this repository, with the detector -race or without.
func buildBinary(name, detector string) (string, error) {
	return buildPackage("./cmd/"+name, name, detector)
}

func buildPackage(path, name, detector string) (string, error) {
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	output := filepath.Join(root, "out", "bin", name+detector)
	arguments := []string{"build", "-tags", "externalgrpc", "-o", output}
	if detector != "" {
		arguments = append(arguments, detector)
	}
	build := exec.Command("go", append(arguments, path)...)
	build.Dir = root
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the binary: %w\n%s", err, text)
	}
	return output, nil
}

func repositoryRoot() (string, error) {
	text, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(text))), nil
}
