// Package rig puts the real binary between a real control plane and a simulated cloud, for end-to-end tests and measurements.
package rig

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/cluster"
	"gpu-spot-autoscaler/test/records"
)

const (
	// Namespace and ServiceAccount are those of the shipped manifests.
	Namespace      = "kube-system"
	ServiceAccount = "gpu-spot-autoscaler"
	// ClusterName is in the discovery tag of the pools that a rig's autoscaler manages, unless Options have another.
	ClusterName = "rig"
)

// Options are what a Rig is made of.
type Options struct {
	World alisim.World
	// ClusterName is in the discovery tag of the pools, and in the RAM policy that the cloud goes by; default ClusterName.
	ClusterName string
	// Race has the binary built with the race detector; a race that it finds is a failure of Stop.
	Race bool
	// Binary is the autoscaler to run; default: the one built from source.
	Binary string
	// Output gets what the components say on starting; default nothing.
	Output io.Writer
	// Dir holds logs and kubeconfigs. Required.
	Dir string
	// WithoutNodes keeps the simulator from registering Nodes.
	WithoutNodes bool
	// NodeGracePeriod is how long a Node may be silent before it is NotReady; default that of package cluster.
	NodeGracePeriod time.Duration
	// DefaultRates leaves the scheduler and the controller manager their default requests per second.
	DefaultRates bool
	// Workloads switches on the API of Workloads and PodGroups of Kubernetes 1.36: see package cluster.
	Workloads bool
	// OwnCluster keeps the control plane of a test from being one that other tests have used or will use.
	OwnCluster bool
	// Bare leaves out the shipped roles and policies, with their ServiceAccount, for a test that installs the autoscaler itself. The control
	// plane is its own then, and the rig starts no autoscalers.
	Bare bool

	// AuditUsers are users whose requests Audit returns. The control plane is the test's own then.
	AuditUsers []string

	shared bool
	// records is the directory in which the rig records what its autoscalers used of their rights; none where it is empty.
	records string
}

// Rig is a control plane with the shipped RBAC and admission policies in force, and a cloud. Its autoscalers are started apart.
type Rig struct {
	Options
	Cluster *cluster.Cluster
	Cloud   *alisim.Server
	// Client is the administrator's.
	Client kubernetes.Interface
	// kubeconfig is the ServiceAccount's.
	kubeconfig string
	binary     string
	// auditLog is the file in which the API server records requests, if it does.
	auditLog string
	// lent is the control plane where it is left to other end-to-end tests afterwards.
	lent *lent
}

// New starts a rig; Stop ends it.
func New(ctx context.Context, options Options) (*Rig, error) {
	r := &Rig{Options: options}
	if r.Output == nil {
		r.Output = io.Discard
	}
	r.ClusterName = cmp.Or(r.ClusterName, ClusterName)
	if err := r.start(ctx); err != nil {
		r.Stop()
		return nil, err
	}
	return r, nil
}

func (r *Rig) start(ctx context.Context) error {
	root, err := repositoryRoot()
	if err != nil {
		return err
	}
	if r.binary = r.Binary; r.binary == "" {
		build := buildPlain
		if r.Race {
			build = buildRace
		}
		if r.binary, err = build(); err != nil {
			return err
		}
	}
	if err := r.startCluster(ctx, root); err != nil {
		return err
	}
	config := r.Cluster.AdminConfig()
	config.QPS, config.Burst = 500, 1000
	if r.Client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	return r.startCloud(ctx, root)
}

func (r *Rig) startCluster(ctx context.Context, root string) (err error) {
	options := cluster.Options{Dir: filepath.Join(r.Dir, "cluster"), Output: r.Output, NodeGracePeriod: r.NodeGracePeriod, DefaultRates: r.DefaultRates, Workloads: r.Workloads}
	if r.shared {
		if r.lent = borrow(r.World.Region); r.lent != nil {
			r.Cluster, r.kubeconfig = r.lent.cluster, r.lent.kubeconfig
			return nil
		}
		options.Dir = "" // it outlives the test
	}
	if r.auditLog, err = createAuditLog(r); err != nil {
		return err
	}
	options.AuditLog, options.AuditUsers = r.auditLog, slices.Concat(audited, r.AuditUsers)
	if r.Cluster, err = cluster.Start(ctx, options); err != nil {
		return err
	}
	if r.Bare {
		return nil
	}
	if err := r.install(ctx, root); err != nil || !r.shared {
		return err
	}
	baseline, err := r.Cluster.Baseline(ctx)
	r.lent = &lent{cluster: r.Cluster, region: r.World.Region, kubeconfig: r.kubeconfig, baseline: baseline}
	return err
}

// startCloud lets the world's keys do what the shipped RAM policy allows, and no more.
func (r *Rig) startCloud(ctx context.Context, root string) (err error) {
	world := r.World
	if world.RAMPolicy == nil {
		if world.RAMPolicy, err = shippedRAMPolicy(root, r.ClusterName, world.Pools); err != nil {
			return err
		}
	}
	options := alisim.Options{Clock: clock.RealClock{}}
	if !r.WithoutNodes {
		options.Kube = r.Cluster.AdminConfig()
	}
	// The cloud outlives the context of its start.
	r.Cloud, err = alisim.Start(context.WithoutCancel(ctx), world, options)
	return err
}

// ReplaceWorld ends the cloud and starts another with the world. Autoscalers know only the cloud that was there when
// they started.
func (r *Rig) ReplaceWorld(ctx context.Context, world alisim.World) error {
	root, err := repositoryRoot()
	if err != nil {
		return err
	}
	if err := r.endCloud(); err != nil {
		return err
	}
	r.World = world
	return r.startCloud(ctx, root)
}

// install applies the shipped ServiceAccount, its roles, and the policies for what roles cannot tell apart. The Deployment it
// leaves out: the binary runs outside of the cluster.
func (r *Rig) install(ctx context.Context, root string) error {
	for _, name := range []string{"rbac.yaml", "policies.yaml"} {
		if err := apply(ctx, r, filepath.Join(root, "deploy", "manifests", name)); err != nil {
			return err
		}
	}
	var err error
	if r.kubeconfig, err = r.Cluster.ServiceAccountKubeconfig(ctx, Namespace, ServiceAccount); err != nil {
		return err
	}
	return r.waitForPolicies(ctx)
}

// apply applies the manifest, as an operator in the world's region would.
func apply(ctx context.Context, r *Rig, path string) error {
	manifest, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	ours := bytes.ReplaceAll(manifest, []byte(shippedRegion), []byte(r.World.Region))
	if err := r.Cluster.ApplyYAML(ctx, bytes.NewReader(ours)); err != nil {
		return fmt.Errorf("apply %s: %w", path, err)
	}
	return nil
}

// shippedRegion is the region in the shipped manifests, in whose place operators put theirs.
const shippedRegion = "cn-hangzhou"

// waitForPolicies returns once the API server goes by the policies, which it takes up once a second. It takes up all that it
// has seen, and it sees them in the order in which they were made: the last one is asked about.
func (r *Rig) waitForPolicies(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", r.kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "not-the-autoscalers"}}
		_, last = client.CoreV1().ConfigMaps(Namespace).Create(ctx, foreign, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return last != nil && strings.Contains(last.Error(), "ValidatingAdmissionPolicy"), nil
	})
	if err != nil {
		return fmt.Errorf("wait for the admission policies: %w (last answer: %v)", err, last)
	}
	return nil
}

// BinaryPath returns the binary that the rig's autoscalers run, for its subcommands.
func (r *Rig) BinaryPath() string { return r.binary }

// Stop ends the cloud and the control plane.
func (r *Rig) Stop() {
	if err := r.endCloud(); err != nil {
		fmt.Fprintln(r.Output, err)
	}
	if r.Cluster != nil {
		r.Cluster.Stop()
	}
}

// ForTest starts a rig with a race-detecting binary for the length of a test.
func ForTest(t *testing.T, world alisim.World) *Rig {
	t.Helper()
	return ForTestWith(t, Options{World: world})
}

// ForTestWith is ForTest with options, but for those that a test needs: Race, Dir and Output. The control plane is one that
// other tests of the package have done with, where there is one.
func ForTestWith(t *testing.T, options Options) *Rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // the first one builds
	defer cancel()
	options.Race, options.Dir, options.Output = true, t.TempDir(), t.Output()
	options.records = records.Directory()
	options.shared = !options.OwnCluster && !options.Bare && len(options.AuditUsers) == 0 && options.NodeGracePeriod == 0 && !options.DefaultRates && !options.Workloads
	r, err := New(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	if options.shared {
		t.Cleanup(func() { r.giveBack(t) })
	} else {
		t.Cleanup(r.Stop)
	}
	return r
}

// Eventually polls until the condition holds, or fails the test with what was waited for. An error is no end: the API
// server may have a bad moment.
func Eventually(t *testing.T, timeout time.Duration, what string, condition func(context.Context) (bool, error)) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		holds, err := condition(ctx)
		if err != nil && (last == nil || ctx.Err() == nil) {
			last = err
		}
		return holds && err == nil, nil
	})
	if err != nil {
		t.Fatalf("waited %v for this: %s: %v (last error: %v)", timeout, what, err, last)
	}
}

// Always polls for the whole duration and fails the test as soon as the condition does not hold, or if it cannot be told
// even once.
func Always(t *testing.T, duration time.Duration, what string, condition func(context.Context) (bool, error)) {
	t.Helper()
	var last error
	held := 0
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, duration, true, func(ctx context.Context) (bool, error) {
		holds, err := condition(ctx)
		switch {
		case err != nil:
			last = err
		case !holds:
			return false, errors.New("does not hold")
		default:
			held++
		}
		return false, nil
	})
	if held == 0 || err != nil && !wait.Interrupted(err) {
		t.Fatalf("should always hold: %s: %v (last error: %v)", what, err, last)
	}
}

// Events returns the messages of the Events with the reason, of any object.
func (r *Rig) Events(ctx context.Context, reason string) ([]string, error) {
	list, err := r.Client.CoreV1().Events(corev1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
	if err != nil {
		return nil, err
	}
	var messages []string
	for _, event := range list.Items {
		messages = append(messages, event.Message)
	}
	return messages, nil
}
