package reclaim

import (
	"context"
	"encoding/json"
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
)

// directoryAge is how old the directory may get. Within that time, requests share one list of Nodes.
const directoryAge = time.Second

// directory finds the Node of an instance without an informer, which a replica that does not lead has no other use for.
// It is safe for concurrent use.
type directory struct {
	client kubernetes.Interface
	region string
	clock  clock.PassiveClock

	// listing is held, by a token in it, while the Nodes are listed.
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
	// deadline is that of the notice on it, if any; refuted is when it was last given back.
	deadline, refuted time.Time
}

// covers says whether an event of that time, with that deadline, adds nothing: its notice stands on the Node, or it was
// refuted. A notice whose deadline the instance had survived by then was another.
func (e entry) covers(at, deadline time.Time) bool {
	return e.deadline.After(at) && !deadline.Before(e.deadline) || !at.After(e.refuted)
}

func newDirectory(client kubernetes.Interface, region string, clk clock.PassiveClock) *directory {
	return &directory{client: client, region: region, clock: clk, listing: make(chan struct{}, 1)}
}

// note writes the notice on the Node of its instance and says what became of it.
func (d *directory) note(ctx context.Context, event pushedEvent, deadline time.Time) (outcome string, err error) {
	for range 2 {
		found, known, err := d.find(ctx, event.instanceID)
		switch {
		case err != nil:
			return "", err
		case !known:
			return pushUnknown, nil
		case found.onDemand:
			return pushOnDemand, nil
		case found.covers(event.time, deadline):
			return pushDuplicate, nil
		}
		err = d.annotate(ctx, found, deadline)
		if err == nil {
			d.remember(event.instanceID, found, deadline)
			return pushAccepted, nil
		}
		if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return "", err
		}
		d.expire() // the Node is another by now
	}
	return "", errors.New("the node comes and goes")
}

// annotate fails with a conflict where another Node has got the name.
func (d *directory) annotate(ctx context.Context, found entry, deadline time.Time) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": found.uid,
		"annotations": map[string]string{
			api.AnnotationNoticePush:         deadline.Format(time.RFC3339),
			api.AnnotationNoticePushReceived: d.clock.Now().UTC().Format(time.RFC3339Nano),
		},
	}})
	if err != nil {
		return err
	}
	_, err = d.client.CoreV1().Nodes().Patch(ctx, found.name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
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

// find lists the Nodes anew where the directory is too old.
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
			return entry{}, false, fmt.Errorf("listing nodes: %w", err)
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
			continue // it has joined anew under another name
		}
		entries[id] = entry{
			name: node.Name, uid: node.UID, created: node.CreationTimestamp, onDemand: isOnDemand(node),
			deadline: timeOf(node, api.AnnotationNoticePush), refuted: timeOf(node, api.AnnotationReclaimCancelled),
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listed, d.entries = began, entries
	return nil
}
