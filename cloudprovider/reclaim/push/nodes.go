package push

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/providerid"
	"gpu-spot-autoscaler/cloudprovider/patch"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
)

// directoryAge is how old the directory may be. Within that time, requests share one list of Nodes.
const directoryAge = time.Second

// directory finds the Node of an instance without an informer, for which a replica that does not lead has no other use. It is
// safe for concurrent use.
type directory struct {
	client kubernetes.Interface
	region string
	clock  clock.PassiveClock

	// listing has one element while somebody lists the Nodes.
	listing chan struct{}

	mu      sync.Mutex
	listed  time.Time
	entries map[string]entry
}

// entry is what is known of the Node of an instance.
type entry struct {
	name     string
	uid      types.UID
	created  metav1.Time
	onDemand bool
	// deadline is that of the notice on the Node, if any; withdrawn is when a notice was last withdrawn.
	deadline, withdrawn time.Time
}

// covers returns whether an event of that time, with that deadline, adds nothing: its notice stands on the Node, or was
// withdrawn. If the instance had survived the deadline on the Node by then, that is of another notice.
func (e entry) covers(at, deadline time.Time) bool {
	return e.deadline.After(at) && !deadline.Before(e.deadline) || !at.After(e.withdrawn)
}

func newDirectory(client kubernetes.Interface, region string, clk clock.PassiveClock) *directory {
	return &directory{client: client, region: region, clock: clk, listing: make(chan struct{}, 1)}
}

// note writes the notice on the Node of its instance, and returns the outcome.
func (d *directory) note(ctx context.Context, e event, deadline time.Time) (outcome string, err error) {
	for range 2 {
		found, known, err := d.find(ctx, e.instanceID)
		switch {
		case err != nil:
			return "", err
		case !known:
			return outcomeUnknown, nil
		case found.onDemand:
			return outcomeOnDemand, nil
		case found.covers(e.time, deadline):
			return outcomeDuplicate, nil
		}
		err = d.annotate(ctx, found, deadline)
		if err == nil {
			d.remember(e.instanceID, found, deadline)
			return outcomeAccepted, nil
		}
		if !apierrors.IsNotFound(err) {
			return "", err
		}
		d.expire() // the instance has another Node by now
	}
	return "", errors.New("the node was replaced twice meanwhile")
}

// annotate returns a NotFound error if the Node is gone, even if another has its name by now.
func (d *directory) annotate(ctx context.Context, found entry, deadline time.Time) error {
	return patch.Annotate(ctx, d.client.CoreV1().Nodes(), &metav1.ObjectMeta{Name: found.name, UID: found.uid}, map[string]any{
		api.AnnotationNoticePush:         deadline.Format(time.RFC3339),
		api.AnnotationNoticePushReceived: d.clock.Now().UTC().Format(time.RFC3339Nano),
	})
}

func (d *directory) remember(instanceID string, found entry, deadline time.Time) {
	found.deadline = deadline
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries[instanceID] = found
}

func (d *directory) expire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listed = time.Time{}
}

// find returns what is known of the Node of the instance. It lists the Nodes again if the directory is too old.
func (d *directory) find(ctx context.Context, instanceID string) (found entry, known bool, err error) {
	select {
	case d.listing <- struct{}{}:
		defer func() { <-d.listing }()
	case <-ctx.Done():
		return entry{}, false, context.Cause(ctx)
	}
	d.mu.Lock()
	fresh := d.clock.Since(d.listed) <= directoryAge
	d.mu.Unlock()
	if !fresh {
		if err := d.list(ctx); err != nil {
			return entry{}, false, fmt.Errorf("list nodes: %w", err)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	found, known = d.entries[instanceID]
	return found, known, nil
}

func (d *directory) list(ctx context.Context) error {
	began := d.clock.Now()
	list, err := d.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"}) // from the API server's cache
	if err != nil {
		return err
	}
	entries := make(map[string]entry, len(list.Items))
	for i := range list.Items {
		node := &list.Items[i]
		region, id, err := providerid.Parse(node.Spec.ProviderID)
		if err != nil || d.region != "" && region != d.region {
			continue
		}
		if other, twice := entries[id]; twice && node.CreationTimestamp.Before(&other.created) {
			continue // the instance has joined again under another name
		}
		entries[id] = entry{
			name: node.Name, uid: node.UID, created: node.CreationTimestamp, onDemand: cluster.IsOnDemand(node),
			deadline: cluster.TimeOf(node, api.AnnotationNoticePush), withdrawn: cluster.TimeOf(node, api.AnnotationReclaimCancelled),
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listed, d.entries = began, entries
	return nil
}
