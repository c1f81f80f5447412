// Package trainingoperator runs Kubeflow's real training operator beside a test cluster: the controllers of PyTorchJobs and
// MPIJobs of v1.8.1, as they are, and their definitions. It is built from the nested module in operator when it is first
// needed.
package trainingoperator

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpu-spot-autoscaler/test/cluster"
	"gpu-spot-autoscaler/test/nested"
)

const (
	module = "github.com/kubeflow/training-operator"
	ready  = "ready" // what the command says when its caches are filled

	startTimeout     = time.Minute
	testBuildTimeout = 15 * time.Minute
	testLogLines     = 60
)

var command = nested.Command{Name: "training-operator", Source: "test/trainingoperator/operator"}

// Options says where an operator works.
type Options struct {
	// Cluster gets the definitions, and is where the operator works, as administrator.
	Cluster *cluster.Cluster
	// Dir holds the log.
	Dir string
	// Output is told if there is something to wait for.
	Output io.Writer
}

// Operator is one process. It dies with the process that started it.
type Operator struct {
	command *exec.Cmd
	log     string
	done    chan struct{}
	err     error
}

// Start builds the operator if need be, installs the definitions and returns when the operator has filled its caches. It
// runs until Stop; ctx limits only the start.
func Start(ctx context.Context, options Options) (*Operator, error) {
	binary, err := command.Build(ctx, options.Output)
	if err != nil {
		return nil, err
	}
	if err := install(ctx, options.Cluster); err != nil {
		return nil, err
	}
	log, err := os.CreateTemp(options.Dir, "training-operator-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	o := &Operator{command: exec.Command(binary, options.Cluster.AdminKubeconfig()), log: log.Name(), done: make(chan struct{})}
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
	if lines := bufio.NewScanner(said); lines.Scan() && lines.Text() == ready {
		close(awake)
	}
	o.err = o.command.Wait()
}

func (o *Operator) await(ctx context.Context, awake <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case <-awake:
		return nil
	case <-o.done:
		return fmt.Errorf("the training operator ended: %w\n%s", o.err, o.Log(testLogLines))
	case <-ctx.Done():
		o.Stop()
		return fmt.Errorf("the training operator does not start: %w\n%s", ctx.Err(), o.Log(testLogLines))
	}
}

// install applies the definitions that the module ships of the two kinds.
func install(ctx context.Context, c *cluster.Cluster) error {
	dir, err := command.ModuleDir(ctx, module)
	if err != nil {
		return err
	}
	for _, kind := range []string{"pytorchjobs", "mpijobs"} {
		manifest, err := os.Open(filepath.Join(dir, "manifests", "base", "crds", "kubeflow.org_"+kind+".yaml"))
		if err != nil {
			return err
		}
		err = c.ApplyYAML(ctx, manifest)
		if err := errors.Join(err, manifest.Close()); err != nil {
			return err
		}
	}
	return nil
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

// ForTest starts an operator for the length of a test. If the test fails, its log ends with the operator's last lines.
func ForTest(t *testing.T, c *cluster.Cluster) *Operator {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testBuildTimeout)
	defer cancel()
	o, err := Start(ctx, Options{Cluster: c, Dir: t.TempDir(), Output: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		select {
		case <-o.done:
			t.Errorf("the training operator ended during the test: %v", o.err)
		default:
		}
		o.Stop()
		if t.Failed() {
			t.Logf("the training operator's last words:\n%s", o.Log(testLogLines))
		}
	})
	return o
}
