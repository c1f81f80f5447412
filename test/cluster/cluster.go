// Package cluster runs real Kubernetes control planes for tests and demonstrations: etcd, kube-apiserver with RBAC,
// kube-scheduler and kube-controller-manager, with kwok in place of kubelets. Everything listens on 127.0.0.1, on a port
// chosen when the cluster starts, so that any number of clusters run side by side.
//
// kwok plays every Node annotated with [NodeAnnotation]: it keeps the Node Ready, runs the pods bound to it, and takes
// away those that are deleted. [RunForAnnotation] and [TermForAnnotation] on a pod say how long it runs and how long it
// takes to end. Removing the annotation from a Node is the Node's death: its heartbeats stop, its pods freeze.
//
// The components are built from the nested modules when they are first needed, which takes minutes with an empty build
// cache: those of the control plane from controlplane, for each of several [Versions] of Kubernetes, and kwok from
// supervisor. The processes die with the process that started them, however that one ends.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// NodeAnnotation with the value [NodeFake] makes kwok play the Node.
	NodeAnnotation = "kwok.x-k8s.io/node"
	// NodeFake is the value of [NodeAnnotation].
	NodeFake = "fake"
	// RunForAnnotation on a pod is the Go duration, counted from its start, after which it has Succeeded. Without it a
	// pod runs until it is deleted. It is read when the pod starts.
	RunForAnnotation = "test.gpu-spot.autoscaling/run-for"
	// TermForAnnotation on a pod is the Go duration it takes to end once it is deleted, at most its grace period.
	// Without it a pod takes a second, or no time if its grace period is zero.
	TermForAnnotation = "test.gpu-spot.autoscaling/term-for"
)

// Options says how a cluster is to be. The zero value is a cluster like any other.
type Options struct {
	// Dir keeps the cluster's data, certificates, kubeconfigs and logs, and stays when the cluster has ended. It must be
	// empty or not exist. Without it a temporary directory is used, which goes with the cluster.
	Dir string
	// Output gets what is worth telling a person: that the control plane is being built, and how long things took.
	// Default: nobody is told.
	Output io.Writer
	// NodeGracePeriod is how long a Node may be silent before it is NotReady; default 40 s. Leases are renewed four times
	// in it, so that a long period makes a cluster of thousands of Nodes quieter. Not below 4 s.
	NodeGracePeriod time.Duration
	// DefaultRates leaves the scheduler and the controller manager the requests per second that they have by default: 50 and
	// 20 for each client, of which each controller has its own. Otherwise they are as good as unlimited.
	// Source: SetDefaults_KubeSchedulerConfiguration and SetDefaults_KubeControllerManagerConfiguration.
	DefaultRates bool
	// Workloads switches on what is alpha in Kubernetes 1.36: the API of Workloads and PodGroups, the scheduler's gangs, and the Job
	// controller's use of both. Only clusters of that version can have it.
	Workloads bool
	// Version is that of Kubernetes, one of [Versions]; default: [Version].
	Version string
	// Binary is the control plane to run, which is of that Version; default: the one built from source.
	Binary string
	// AuditLog is the file to which the API server appends what AuditUsers ask of it, one audit.k8s.io/v1 Event of level
	// Metadata a line, each request once and a watch when it begins and when it ends. It stays when the cluster has ended.
	// Default: none.
	AuditLog string
	// AuditUsers are the names of users, such as system:serviceaccount:kube-system:default.
	AuditUsers []string
}

const (
	defaultGracePeriod = 40 * time.Second
	minGracePeriod     = 4 * time.Second
	readyPoll          = 20 * time.Millisecond
)

// Cluster is a running cluster. Its methods are safe for concurrent use.
type Cluster struct {
	process   *supervisor
	info      info
	config    *rest.Config
	client    kubernetes.Interface
	startTime time.Duration
}

// Start starts a cluster and returns when it is ready for work. The cluster runs until Stop, until this process ends, or
// until one of its components fails; ctx limits only the start.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	if opts.Output == nil {
		opts.Output = io.Discard
	}
	if opts.NodeGracePeriod == 0 {
		opts.NodeGracePeriod = defaultGracePeriod
	}
	if opts.NodeGracePeriod < minGracePeriod {
		return nil, fmt.Errorf("cluster: a NodeGracePeriod of %s is below %s", opts.NodeGracePeriod, minGracePeriod)
	}
	if opts.Version == "" {
		opts.Version = Version()
	}
	if opts.Workloads && !strings.HasPrefix(opts.Version, "1.36.") {
		return nil, fmt.Errorf("cluster: there are no Workloads in Kubernetes %s", opts.Version)
	}
	var err error
	if opts.Binary == "" {
		if opts.Binary, err = buildControlPlane(ctx, opts.Version, opts.Output); err != nil {
			return nil, fmt.Errorf("cluster: %w", err)
		}
	}
	supervisor, err := buildSupervisor(ctx, opts.Output)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	began := time.Now()
	c, err := start(ctx, supervisor, opts)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	c.startTime = time.Since(began)
	fmt.Fprintf(opts.Output, "cluster of Kubernetes %s at %s was ready after %.1f s\n", opts.Version, c.info.URL, c.startTime.Seconds())
	return c, nil
}

func start(ctx context.Context, binary string, opts Options) (_ *Cluster, err error) {
	dir, temporary, err := directory(opts.Dir)
	if err != nil {
		return nil, err
	}
	flags := []string{
		"--control-plane=" + opts.Binary, "--kubernetes-version=" + opts.Version, fmt.Sprintf("--node-grace-period=%s", opts.NodeGracePeriod),
	}
	if opts.Workloads {
		flags = append(flags, "--workloads")
	}
	if opts.DefaultRates {
		flags = append(flags, "--default-rates")
	}
	if opts.AuditLog != "" {
		flags = append(flags, "--audit-log="+opts.AuditLog, "--audit-users="+strings.Join(opts.AuditUsers, ","))
	}
	process, err := startSupervisor(binary, dir, temporary, flags...)
	if err != nil {
		if temporary {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		return nil, err
	}
	c := &Cluster{process: process}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, tailLogs(dir, 5))
			process.stop()
		}
	}()
	if c.info, err = process.announced(ctx); err != nil {
		return nil, err
	}
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.info.AdminKubeconfig); err != nil {
		return nil, err
	}
	c.config.QPS = -1 // a test is never to wait for itself
	if c.client, err = kubernetes.NewForConfig(c.config); err != nil {
		return nil, err
	}
	return c, c.WaitReady(ctx)
}

// directory returns the absolute path of a directory that exists and is empty, and whether it goes with the cluster.
func directory(wanted string) (dir string, temporary bool, err error) {
	if wanted == "" {
		dir, err = os.MkdirTemp("", "cluster-")
		return dir, true, err
	}
	if dir, err = filepath.Abs(wanted); err != nil {
		return "", false, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", false, err
	}
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("%s is not empty", dir)
	}
	return dir, false, err
}

// WaitReady returns when the API server is ready and the controllers have made the ServiceAccount that pods in the
// namespace default need, or with an error when ctx or the cluster ends before.
func (c *Cluster) WaitReady(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, readyPoll, true, func(ctx context.Context) (bool, error) {
		if err := c.process.failure(); err != nil {
			return false, err
		}
		last = checkReady(ctx, c)
		return last == nil, nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("not ready: %w: %w", err, last)
	}
	return err
}

// checkReady returns why the cluster is not ready yet.
func checkReady(ctx context.Context, c *Cluster) error {
	if _, err := c.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
		return err
	}
	_, err := c.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the controller-manager has not started work: %w", err)
	}
	return err
}

// AdminConfig is a new configuration for a client that may do everything, without a limit of its own on requests.
func (c *Cluster) AdminConfig() *rest.Config { return rest.CopyConfig(c.config) }

// AdminKubeconfig is the path of a kubeconfig for the same.
func (c *Cluster) AdminKubeconfig() string { return c.info.AdminKubeconfig }

// Dir is where the cluster keeps its data; see [Options].
func (c *Cluster) Dir() string { return c.info.Dir }

// StartTime is how long the start took, without the build.
func (c *Cluster) StartTime() time.Duration { return c.startTime }

// Processes gives the process id of each component as it was when the cluster started.
func (c *Cluster) Processes() map[string]int { return c.info.Processes }

// Done is closed when the cluster has ended, whether stopped or broken; Err says which.
func (c *Cluster) Done() <-chan struct{} { return c.process.done }

// Err is nil while the cluster runs and after Stop, and otherwise says which component failed.
func (c *Cluster) Err() error { return c.process.failure() }

// Stop ends the cluster and returns when all its processes are gone. Nothing is shut down in order. Stopping twice does
// no harm.
func (c *Cluster) Stop() { c.process.stop() }

// NewFakeNode returns a Node that kwok will play, with the capacity given, all of it allocatable, and the labels that a
// kubelet gives its Node.
func NewFakeNode(name string, capacity corev1.ResourceList) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{NodeAnnotation: NodeFake},
			Labels: map[string]string{
				corev1.LabelHostname:   name,
				corev1.LabelArchStable: "amd64",
				corev1.LabelOSStable:   "linux",
			},
		},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity.DeepCopy()},
	}
}

// Logs returns the last lines of each component's log.
func (c *Cluster) Logs(lines int) string { return tailLogs(c.info.Dir, lines) }

func tailLogs(dir string, lines int) string {
	paths, _ := filepath.Glob(filepath.Join(dir, "*.log")) // fails only for a bad pattern
	var out strings.Builder
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			fmt.Fprintln(&out, err)
			continue
		}
		all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
		fmt.Fprintf(&out, "--- %s\n%s\n", filepath.Base(path), strings.Join(all[max(0, len(all)-lines):], "\n"))
	}
	return out.String()
}
