package jobs

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/patch"
)

// Cluster is what systems use to read and change the cluster.
type Cluster struct {
	// Dynamic reads and changes the objects of jobs.
	Dynamic dynamic.Interface
	// Client finds pods.
	Client kubernetes.Interface
	Clock  clock.WithTicker
}

// PatchJob sends one merge patch of the job's object. The error wraps ErrNoObject if the object is gone, even if another job has its name by now.
func (c Cluster) PatchJob(ctx context.Context, resource schema.GroupVersionResource, job Job, fields Patch) error {
	_, err := c.Patch(ctx, resource, job.NamespacedName, job.UID, fields)
	return err
}

// Patch sends one merge patch of an object, and returns the object as it is then. The error wraps ErrNoObject if the object is gone, even if
// another one has its name by now.
func (c Cluster) Patch(
	ctx context.Context, resource schema.GroupVersionResource, name types.NamespacedName, uid types.UID, fields Patch, subresources ...string,
) (*unstructured.Unstructured, error) {
	client, object := c.Dynamic.Resource(resource).Namespace(name.Namespace), &metav1.ObjectMeta{Name: name.Name, UID: uid}
	patched, err := patch.Send(ctx, client, object, types.MergePatchType, fields, metav1.PatchOptions{}, subresources...)
	return patched, withErrNoObject(err)
}

// Patch is a JSON merge patch of an object. A value of nil removes its field.
type Patch map[string]any

// Set sets a field, and returns the patch. Numbers have to be int64. It panics where the path leads through a field that is
// no object, which is a mistake in the program.
func (p Patch) Set(value any, path ...string) Patch {
	if err := unstructured.SetNestedField(p, value, path...); err != nil {
		panic(fmt.Sprintf("jobs: malformed patch: %v", err))
	}
	return p
}

// SetAnnotation sets an annotation, or removes it where the value is nil, and returns the patch.
func (p Patch) SetAnnotation(key string, value any) Patch {
	return p.Set(value, "metadata", "annotations", key)
}
