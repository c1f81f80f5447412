package walkthrough

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"
)

// shell runs blocks of the documentation one after the other, each with the variables that the ones before have exported, in a directory that
// looks like a checkout of this repository.
type shell struct {
	t           *testing.T
	dir         string
	environment []string
	laps        []lap
}

// lap is what a block took. Idle is the time in which neither the shell nor what it called computed: the user waits for others.
type lap struct {
	block       block
	total, idle time.Duration
}

// newShell returns a shell that finds the tools and nothing of the user's.
func newShell(t *testing.T, kubeconfig string, stubs map[string]string) *shell {
	t.Helper()
	s := &shell{t: t, dir: t.TempDir()}
	repository, err := filepath.Abs(root)
	require.NoError(t, err)
	require.NoError(t, os.Symlink(filepath.Join(repository, "deploy"), filepath.Join(s.dir, "deploy")))
	tools := filepath.Join(s.dir, ".tools")
	require.NoError(t, os.Mkdir(tools, 0o755))
	for name, of := range stubs {
		require.NoError(t, os.Symlink(of, filepath.Join(tools, name)))
	}
	s.environment = []string{"PATH=" + tools + ":/usr/bin:/bin", "HOME=" + s.dir, "KUBECONFIG=" + kubeconfig}
	return s
}

// run runs a block as it is written, and returns what it has printed. Its last command that fails ends it, and the test.
func (s *shell) run(b block) string {
	s.t.Helper()
	exported := filepath.Join(s.dir, ".exported")
	script := fmt.Sprintf("set -e\n[ ! -e %[1]s ] || . %[1]s\n%[2]s\nexport -p > %[1]s\n", exported, b.text)
	command := exec.CommandContext(s.t.Context(), "bash", "-c", script)
	command.Dir, command.Env = s.dir, s.environment
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	begun := time.Now()
	err := command.Run()
	total := time.Since(begun)
	if state := command.ProcessState; state != nil {
		s.laps = append(s.laps, lap{b, total, max(0, total-state.UserTime()-state.SystemTime())})
	}
	s.t.Logf("%s (line %d, %.1f s)\n%s\n%s", b.section, b.line, total.Seconds(), quote(b.text), out.String())
	require.NoError(s.t, err, "the block of line %d:\n%s", b.line, out.String())
	return out.String()
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
