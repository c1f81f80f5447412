package examples_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const soon = 30 * time.Second

// word is the body of a POST to the node-agent, and when it came.
type word struct {
	ID        string `json:"id,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	at        time.Time
}

// nodeAgent answers as cmd/node-agent does.
type nodeAgent struct {
	*httptest.Server
	words chan word
	asked chan struct{}

	mu       sync.Mutex
	deadline *time.Time
	statuses []int // of the next words; 204 after them
}

func newNodeAgent(t *testing.T, statuses ...int) *nodeAgent {
	a := &nodeAgent{words: make(chan word, 100), asked: make(chan struct{}, 100), statuses: statuses}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/reclaim", a.reclaim)
	mux.HandleFunc("POST /v1/checkpoint-acknowledged", a.done)
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.Close)
	return a
}

func (a *nodeAgent) reclaim(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_ = json.NewEncoder(w).Encode(map[string]any{"deadline": a.deadline})
	a.asked <- struct{}{}
}

func (a *nodeAgent) done(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	said := word{at: time.Now()}
	status := http.StatusNoContent
	if json.Unmarshal(body, &said) != nil {
		status = http.StatusBadRequest
	}
	a.mu.Lock()
	if len(a.statuses) > 0 {
		status, a.statuses = a.statuses[0], a.statuses[1:]
	}
	a.mu.Unlock()
	w.WriteHeader(status)
	a.words <- said
}

func (a *nodeAgent) notice(deadline time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.deadline = &deadline
}

// answered waits until it has been asked once more.
func (a *nodeAgent) answered(t *testing.T) {
	t.Helper()
	for len(a.asked) > 0 {
		<-a.asked
	}
	select {
	case <-a.asked:
	case <-time.After(soon):
		t.Fatal("nobody asks the node-agent")
	}
}

// next is the next word, whatever it is answered.
func (a *nodeAgent) next(t *testing.T) word {
	t.Helper()
	select {
	case said := <-a.words:
		return said
	case <-time.After(soon):
		t.Fatal("no word came")
		panic("unreachable")
	}
}

// podInfo is a downward-API volume: like a kubelet, it changes all files at once by moving a link.
type podInfo struct {
	t         *testing.T
	directory string
	version   int
}

func newPodInfo(t *testing.T) *podInfo {
	p := &podInfo{t: t, directory: t.TempDir()}
	p.write("", "", "")
	for _, file := range []string{"reclaim-deadline", "checkpoint-request", "reclaim-instance"} {
		require.NoError(t, os.Symlink(filepath.Join("..data", file), filepath.Join(p.directory, file)))
	}
	return p
}

func (p *podInfo) write(deadline, id, instance string) {
	p.t.Helper()
	p.version++
	version := fmt.Sprintf("..%d", p.version)
	require.NoError(p.t, os.Mkdir(filepath.Join(p.directory, version), 0o755))
	for file, content := range map[string]string{"reclaim-deadline": deadline, "checkpoint-request": id, "reclaim-instance": instance} {
		require.NoError(p.t, os.WriteFile(filepath.Join(p.directory, version, file), []byte(content), 0o600))
	}
	link := filepath.Join(p.directory, "..data")
	require.NoError(p.t, os.Symlink(version, link+".tmp"))
	require.NoError(p.t, os.Rename(link+".tmp", link))
}

// request is what a pod is told when another node of its job is reclaimed.
func (p *podInfo) request(id string, deadline time.Time) {
	p.t.Helper()
	p.write(deadline.UTC().Format(time.RFC3339), id, "")
}

// leave is what a pod is told when its own node is reclaimed.
func (p *podInfo) leave(id string, deadline time.Time) {
	p.t.Helper()
	p.write(deadline.UTC().Format(time.RFC3339), id, "i-own")
}

// process is a script that runs.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string // closed at its end
}

// python starts a script.
func python(t *testing.T, environment []string, arguments ...string) *process {
	t.Helper()
	interpreter, err := exec.LookPath("python3")
	require.NoError(t, err, "make test installs it")
	cmd := exec.Command(interpreter, append([]string{"-u"}, arguments...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH=.", "PYTHONDONTWRITEBYTECODE=1", "POD_NAMESPACE=team", "POD_NAME=job-worker-0",
		"http_proxy=http://127.0.0.1:9", "no_proxy=") // the way to the own node leads through no proxy
	cmd.Env = append(cmd.Env, environment...)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &process{t: t, cmd: cmd, lines: make(chan string, 100_000)}
	go func() { // ends with the process
		defer close(p.lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			p.lines <- scanner.Text()
		}
	}()
	t.Cleanup(p.kill)
	return p
}

// until reads lines up to one with the prefix, and returns the rest of that one.
func (p *process) until(prefix string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), soon)
	defer cancel()
	for {
		select {
		case line, more := <-p.lines:
			if !more {
				p.t.Fatalf("the script ended before it said %q", prefix)
			}
			if rest, found := strings.CutPrefix(line, prefix); found {
				return rest
			}
		case <-ctx.Done():
			p.t.Fatalf("the script did not say %q", prefix)
		}
	}
}

// ended waits for the end and returns the exit code.
func (p *process) ended() int {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), soon)
	defer cancel()
	for {
		select {
		case _, more := <-p.lines:
			if !more {
				_ = p.cmd.Wait() // the code says it
				return p.cmd.ProcessState.ExitCode()
			}
		case <-ctx.Done():
			p.t.Fatal("the script does not end")
		}
	}
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()
}
