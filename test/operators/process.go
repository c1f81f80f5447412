package operators

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"

	"gpu-spot-autoscaler/test/cluster"
)

const (
	ready = "ready" // what the command says when its caches are filled and its webhooks answer

	startTimeout     = time.Minute
	testBuildTimeout = 15 * time.Minute
	testLogLines     = 60

	loopback = "127.0.0.1"
)

// Options says where an operator works.
type Options struct {
	// Cluster gets the definitions, and is where the operator works, as administrator.
	Cluster *cluster.Cluster
	// Dir holds the log and the certificate.
	Dir string
	// Output is told if there is something to wait for.
	Output io.Writer
	// RayDashboard is what KubeRay asks about the jobs of Ray clusters; without one it asks in vain.
	RayDashboard *RayDashboard
}

// Operator is one process. It dies with the process that started it.
type Operator struct {
	name    string
	system  System
	cluster *cluster.Cluster
	command *exec.Cmd
	log     string
	done    chan struct{}
	err     error
}

// Start builds the operator if need be, installs its definitions and webhooks, and returns when the operator has filled its
// caches. It runs until Stop; ctx limits only the start.
func Start(ctx context.Context, system System, options Options) (*Operator, error) {
	binary, err := system.command.Build(ctx, options.Output)
	if err != nil {
		return nil, err
	}
	if err := Install(ctx, system, options.Cluster); err != nil {
		return nil, err
	}
	certificates, authority, err := writeCertificate(options.Dir, system.Name)
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	// Before the operator runs: the API server is to know them when it does.
	if err := system.installWebhooks(ctx, options.Cluster, port, authority); err != nil {
		return nil, fmt.Errorf("install the webhooks of %s: %w", system.Name, err)
	}
	log, err := os.CreateTemp(options.Dir, system.Name+"-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	o := &Operator{name: system.Name, system: system, cluster: options.Cluster, log: log.Name(), done: make(chan struct{})}
	o.command = exec.Command(binary, system.Name, options.Cluster.AdminKubeconfig(), strconv.Itoa(port), certificates)
	if options.RayDashboard != nil {
		// Its client goes through the proxy of the environment. Loopback, where the API server listens, never does.
		o.command.Env = append(os.Environ(), "HTTP_PROXY="+options.RayDashboard.URL)
	}
	o.command.Stderr = log
	o.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	said, err := o.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := o.command.Start(); err != nil {
		return nil, err
	}
	awake := make(chan struct{})
	go o.attend(said, awake)
	return o, o.await(ctx, awake)
}

// attend waits for the word and then for the end of the process. It ends with the process.
func (o *Operator) attend(said io.Reader, awake chan<- struct{}) {
	defer close(o.done)
	lines := bufio.NewScanner(said)
	for lines.Scan() { // all of it, or the process would wait for a reader
		if lines.Text() == ready {
			close(awake)
			break
		}
	}
	_, _ = io.Copy(io.Discard, said)
	o.err = o.command.Wait()
}

func (o *Operator) await(ctx context.Context, awake <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case <-awake:
		return nil
	case <-o.done:
		return fmt.Errorf("%s ended: %w\n%s", o.name, o.err, o.Log(testLogLines))
	case <-ctx.Done():
		o.Stop()
		return fmt.Errorf("%s does not start: %w\n%s", o.name, ctx.Err(), o.Log(testLogLines))
	}
}

// Stop ends the process and returns when it is gone.
func (o *Operator) Stop() {
	_ = o.command.Process.Kill() // it may have ended
	<-o.done
}

// Log returns the last lines that the process wrote.
func (o *Operator) Log(lines int) string {
	text, err := os.ReadFile(o.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// ForTest starts an operator for the length of a test.
func ForTest(t *testing.T, c *cluster.Cluster, system System) *Operator {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testBuildTimeout)
	defer cancel()
	o, err := Start(ctx, system, Options{Cluster: c, Dir: t.TempDir(), Output: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	o.StopAfter(t)
	return o
}

// StopAfter stops the operator when the test ends. If the test fails, its log ends with the operator's last lines.
func (o *Operator) StopAfter(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		select {
		case <-o.done:
			t.Errorf("%s ended during the test: %v", o.name, o.err)
		default:
		}
		o.Stop()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), startTimeout)
		defer cancel()
		if err := abandon(ctx, o.system, o.cluster); err != nil {
			t.Logf("what %s leaves behind: %v", o.name, err)
		}
		if t.Failed() {
			t.Logf("the last words of %s:\n%s", o.name, o.Log(testLogLines))
		}
	})
}

// writeCertificate makes one for the webhooks, in a directory of its own, and returns that and the authority behind it, as PEM.
func writeCertificate(parent, name string) (dir string, authority []byte, err error) {
	dir = filepath.Join(parent, name+"-certificate")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	certificate, key, err := certutil.GenerateSelfSignedCertKey(loopback, []net.IP{net.ParseIP(loopback)}, nil)
	if err != nil {
		return "", nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "tls.crt"), certificate, 0o600); err != nil {
		return "", nil, err
	}
	return dir, certificate, os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600)
}

// freePort is one that nobody listens at now.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
