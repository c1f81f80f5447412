// Package nodes makes the instances of a simulated cloud appear in a cluster, and disappear from it, as ACK nodes do.
//
// A Node is kept alive by kwok, which looks after those that carry KwokAnnotation; taking the annotation away is how
// a machine dies.
package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// DefaultDeleteDelay is how long the Node of a machine that went down stays, where no Controller looks after it.
const DefaultDeleteDelay = 5 * time.Second

// Registrar keeps the Node objects of machines. Safe for concurrent use.
type Registrar struct {
	// DeleteDelay is how long a Node stays NotReady before it is deleted. Set it before first use.
	DeleteDelay time.Duration
	// Controller deletes Nodes instead, if set. Set it before first use.
	Controller *Controller

	client kubernetes.Interface
	clock  clock.Clock
	began  time.Time

	mu       sync.Mutex
	machines map[string]*machine
	pending  sync.WaitGroup
}

// machine is what the registrar remembers of an instance.
type machine struct {
	// mu serialises Up and Down of one instance.
	mu   sync.Mutex
	node *corev1.Node
	// cancelDriver stops the wait for the driver.
	cancelDriver context.CancelFunc
	down         bool
}

// NewRegistrar returns a registrar that works through client. Client-go's default limit of five calls per second is
// far too small for it: build the client from a config that went through Tune.
func NewRegistrar(client kubernetes.Interface, clk clock.Clock) *Registrar {
	return &Registrar{
		DeleteDelay: DefaultDeleteDelay,
		client:      client,
		clock:       clk,
		began:       clk.Now(),
		machines:    map[string]*machine{},
	}
}

// Tune returns a copy of the config whose rate limit lets a thousand nodes come at once.
func Tune(config *rest.Config) *rest.Config {
	tuned := rest.CopyConfig(config)
	tuned.QPS, tuned.Burst = 500, 1000
	return tuned
}

// Up creates the Node of a machine and returns; its GPUs follow after DriverDelay, unless ctx ends before. Repeating
// it is harmless, and a machine that went down stays down. Errors are those of the API after some retries, and of
// quantities that do not parse.
func (r *Registrar) Up(ctx context.Context, m Machine) error {
	node, driver, err := buildNode(m)
	if err != nil {
		return err
	}
	known := r.machine(m.InstanceID)
	known.mu.Lock()
	defer known.mu.Unlock()
	if known.down || known.node != nil {
		return nil
	}
	created, err := r.create(ctx, node)
	if err != nil {
		return fmt.Errorf("nodes: instance %s: %w", m.InstanceID, err)
	}
	known.node = created
	if len(driver) == 0 {
		return nil
	}
	driverCtx, cancel := context.WithCancel(ctx)
	known.cancelDriver = cancel
	r.after(driverCtx, m.DriverDelay, "GPUs did not become allocatable", created.Name, func() error {
		return r.addResources(driverCtx, created.Name, driver)
	})
	return nil
}

// Down silences the Node and returns; that it is NotReady, and that the Node object goes, follows by Controller, or at
// once and after DeleteDelay, unless ctx ends before. What was bound to it is left to the pod garbage collector of the
// cluster. Repeating it, and an instance without Node, are
// harmless.
func (r *Registrar) Down(ctx context.Context, instanceID string) error {
	known := r.machine(instanceID)
	known.mu.Lock()
	defer known.mu.Unlock()
	if known.down {
		return nil
	}
	if known.cancelDriver != nil {
		known.cancelDriver()
	}
	node := known.node
	if node == nil {
		var err error
		if node, err = r.find(ctx, instanceID); err != nil {
			return fmt.Errorf("nodes: instance %s: %w", instanceID, err)
		}
	}
	if node != nil {
		if err := r.silence(ctx, node); err != nil {
			return fmt.Errorf("nodes: instance %s: %w", instanceID, err)
		}
	}
	known.down = true
	return nil
}

// Wait returns when everything that Up and Down left for later is done, or given up because its context ended.
func (r *Registrar) Wait() { r.pending.Wait() }

func (r *Registrar) machine(instanceID string) *machine {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.machines[instanceID]
	if !ok {
		known = &machine{}
		r.machines[instanceID] = known
	}
	return known
}

// after does something later, unless ctx ends before.
func (r *Registrar) after(ctx context.Context, delay time.Duration, complaint, node string, do func() error) {
	timer := r.clock.NewTimer(delay)
	r.pending.Go(func() {
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
		}
		if err := do(); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, complaint, "node", node)
		}
	})
}

// create gives the node the first free address that its instance ID leads to, so that a simulator that starts again
// finds its own nodes.
func (r *Registrar) create(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	hash := fnv.New32a()
	hash.Write([]byte(node.Labels[LabelInstanceID]))
	for suffix := hash.Sum32(); ; suffix++ {
		node = named(node, netip.AddrFrom4([4]byte{10, byte(suffix >> 16), byte(suffix >> 8), byte(suffix)}))
		created, err := r.createOrGet(ctx, node)
		if err != nil || created.Spec.ProviderID == node.Spec.ProviderID {
			return created, err
		}
	}
}

// createOrGet returns the node of that name, which may be another machine's.
func (r *Registrar) createOrGet(ctx context.Context, node *corev1.Node) (found *corev1.Node, err error) {
	err = r.retry(ctx, func() (err error) {
		found, err = r.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			found, err = r.client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		}
		return err
	})
	return found, err
}

// find returns the node of an instance that an earlier registrar brought up, nil if there is none.
func (r *Registrar) find(ctx context.Context, instanceID string) (node *corev1.Node, err error) {
	err = r.retry(ctx, func() error {
		list, err := r.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: LabelInstanceID + "=" + instanceID})
		if err == nil && len(list.Items) > 0 {
			node = &list.Items[0]
		}
		return err
	})
	return node, err
}

func (r *Registrar) addResources(ctx context.Context, name string, resources corev1.ResourceList) error {
	return r.patch(ctx, name, map[string]any{
		"status": map[string]any{"capacity": resources, "allocatable": resources},
	}, "status")
}

// patch applies a strategic merge patch. A node that is gone already is fine.
func (r *Registrar) patch(ctx context.Context, name string, patch any, subresources ...string) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	return ignoreNotFound(r.retry(ctx, func() error {
		_, err := r.client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, subresources...)
		return err
	}))
}

// delete deletes this very node, not one that took its name meanwhile.
func (r *Registrar) delete(ctx context.Context, node *corev1.Node) error {
	options := *metav1.NewPreconditionDeleteOptions(string(node.UID))
	return ignoreNotFound(r.retry(ctx, func() error {
		err := r.client.CoreV1().Nodes().Delete(ctx, node.Name, options)
		if apierrors.IsConflict(err) {
			return nil
		}
		return err
	}))
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
