// Package standin plays the operators of job systems, for end-to-end tests on a control plane without machines that run
// containers. Each does what a reclaim meets in the real one: the same resources, labels and names of pods, what
// happens when pods are lost, how the job is suspended, and what is counted as a failure. What it leaves out is said
// with each. None of the real code is in here. The definitions in crds are those of the real operators, so that the API server leaves out
// and refuses what it would there.
//
// They look at everything there is twice a second, under the rights of whoever runs them.
package standin

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

//go:embed crds/*.yaml
var definitions embed.FS

// interval is how often an operator looks.
const interval = 500 * time.Millisecond

// Operator plays one operator.
type Operator struct {
	// Name is that of the operator it stands in for, such as "et-operator".
	Name  string
	kinds []kind
	cluster
}

// kind is a resource that an operator owns, and what it does for each object. The objects are the reconciler's to change.
type kind struct {
	resource  schema.GroupVersionResource
	reconcile func(context.Context, *unstructured.Unstructured) error
}

// newOperator connects with the rights of the configuration.
func newOperator(name string, config *rest.Config, kinds func(cluster) []kind) (*Operator, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 200, 400
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	c := cluster{Interface: client, objects: objects}
	return &Operator{Name: name, kinds: kinds(c), cluster: c}, nil
}

// Applier is a cluster that takes manifests.
type Applier interface {
	ApplyYAML(ctx context.Context, manifests io.Reader) error
}

// Install applies the operator's CustomResourceDefinitions.
func (o *Operator) Install(ctx context.Context, to Applier) error {
	file, err := definitions.Open(path.Join("crds", o.Name+".yaml"))
	if err != nil {
		return err
	}
	defer file.Close()
	return to.ApplyYAML(ctx, file)
}

// Run reconciles until ctx ends, and returns the first error that trying again does not cure. That the definitions are
// not installed is cured by installing them.
func (o *Operator) Run(ctx context.Context) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		for _, k := range o.kinds {
			if err := o.reconcileAll(ctx, k); err != nil && ctx.Err() == nil && !Transient(err) {
				return fmt.Errorf("stand-in for %s: %s: %w", o.Name, k.resource.Resource, err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (o *Operator) reconcileAll(ctx context.Context, k kind) error {
	list, err := o.objects.Resource(k.resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var lasting []error
	for i := range list.Items {
		if list.Items[i].GetDeletionTimestamp() != nil {
			continue
		}
		if err := k.reconcile(ctx, &list.Items[i]); err != nil && !Transient(err) {
			lasting = append(lasting, fmt.Errorf("%s: %w", list.Items[i].GetName(), err))
		}
	}
	return errors.Join(lasting...)
}

// Transient says that trying again may cure the error. An internal error may come from a webhook that does not answer, such as that of an
// operator that was installed and does not listen yet.
func Transient(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) ||
		apierrors.IsServiceUnavailable(err) || utilnet.IsTimeout(err) || utilnet.IsProbableEOF(err) || utilnet.IsConnectionReset(err) ||
		utilnet.IsConnectionRefused(err) || utilnet.IsHTTP2ConnectionLost(err)
}
