package operators

import (
	"context"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"gpu-spot-autoscaler/test/cluster"
)

// abandon takes the webhooks of an operator that is gone out of the cluster, and the finalizers off its objects: nobody is
// left to answer or to remove them, and another test may use the cluster.
func abandon(ctx context.Context, system System, c *cluster.Cluster) error {
	client, err := dynamic.NewForConfig(c.AdminConfig())
	if err != nil {
		return err
	}
	admission := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	var failures []error
	for _, resource := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
		configurations := client.Resource(admission.WithResource(resource))
		list, err := configurations.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, configuration := range list.Items {
			if strings.HasPrefix(configuration.GetName(), system.Name+"-") {
				failures = append(failures, configurations.Delete(ctx, configuration.GetName(), metav1.DeleteOptions{}))
			}
		}
	}
	definitions, err := system.readDefinitions(ctx)
	if err != nil {
		return err
	}
	for _, definition := range definitions {
		for _, resource := range definition.resources() {
			failures = append(failures, releaseAll(ctx, client.Resource(resource)))
		}
	}
	return errors.Join(failures...)
}

// releaseAll takes the finalizers off all objects of a resource.
func releaseAll(ctx context.Context, objects dynamic.NamespaceableResourceInterface) error {
	list, err := objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	var failures []error
	for _, object := range list.Items {
		if len(object.GetFinalizers()) == 0 {
			continue
		}
		var of dynamic.ResourceInterface = objects
		if object.GetNamespace() != "" {
			of = objects.Namespace(object.GetNamespace())
		}
		_, err := of.Patch(ctx, object.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if !apierrors.IsNotFound(err) {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}
