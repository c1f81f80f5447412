package walkthrough

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"
)

// shell runs blocks of the documentation one after the other, each with the variables that the ones before have exported, in a directory that
// looks like a checkout of this repository.
type shell struct {
	t *testing.T
	// ctx ends what runs.
	ctx         context.Context
	dir         string
	environment []string
	laps        []lap
	// background are commands that go on.
	background []*exec.Cmd
}

// lap is what a block took. Idle is the time in which neither the shell nor what it called computed: the user waits for others.
type lap struct {
	block       block
	total, idle time.Duration
}

// newShell returns a shell that finds the tools and nothing of the user's.
func newShell(ctx context.Context, t *testing.T, kubeconfig string, stubs map[string]string) *shell {
	t.Helper()
	s := &shell{t: t, ctx: ctx, dir: t.TempDir()}
	repository, err := filepath.Abs(root)
	require.NoError(t, err)
	require.NoError(t, os.Symlink(filepath.Join(repository, "deploy"), filepath.Join(s.dir, "deploy")))
	tools := filepath.Join(s.dir, ".tools")
	require.NoError(t, os.Mkdir(tools, 0o755))
	for name, of := range stubs {
		require.NoError(t, os.Symlink(of, filepath.Join(tools, name)))
	}
	// A program that is built with the race detector sleeps for a second before it ends: go.dev/doc/articles/race_detector.
	s.environment = []string{"GORACE=atexit_sleep_ms=0", "PATH=" + tools + ":/usr/bin:/bin", "HOME=" + s.dir, "KUBECONFIG=" + kubeconfig}
	return s
}

// run runs a block as it is written, and returns what it has printed. A command that fails ends it, and the test.
func (s *shell) run(b block) string {
	s.t.Helper()
	out, state, total := s.execute(b.text)
	s.laps = append(s.laps, lap{b, total, max(0, total-state.UserTime()-state.SystemTime())})
	s.t.Logf("%s (line %d, %.1f s)\n%s\n%s", b.section, b.line, total.Seconds(), quote(b.text), out)
	require.True(s.t, state.Success(), "the block of line %d: %v", b.line, state)
	return out
}

// ask runs a command of the test's own, which the stopwatch leaves out.
func (s *shell) ask(text string) string {
	s.t.Helper()
	out, state, _ := s.execute(text)
	require.True(s.t, state.Success(), "%s: %v\n%s", text, state, out)
	return out
}

func (s *shell) execute(text string) (printed string, state *os.ProcessState, total time.Duration) {
	s.t.Helper()
	exported := filepath.Join(s.dir, ".exported")
	script := fmt.Sprintf("set -e\n[ ! -e %[1]s ] || . %[1]s\n%[2]s\nexport -p > %[1]s\n", exported, text)
	command := exec.CommandContext(s.ctx, "bash", "-c", script)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) } // with what it waits for
	command.Dir, command.Env = s.dir, s.environment
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	begun := time.Now()
	err := command.Run()
	var failed *exec.ExitError
	if !errors.As(err, &failed) {
		require.NoError(s.t, err)
	}
	return out.String(), command.ProcessState, time.Since(begun)
}

// startBackground starts a command that goes on while others are given, and returns what it prints first.
func (s *shell) startBackground(text string) (printed string) {
	s.t.Helper()
	script := fmt.Sprintf(". %s\nexec %s", filepath.Join(s.dir, ".exported"), text)
	command := exec.CommandContext(s.ctx, "bash", "-c", script)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	command.Dir, command.Env, command.Stderr = s.dir, s.environment, s.t.Output()
	out, err := command.StdoutPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, command.Start())
	s.background = append(s.background, command)
	printed, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(s.t, err, "%s has ended", text)
	return printed
}

// stopBackground ends the commands that go on.
func (s *shell) stopBackground() {
	for _, command := range s.background {
		_ = command.Process.Kill() // it may have ended
		_ = command.Wait()
	}
	s.background = nil
}

func quote(text string) string {
	return "$ " + strings.Join(strings.Split(strings.TrimSpace(text), "\n"), "\n$ ")
}

// stopwatch returns the times of all blocks.
func (s *shell) stopwatch() string {
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "LINE\tTOTAL\tIDLE\tSECTION")
	var total, idle time.Duration
	for _, l := range s.laps {
		fmt.Fprintf(table, "%d\t%.1f s\t%.1f s\t%s\n", l.block.line, l.total.Seconds(), l.idle.Seconds(), l.block.section)
		total, idle = total+l.total, idle+l.idle
	}
	fmt.Fprintf(table, "\t%.1f s\t%.1f s\tall\n", total.Seconds(), idle.Seconds())
	if err := table.Flush(); err != nil {
		return err.Error()
	}
	return out.String()
}
