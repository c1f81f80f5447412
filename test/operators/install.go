package operators

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/yaml"

	"gpu-spot-autoscaler/test/cluster"
)

// servedInterval is how often the API server is asked whether it serves a definition.
const servedInterval = 50 * time.Millisecond

// Install applies the definitions that the system's module ships, and returns when the API server serves them: operators end
// where it does not.
func Install(ctx context.Context, system System, c *cluster.Cluster) error {
	definitions, err := system.readDefinitions(ctx)
	if err != nil {
		return err
	}
	for _, d := range definitions {
		if err := c.ApplyYAML(ctx, bytes.NewReader(d.text)); err != nil {
			return fmt.Errorf("%s: %w", d.path, err)
		}
		if err := d.awaitServed(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", d.path, err)
		}
	}
	return nil
}

// definition is a CustomResourceDefinition in a file.
type definition struct {
	path string
	text []byte
	spec struct {
		Group string
		Names struct{ Plural string }
		// Versions are all served.
		Versions []struct{ Name string }
	}
}

func (s System) readDefinitions(ctx context.Context) (definitions []definition, err error) {
	dir, err := s.Dir(ctx)
	if err != nil {
		return nil, err
	}
	for _, pattern := range s.definitions {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, err
		}
		if len(paths) == 0 {
			return nil, fmt.Errorf("%s has no definitions at %s", s.module, pattern)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			d := definition{path: path, text: text}
			into := struct{ Spec any }{&d.spec}
			if err := yaml.Unmarshal(text, &into); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			definitions = append(definitions, d)
		}
	}
	return definitions, nil
}

// resources are one for each version.
func (d definition) resources() (resources []schema.GroupVersionResource) {
	for _, version := range d.spec.Versions {
		resources = append(resources, schema.GroupVersionResource{Group: d.spec.Group, Version: version.Name, Resource: d.spec.Names.Plural})
	}
	return resources
}

// awaitServed waits until discovery tells of all versions of the definition.
func (d definition) awaitServed(ctx context.Context, c *cluster.Cluster) error {
	client, err := discovery.NewDiscoveryClientForConfig(c.AdminConfig())
	if err != nil {
		return err
	}
	for _, resource := range d.resources() {
		err := wait.PollUntilContextTimeout(ctx, servedInterval, startTimeout, true, func(context.Context) (bool, error) {
			list, err := client.ServerResourcesForGroupVersion(resource.GroupVersion().String())
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			return err == nil && slices.ContainsFunc(list.APIResources, func(served metav1.APIResource) bool {
				return served.Name == resource.Resource
			}), err
		})
		if err != nil {
			return fmt.Errorf("%s is not served: %w", resource, err)
		}
	}
	return nil
}

// Dir is where the source of the operator lies, with its examples.
func (s System) Dir(ctx context.Context) (string, error) { return s.command.ModuleDir(ctx, s.module) }

// installWebhooks applies the configurations that the system's module ships, if any, so that they lead to the port.
func (s System) installWebhooks(ctx context.Context, c *cluster.Cluster, port int, authority []byte) error {
	if s.webhooks == "" {
		return nil
	}
	dir, err := s.Dir(ctx)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, s.webhooks))
	if err != nil {
		return err
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text))
	for {
		configuration := &unstructured.Unstructured{}
		if err := decoder.Decode(&configuration.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if len(configuration.Object) == 0 {
			continue
		}
		body, err := s.webhooksAt(dir, configuration, port, authority)
		if err != nil {
			return err
		}
		if err := c.ApplyYAML(ctx, bytes.NewReader(body)); err != nil {
			return err
		}
	}
}

// webhooksAt is the configuration, patched, with webhooks that lead to the port, as JSON.
func (s System) webhooksAt(dir string, configuration *unstructured.Unstructured, port int, authority []byte) ([]byte, error) {
	if patch := s.patches[kind(configuration.GetKind())]; patch != "" {
		if err := applyPatch(configuration, filepath.Join(dir, patch)); err != nil {
			return nil, fmt.Errorf("%s: %w", patch, err)
		}
	}
	configuration.SetName(s.Name + "-" + configuration.GetName()) // two operators' may have one name
	webhooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	if err != nil {
		return nil, err
	}
	for _, webhook := range webhooks {
		webhook := webhook.(map[string]any)
		path, found, err := unstructured.NestedString(webhook, "clientConfig", "service", "path")
		if err != nil || !found {
			return nil, fmt.Errorf("webhook %s has no path: %w", webhook["name"], err)
		}
		webhook["clientConfig"] = map[string]any{
			"url": fmt.Sprintf("https://%s:%d%s", loopback, port, path), "caBundle": base64.StdEncoding.EncodeToString(authority),
		}
	}
	if err := unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks"); err != nil {
		return nil, err
	}
	return json.Marshal(configuration.Object)
}

// applyPatch changes the object as a file of JSON patches (RFC 6902), written in YAML, says.
func applyPatch(object *unstructured.Unstructured, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	body, err := yaml.YAMLToJSON(text)
	if err != nil {
		return err
	}
	patch, err := jsonpatch.DecodePatch(body)
	if err != nil {
		return err
	}
	before, err := json.Marshal(object.Object)
	if err != nil {
		return err
	}
	after, err := patch.Apply(before)
	if err != nil {
		return err
	}
	object.Object = nil
	return json.Unmarshal(after, &object.Object)
}
