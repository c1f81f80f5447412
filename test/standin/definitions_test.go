package standin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
	"gpu-spot-autoscaler/cloudprovider/jobs/systems"
)

// definition is what an API server does with the objects of a CustomResourceDefinition.
type definition struct {
	structural *structuralschema.Structural
	validator  validation.SchemaCreateValidator
}

// readDefinitions returns those of all stand-ins. It reads them once.
var readDefinitions = sync.OnceValues(func() (map[schema.GroupVersionResource]definition, error) {
	all := map[schema.GroupVersionResource]definition{}
	files, err := definitions.ReadDir("crds")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := definitions.ReadFile(path.Join("crds", file.Name()))
		if err != nil {
			return nil, err
		}
		decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			var crd apiextensionsv1.CustomResourceDefinition
			if err := decoder.Decode(&crd); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("read %s: %w", file.Name(), err)
			}
			for _, version := range crd.Spec.Versions {
				resource := schema.GroupVersionResource{Group: crd.Spec.Group, Version: version.Name, Resource: crd.Spec.Names.Plural}
				if all[resource], err = newDefinition(version.Schema.OpenAPIV3Schema); err != nil {
					return nil, fmt.Errorf("read the definition of %s: %w", crd.Name, err)
				}
			}
		}
	}
	return all, nil
})

func newDefinition(of *apiextensionsv1.JSONSchemaProps) (d definition, err error) {
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(of, &internal, nil); err != nil {
		return d, err
	}
	if d.structural, err = structuralschema.NewStructural(&internal); err != nil {
		return d, err
	}
	d.validator, _, err = validation.NewSchemaValidator(&internal)
	return d, err
}

// admit does to the object what the API server does, and returns an error for what it refuses or leaves out.
func (d definition) admit(object *unstructured.Unstructured) error {
	var errs []error
	for _, field := range pruning.PruneWithOptions(object.Object, d.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		errs = append(errs, errors.New("no such field: "+field))
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(object.Object, d.structural)
	defaulting.Default(object.Object, d.structural)
	for _, err := range validation.ValidateCustomResource(nil, object.Object, d.validator) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// requireDefined fails the test if an object is written of which the API server would not keep every field.
func requireDefined(t *testing.T, client *dynamicfake.FakeDynamicClient) {
	t.Helper()
	all, err := readDefinitions()
	require.NoError(t, err)
	check := func(resource schema.GroupVersionResource, object runtime.Object) {
		if d, ok := all[resource]; ok {
			assert.NoError(t, d.admit(object.(*unstructured.Unstructured)), "%s %s", resource.Resource, object.(*unstructured.Unstructured).GetName())
		}
	}
	for _, verb := range []string{"create", "update"} {
		client.PrependReactor(verb, "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
			check(action.GetResource(), action.(interface{ GetObject() runtime.Object }).GetObject())
			return false, nil, nil
		})
	}
	client.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		_, object, err := clienttesting.ObjectReaction(client.Tracker())(action)
		if err == nil {
			check(action.GetResource(), object.DeepCopyObject())
		}
		return true, object, err
	})
}

func TestTheDefinitionsKeepTheExamplesAsTheyAre(t *testing.T) {
	all, err := readDefinitions()
	require.NoError(t, err)
	examples := map[schema.GroupVersionResource]string{
		TrainingJobs: jobstest.TrainingJob, ArenaMPIJobs: jobstest.ArenaMPIJob, ElasticJobs: jobstest.ElasticJob,
		AITrainingJobs: jobstest.AITrainingJob, VolcanoJobs: jobstest.VolcanoJob,
	}
	for _, system := range systems.All(jobs.Cluster{Clock: clock.RealClock{}}) {
		if _, defined := all[system.Resource()]; defined {
			assert.NotEmpty(t, examples[system.Resource()], "add the example of %s", system.Resource().Resource)
		}
	}
	for resource, example := range examples {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.UnmarshalStrict([]byte(example), &object.Object))
		assert.NoError(t, all[resource].admit(object), resource.Resource)
	}
	for _, manifest := range []string{"../../deploy/examples/etjob/job.yaml", "../demo/manifests/elastic-training.yaml"} {
		text, err := os.ReadFile(manifest)
		require.NoError(t, err)
		documents := bytes.Split(text, []byte("\n---\n"))
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal(documents[len(documents)-1], &object.Object))
		require.Equal(t, "TrainingJob", object.GetKind(), manifest)
		assert.NoError(t, all[TrainingJobs].admit(object), manifest)
	}
}

func TestTheDefinitionsRefuseWhatTheyDoNotName(t *testing.T) {
	all, err := readDefinitions()
	require.NoError(t, err)
	for resource, d := range all {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.UnmarshalStrict([]byte(`{metadata: {name: job}, unheard: 1, spec: {unheard: 1}, status: {unheard: 1}}`), &object.Object))
		err := d.admit(object)
		assert.ErrorContains(t, err, "no such field: unheard", resource.Resource)
		for _, part := range []string{"spec", "status"} {
			if _, has := d.structural.Properties[part]; has {
				assert.ErrorContains(t, err, "no such field: "+part+".unheard", resource.Resource)
			}
		}
	}
}

// What the autoscaler writes is checked here because its own tests write to a client that keeps every field.
func TestTheDefinitionsKeepWhatTheAutoscalerWrites(t *testing.T) {
	cluster := func(t *testing.T, example string) *jobstest.Fixture {
		f := jobstest.New(t, systems.All, example)
		requireDefined(t, f.Dynamic)
		return f
	}
	t.Run("a TrainingJob that is shrunk and grown", func(t *testing.T) {
		f := cluster(t, jobstest.TrainingJob)
		require.NoError(t, f.Registry.Shrink(t.Context(), f.Get("trainingjob", "mnist"), []string{"mnist-worker-2", "mnist-worker-3"}))
		scaleIns := objects(t, f, jobstest.ScaleIns)
		require.Len(t, scaleIns, 1)
		f.Set(jobstest.ScaleIns, scaleIns[0].GetName(), map[string]any{
			"phase": scaleSucceeded, "conditions": []any{map[string]any{"type": scaleSucceeded, "status": "True"}}, "replicaStatuses": map[string]any{}, "restartCount": int64(0),
		}, "status")
		f.Set(TrainingJobs, "mnist", []any{"mnist-worker-0", "mnist-worker-1"}, "status", "targetWorkers")
		require.NoError(t, f.Registry.Grow(t.Context(), f.Get("trainingjob", "mnist"), 4))
		assert.Len(t, objects(t, f, jobstest.ScaleOuts), 1)
	})
	t.Run("a TrainingJob that is suspended and resumed", func(t *testing.T) {
		f := cluster(t, jobstest.TrainingJob)
		require.NoError(t, f.Registry.Suspend(t.Context(), f.Get("trainingjob", "mnist"), jobs.HeldForReclaim))
		f.Set(TrainingJobs, "mnist", "Suspended", "status", "phase")
		require.NoError(t, f.Registry.Resume(t.Context(), f.Get("trainingjob", "mnist"), 2))
		assert.Equal(t, "Created", f.Object(TrainingJobs, "mnist").Object["status"].(map[string]any)["phase"])
	})
	t.Run("a job of Volcano that is suspended and resumed", func(t *testing.T) {
		f := cluster(t, jobstest.VolcanoJob)
		require.NoError(t, f.Registry.Suspend(t.Context(), f.Get("vcjob", "resnet"), jobs.HeldForReclaim))
		f.Set(VolcanoJobs, "resnet", "Aborted", "status", "state", "phase")
		require.NoError(t, f.Registry.Resume(t.Context(), f.Get("vcjob", "resnet"), 5))
		assert.Len(t, objects(t, f, VolcanoCommands), 2)
	})
}

// objects returns those of the resource.
func objects(t *testing.T, f *jobstest.Fixture, resource schema.GroupVersionResource) []unstructured.Unstructured {
	t.Helper()
	list, err := f.Dynamic.Resource(resource).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return list.Items
}
