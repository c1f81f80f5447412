package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

const (
	fieldManager     = "test-cluster"
	newKindTimeout   = time.Minute // from a CustomResourceDefinition to the resource being served, on a machine busy with other tests
	yamlPeekBytes    = 4096
	defaultNamespace = metav1.NamespaceDefault
)

// ApplyYAML applies every document of the stream on the server's side, in order, as kubectl apply --server-side
// --force-conflicts would. Objects without a namespace go to default. One that has no name of its own (generateName) is created, as by
// kubectl create. A kind that an earlier document has only just defined is waited for. The error names the document at which it stopped.
func (c *Cluster) ApplyYAML(ctx context.Context, manifests io.Reader) error {
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.client.Discovery()))
	decoder := utilyaml.NewYAMLOrJSONDecoder(manifests, yamlPeekBytes)
	for document := 1; ; document++ {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("cluster: manifest document %d: %w", document, err)
		}
		if len(object.Object) == 0 { // nothing between two separators
			continue
		}
		if err := apply(ctx, client, mapper, object); err != nil {
			return fmt.Errorf("cluster: manifest document %d, %s %s: %w", document, object.GetKind(), object.GetName(), err)
		}
	}
}

func apply(ctx context.Context, client dynamic.Interface, mapper meta.ResettableRESTMapper, object *unstructured.Unstructured) error {
	mapping, err := mappingFor(ctx, mapper, object)
	if err != nil {
		return err
	}
	var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		namespace := object.GetNamespace()
		if namespace == "" {
			namespace = defaultNamespace
		}
		resource = client.Resource(mapping.Resource).Namespace(namespace)
	}
	if object.GetName() == "" && object.GetGenerateName() != "" {
		_, err = resource.Create(ctx, object, metav1.CreateOptions{FieldManager: fieldManager})
		return err
	}
	_, err = resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}

// mappingFor finds the resource of an object, asking again while the server may still be learning of it.
func mappingFor(ctx context.Context, mapper meta.ResettableRESTMapper, object *unstructured.Unstructured) (*meta.RESTMapping, error) {
	kind := object.GroupVersionKind()
	var mapping *meta.RESTMapping
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, newKindTimeout, true, func(context.Context) (bool, error) {
		mapping, last = mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(last) {
			mapper.Reset()
			return false, nil
		}
		return last == nil, last
	})
	if err != nil && last != nil {
		return nil, last
	}
	return mapping, err
}
