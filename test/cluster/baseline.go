package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

const (
	// settlePoll is how long nothing may change for a cluster to have settled.
	settlePoll = 500 * time.Millisecond
	// restorePoll leaves the controllers time to end what hangs on the objects that were deleted.
	restorePoll = 200 * time.Millisecond
)

// Baseline is what a cluster holds at one moment; see [Cluster.Restore].
type Baseline struct{ objects map[types.UID]object }

// object is one of a cluster's, without its content.
type object struct {
	resource        schema.GroupVersionResource
	namespace, name string
	// version changes with the content: the generation where the kind has one, which does not count what controllers
	// write into the status, else the resource version.
	version string
}

func (o object) String() string {
	return fmt.Sprintf("%s %s/%s", o.resource.Resource, o.namespace, o.name)
}

// isRenewed says whether the object changes as long as the cluster runs.
func (o object) isRenewed() bool { return o.resource.Resource == "leases" }

// Baseline returns what the cluster holds, as soon as nothing changes any more: its components make some of it after they
// are ready.
func (c *Cluster) Baseline(ctx context.Context) (*Baseline, error) {
	var held map[types.UID]object
	err := wait.PollUntilContextCancel(ctx, settlePoll, true, func(ctx context.Context) (bool, error) {
		before := held
		var err error
		held, err = listObjects(ctx, c)
		return maps.EqualFunc(before, held, func(a, b object) bool { return a == b || a.isRenewed() }), err
	})
	if err != nil {
		return nil, fmt.Errorf("cluster: baseline: %w", err)
	}
	return &Baseline{objects: held}, nil
}

// Restore deletes all that the cluster does not hold at the baseline, without grace, and returns when it is gone. The error
// says what is not as it was and cannot be restored: an object of the baseline that was changed or deleted, or one
// that does not go before ctx ends. Nobody else may work on the cluster meanwhile.
func (c *Cluster) Restore(ctx context.Context, baseline *Baseline) error {
	var left []object
	err := wait.PollUntilContextCancel(ctx, restorePoll, true, func(ctx context.Context) (bool, error) {
		held, err := listObjects(ctx, c)
		if err != nil {
			return false, err
		}
		if err := baseline.check(held); err != nil {
			return false, err
		}
		maps.DeleteFunc(held, func(id types.UID, _ object) bool { _, known := baseline.objects[id]; return known })
		left = slices.Collect(maps.Values(held))
		return len(left) == 0, removeObjects(ctx, c, left)
	})
	if err != nil && len(left) > 0 {
		err = fmt.Errorf("%w; %d objects were left, such as %s", err, len(left), left[0])
	}
	if err != nil {
		return fmt.Errorf("cluster: restore: %w", err)
	}
	return nil
}

func (b *Baseline) check(held map[types.UID]object) error {
	for id, was := range b.objects {
		switch is, there := held[id]; {
		case was.isRenewed():
		case !there:
			return fmt.Errorf("%s was deleted", was)
		case is != was:
			return fmt.Errorf("%s was changed", was)
		}
	}
	return nil
}

// listObjects returns everything that can be listed and deleted, by its UID.
func listObjects(ctx context.Context, c *Cluster) (map[types.UID]object, error) {
	lists, err := c.client.Discovery().ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) { // a definition that is being deleted
		return nil, err
	}
	config := c.AdminConfig()
	config.WarningHandler = rest.NoWarnings{} // of kinds that are deprecated
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	deletable := discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}
	held := map[types.UID]object{}
	for _, list := range discovery.FilteredBy(deletable, lists) {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, kind := range list.APIResources {
			resource := version.WithResource(kind.Name)
			items, err := client.Resource(resource).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) { // its definition has just gone
				continue
			} else if err != nil {
				return nil, fmt.Errorf("list %s: %w", resource, err)
			}
			for _, item := range items.Items {
				held[item.UID] = objectOf(resource, item.ObjectMeta)
			}
		}
	}
	return held, nil
}

func objectOf(resource schema.GroupVersionResource, meta metav1.ObjectMeta) object {
	o := object{resource: resource, namespace: meta.Namespace, name: meta.Name, version: meta.ResourceVersion}
	if meta.Generation > 0 {
		o.version = fmt.Sprint("generation ", meta.Generation)
	}
	return o
}

// removeObjects deletes the objects at once, with all that belongs to them.
func removeObjects(ctx context.Context, c *Cluster, objects []object) error {
	client, err := metadata.NewForConfig(c.config)
	if err != nil {
		return err
	}
	options := metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0)), PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
	var failures []error
	for _, o := range objects {
		err := client.Resource(o.resource).Namespace(o.namespace).Delete(ctx, o.name, options)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			failures = append(failures, fmt.Errorf("delete %s: %w", o, err))
		}
	}
	return errors.Join(failures...)
}
