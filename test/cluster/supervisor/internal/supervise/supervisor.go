// Package supervise holds one cluster together: it starts each component as a child process, obeys requests to pause or
// kill one, and sees to it that all of them are gone when the cluster ends.
package supervise

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/version"
)

// supervisor runs one cluster. It is owned by the goroutine of Run.
type supervisor struct {
	layout       layout
	controlPlane string // binary of all components but kwok
	port         *port
	children     map[string]*child
	end          context.CancelCauseFunc // ends the cluster, once, for the reason given
	reply        *json.Encoder
}

// message is one line on the supervisor's standard output: the first carries Cluster, each later one the answer to the
// request of the same ID, or, without an ID, the reason why the cluster has ended.
type message struct {
	Cluster *clusterInfo `json:"cluster,omitempty"`
	ID      int          `json:"id,omitempty"`
	Error   string       `json:"error,omitempty"`
}

// clusterInfo says how to reach a cluster.
type clusterInfo struct {
	URL             string         `json:"url"`
	AdminKubeconfig string         `json:"adminKubeconfig"`
	Dir             string         `json:"dir"`
	Processes       map[string]int `json:"processes"` // component → process id
}

// request is one line on the supervisor's standard input.
type request struct {
	ID        int    `json:"id"`
	Verb      string `json:"verb"` // pause, resume, stop, start
	Component string `json:"component"`
}

// Run runs a cluster until standard input closes or a component fails, obeying requests meanwhile.
// Whatever makes it return, its children are gone then.
func Run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	s := &supervisor{children: map[string]*child{}, reply: json.NewEncoder(out)}
	flags := pflag.NewFlagSet("supervise", pflag.ContinueOnError)
	flags.StringVar(&s.layout.dir, "dir", "", "directory of the cluster's data, certificates and logs")
	flags.DurationVar(&s.layout.nodeGracePeriod, "node-grace-period", 40*time.Second, "how long a Node may be silent before it is NotReady")
	flags.BoolVar(&s.layout.defaultRates, "default-rates", false, "leave the scheduler and the controller manager their default requests per second")
	flags.BoolVar(&s.layout.workloads, "workloads", false, "switch on the API of Workloads and PodGroups of Kubernetes 1.36")
	flags.StringVar(&s.controlPlane, "control-plane", "", "binary of the control plane's components")
	kubernetes := flags.String("kubernetes-version", "", "version of the control plane, such as 1.36.1")
	flags.StringVar(&s.layout.auditLog, "audit-log", "", "file for what the audit-users ask of the API server")
	flags.StringSliceVar(&s.layout.auditUsers, "audit-users", nil, "names of users")
	temporary := flags.Bool("temporary", false, "remove the directory at the end")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if s.layout.dir == "" { // which would be the working directory, and perhaps be removed
		return errors.New("--dir is missing")
	}
	dir, err := filepath.Abs(s.layout.dir)
	if err != nil {
		return err
	}
	s.layout.dir = dir
	if s.layout.kubernetes, err = version.ParseGeneric(*kubernetes); err != nil {
		return fmt.Errorf("--kubernetes-version: %w", err)
	}
	if *temporary {
		defer os.RemoveAll(dir)
	}
	defer s.killAll()

	ctx, s.end = context.WithCancelCause(ctx)
	requests := make(chan request)
	go func() { // ends when the parent closes the pipe, at the latest with this process, which ends with this function
		readRequests(ctx, in, requests)
		s.end(errParentGone)
	}()
	err = s.start(ctx)
	if err == nil {
		err = s.serve(ctx, requests)
	}
	if errors.Is(context.Cause(ctx), errParentGone) {
		return nil
	}
	return errors.Join(err, s.send(message{Error: err.Error()}))
}

// errParentGone is how a cluster ends when all is well.
var errParentGone = errors.New("the parent closed the pipe")

// start brings up all components, in the order in which they need each other, and announces the cluster.
func (s *supervisor) start(ctx context.Context) error {
	var err error
	if s.port, err = openPort(); err != nil {
		return err
	}
	admin, err := s.writeCredentials()
	if err != nil {
		return err
	}
	for _, name := range []string{etcd, apiServer} {
		if err := s.startComponent(name); err != nil {
			return err
		}
	}
	if err := s.awaitAPIServer(ctx, admin); err != nil {
		return err
	}
	info := &clusterInfo{URL: s.port.url(), AdminKubeconfig: admin, Dir: s.layout.dir, Processes: map[string]int{}}
	for _, name := range []string{controllerManager, scheduler, Kwok} {
		if err := s.startComponent(name); err != nil {
			return err
		}
	}
	for name, c := range s.children {
		info.Processes[name] = c.pid()
	}
	return s.send(message{Cluster: info})
}

// writeCredentials writes everything the components need to know each other and returns the administrator's kubeconfig.
func (s *supervisor) writeCredentials() (admin string, err error) {
	ca, err := newAuthority(s.layout.dir)
	if err != nil {
		return "", err
	}
	if err := errors.Join(ca.serve(s.layout.dir), writeServiceAccountKey(s.layout.dir), s.layout.writeAuditPolicy()); err != nil {
		return "", err
	}
	const masters = "system:masters"
	for name, identity := range map[string][]string{
		scheduler:         {"system:kube-scheduler"},
		controllerManager: {"system:kube-controller-manager", masters}, // else every controller needs a token of its own first
		Kwok:              {"kwok", masters},                           // it stands for kubelets, which RBAC does not limit either
	} {
		if _, err := ca.kubeconfig(s.layout.dir, name, s.port.url(), identity[0], identity[1:]...); err != nil {
			return "", err
		}
	}
	return ca.kubeconfig(s.layout.dir, "admin", s.port.url(), "admin", masters)
}

func (s *supervisor) startComponent(name string) error {
	spec := childSpec{name: name, binary: s.controlPlane, dir: s.layout.dir}
	switch name {
	case etcd:
		spec.args = s.layout.etcdFlags()
	case apiServer:
		spec.args = s.layout.apiServerFlags()
		spec.files = []*os.File{s.port.lend()}
	case controllerManager:
		spec.args = s.layout.controllerManagerFlags()
	case scheduler:
		spec.args = s.layout.schedulerFlags()
	case Kwok:
		self, err := os.Executable()
		if err != nil {
			return err
		}
		spec.binary, spec.args = self, s.layout.kwokFlags()
	}
	c, err := startChild(spec)
	if err != nil {
		return err
	}
	s.children[name] = c
	go func() { // ends with the child
		<-c.done
		if err := c.failure(); err != nil {
			s.end(err)
		}
	}()
	return nil
}

// serve obeys requests until the cluster ends, and returns why.
func (s *supervisor) serve(ctx context.Context, requests <-chan request) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case r := <-requests:
			answer := message{ID: r.ID}
			if err := s.obey(r); err != nil {
				answer.Error = err.Error()
			}
			if err := s.send(answer); err != nil {
				return err
			}
		}
	}
}

func (s *supervisor) obey(r request) error {
	c, known := s.children[r.Component]
	if !known {
		return fmt.Errorf("unknown component %q", r.Component)
	}
	switch r.Verb {
	case "pause":
		return c.signal(syscall.SIGSTOP)
	case "resume":
		return c.signal(syscall.SIGCONT)
	case "stop":
		c.kill()
		if r.Component == apiServer {
			s.port.refuse()
		}
		return nil
	case "start":
		if c.pid() != 0 {
			return fmt.Errorf("%s is already running", r.Component)
		}
		return s.startComponent(r.Component)
	default:
		return fmt.Errorf("unknown verb %q", r.Verb)
	}
}

func (s *supervisor) send(m message) error { return s.reply.Encode(m) }

// killAll ends every component, the API server's clients before it so that none has time to complain.
func (s *supervisor) killAll() {
	for _, name := range []string{Kwok, scheduler, controllerManager, apiServer, etcd} {
		if c := s.children[name]; c != nil {
			c.kill()
		}
	}
}

// readRequests passes on each line of in until it ends.
func readRequests(ctx context.Context, in io.Reader, requests chan<- request) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			fmt.Fprintln(os.Stderr, "supervisor: not a request:", err)
			continue
		}
		select {
		case requests <- r:
		case <-ctx.Done():
			return
		}
	}
}
