package drill

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"gpu-spot-autoscaler/test/rig"
)

// createObject creates the object of the job, with the job's name, labels and annotations.
func (j Job) createObject(ctx context.Context, r *rig.Rig, resource schema.GroupVersionResource, object *unstructured.Unstructured) error {
	client, err := dynamic.NewForConfig(r.Cluster.AdminConfig())
	if err != nil {
		return err
	}
	meta := j.meta()
	object.SetName(meta.Name)
	object.SetNamespace(meta.Namespace)
	object.SetLabels(meta.Labels)
	object.SetAnnotations(meta.Annotations)
	if _, err = client.Resource(resource).Namespace(meta.Namespace).Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("%s %s: %w", object.GetKind(), j.Name, err)
	}
	return nil
}

// objects returns those of all namespaces.
func objects(ctx context.Context, r *rig.Rig, resource schema.GroupVersionResource) ([]unstructured.Unstructured, error) {
	client, err := dynamic.NewForConfig(r.Cluster.AdminConfig())
	if err != nil {
		return nil, err
	}
	list, err := client.Resource(resource).Namespace(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}
