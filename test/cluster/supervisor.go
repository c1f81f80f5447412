package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// stopTimeout is how long a supervisor may take to end its children, which are killed and not asked.
const stopTimeout = 10 * time.Second

// errStopped is how a cluster ends that was stopped.
var errStopped = errors.New("the cluster was stopped")

// The types below mirror what the control plane's supervisor writes to its standard output and reads from its standard
// input, one JSON object a line.
type (
	info struct {
		URL             string         `json:"url"`
		AdminKubeconfig string         `json:"adminKubeconfig"`
		Dir             string         `json:"dir"`
		Processes       map[string]int `json:"processes"`
	}
	message struct {
		Cluster *info  `json:"cluster"`
		ID      int    `json:"id"`
		Error   string `json:"error"`
	}
	request struct {
		ID        int    `json:"id"`
		Verb      string `json:"verb"`
		Component string `json:"component"`
	}
)

// supervisor is the process that holds a cluster together, and the talk with it. It is safe for concurrent use.
type supervisor struct {
	cmd   *exec.Cmd
	trash string         // directory to remove at the end, should the supervisor be unable to; may be empty
	pipe  io.WriteCloser // closing it ends the cluster; the kernel does so if this process dies
	ready chan info      // gets the announcement
	done  chan struct{}  // closed when the supervisor and all its children are gone

	mu      sync.Mutex
	lastID  int
	waiting map[int]chan string // answers to requests under way
	err     error               // why the cluster ended; first reason wins
}

func startSupervisor(binary, dir string, temporary bool, flags ...string) (*supervisor, error) {
	log, err := os.Create(filepath.Join(dir, "supervisor.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own descriptor
	cmd := exec.Command(binary, append([]string{"supervise", "--dir=" + dir, fmt.Sprintf("--temporary=%t", temporary)}, flags...)...)
	cmd.Stderr = log
	// A process group of its own: an interrupt typed at the terminal is for us, and we decide when the cluster goes.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &supervisor{cmd: cmd, pipe: in, ready: make(chan info, 1), done: make(chan struct{}), waiting: map[int]chan string{}}
	if temporary {
		s.trash = dir
	}
	go s.listen(out)
	return s, nil
}

// listen takes in everything the supervisor says until it ends, and reaps it. It ends with the process.
func (s *supervisor) listen(out io.Reader) {
	defer close(s.done)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			s.fail(fmt.Errorf("supervisor said %q: %w", lines.Text(), err))
			continue
		}
		switch {
		case m.Cluster != nil:
			s.ready <- *m.Cluster
		case m.ID != 0:
			s.answer(m)
		default:
			s.fail(errors.New(m.Error))
		}
	}
	s.fail(fmt.Errorf("supervisor ended: %v", s.cmd.Wait()))
	if s.trash != "" {
		_ = os.RemoveAll(s.trash) // what cannot be removed is a temporary directory all the same
	}
}

func (s *supervisor) answer(m message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.waiting[m.ID]; c != nil {
		c <- m.Error // has room for the only answer
		delete(s.waiting, m.ID)
	}
}

// announced waits for the cluster's address.
func (s *supervisor) announced(ctx context.Context) (info, error) {
	select {
	case i := <-s.ready:
		return i, nil
	case <-s.done:
		return info{}, s.failure()
	case <-ctx.Done():
		return info{}, ctx.Err()
	}
}

// do has the supervisor do something to a component and returns when it is done.
func (s *supervisor) do(ctx context.Context, verb, component string) error {
	answer := make(chan string, 1)
	if err := s.ask(verb, component, answer); err != nil {
		return fmt.Errorf("cluster: %s %s: %w", verb, component, err)
	}
	select {
	case reason := <-answer:
		if reason != "" {
			return fmt.Errorf("cluster: %s %s: %s", verb, component, reason)
		}
		return nil
	case <-s.done:
		return fmt.Errorf("cluster: %s %s: %w", verb, component, s.ended())
	case <-ctx.Done():
		return fmt.Errorf("cluster: %s %s: %w", verb, component, ctx.Err())
	}
}

func (s *supervisor) ask(verb, component string, answer chan string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.lastID++
	s.waiting[s.lastID] = answer
	return json.NewEncoder(s.pipe).Encode(request{ID: s.lastID, Verb: verb, Component: component})
}

// fail notes why the cluster ended, unless that is known already.
func (s *supervisor) fail(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = reason
	}
}

// failure is why the cluster ended, nil if it runs or was stopped.
func (s *supervisor) failure() error {
	if err := s.ended(); !errors.Is(err, errStopped) {
		return err
	}
	return nil
}

func (s *supervisor) ended() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// stop ends the supervisor and waits until it is gone.
func (s *supervisor) stop() {
	s.fail(errStopped)
	_ = s.pipe.Close() // an error means that it was closed before
	select {
	case <-s.done:
	case <-time.After(stopTimeout):
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) // the whole group; it cannot refuse
		<-s.done
	}
}
