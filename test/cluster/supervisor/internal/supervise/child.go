package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
)

// child is one component running in a process of its own. Its methods are safe for concurrent use.
type child struct {
	name string
	done chan struct{} // closed once the process has been reaped

	mu      sync.Mutex
	process *os.Process // nil once reaped, so that no signal reaches a recycled process id
	stopped bool        // the supervisor asked it to end
	err     error       // why it ended
}

// childSpec says what to start.
type childSpec struct {
	name   string
	binary string // its first argument is the name
	dir    string // working directory
	args   []string
	files  []*os.File // inherited from descriptor 3 on
}

// lazyCollector has Go collect garbage rarely: a control plane's working set is small beside the machine's memory, and
// its cores are what everything else waits for.
const lazyCollector = "GOGC=400"

// startChild runs the binary as the component of the spec, its output appended to <dir>/<name>.log.
// The child dies with this process: by the death of the thread that started it where the kernel offers that, and by
// its standard input closing everywhere.
func startChild(spec childSpec) (*child, error) {
	log, err := os.OpenFile(filepath.Join(spec.dir, spec.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(spec.binary, append([]string{spec.name}, spec.args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = spec.dir, log, log, spec.files
	cmd.Env = append([]string{lazyCollector}, os.Environ()...) // what the environment says goes before it
	cmd.SysProcAttr = dieWithParent()
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	c := &child{name: spec.name, done: make(chan struct{})}
	started := make(chan error)
	go c.own(cmd, lifeline, log, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.name, err)
	}
	return c, nil
}

// own starts the process, and waits for it on the same thread: the kernel's parent-death signal is sent when the
// *thread* that forked ends, and Go ends idle threads.
func (c *child) own(cmd *exec.Cmd, lifeline io.Closer, log *os.File, started chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
	defer close(c.done)
	defer log.Close()
	defer lifeline.Close()
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	c.mu.Lock()
	c.process = cmd.Process
	c.mu.Unlock()
	started <- nil

	err := cmd.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.process, c.err = nil, err
}

// signal sends sig to the process; a process that has ended is an error.
func (c *child) signal(sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil {
		return fmt.Errorf("%s is not running", c.name)
	}
	return c.process.Signal(sig)
}

// kill ends the process without warning and returns when it is gone. Killing a dead child does nothing.
func (c *child) kill() {
	c.mu.Lock()
	c.stopped = true
	if c.process != nil {
		_ = c.process.Kill() // fails only for a process that has just ended
	}
	c.mu.Unlock()
	<-c.done
}

// pid is the process id, 0 once it has ended.
func (c *child) pid() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil {
		return 0
	}
	return c.process.Pid
}

// failure is nil for a child that was told to end, and otherwise says how it ended. Valid once done is closed.
func (c *child) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil
	}
	return fmt.Errorf("%s ended by itself: %v", c.name, c.err)
}
