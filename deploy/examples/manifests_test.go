package examples_test

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// job is the second document of the manifest.
func job(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(manifest)
	require.NoError(t, err)
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		objects = append(objects, object)
	}
	require.Len(t, objects, 2, "a claim and a job")
	return objects[1]
}

// template is a pod template of the job, of which every field is known.
func template(t *testing.T, job *unstructured.Unstructured, path ...string) corev1.PodTemplateSpec {
	t.Helper()
	section, found, err := unstructured.NestedMap(job.Object, append(path, "template")...)
	require.NoError(t, err)
	require.True(t, found)
	text, err := yaml.Marshal(section)
	require.NoError(t, err)
	var template corev1.PodTemplateSpec
	require.NoError(t, yaml.UnmarshalStrict(text, &template))
	return template
}

func TestThePodsOfTheExamplesAreToldWhatTheLoopReads(t *testing.T) {
	tests := map[string][]string{
		"pytorch": {"spec", "pytorchReplicaSpecs", "Worker"},
		"etjob":   {"spec", "etReplicaSpecs", "worker"},
	}
	for name, path := range tests {
		t.Run(name, func(t *testing.T) {
			pod := template(t, job(t, filepath.Join(name, "job.yaml")), path...)
			assert.Equal(t, "true", pod.Annotations[api.AnnotationAwaitCheckpoint])
			container := pod.Spec.Containers[0]

			mounts := map[string]string{} // volumes by directory
			for _, mount := range container.VolumeMounts {
				mounts[mount.MountPath] = mount.Name
				assert.Empty(t, mount.SubPath, "is never brought up to date")
			}
			files := map[string]string{} // fields by file
			for _, volume := range pod.Spec.Volumes {
				if volume.Name == mounts["/etc/podinfo"] {
					for _, item := range volume.DownwardAPI.Items {
						files[item.Path] = item.FieldRef.FieldPath
					}
				}
			}
			assert.Equal(t, map[string]string{
				"reclaim-deadline":   "metadata.annotations['" + api.AnnotationReclaimDeadline + "']",
				"checkpoint-request": "metadata.annotations['" + api.AnnotationCheckpointRequest + "']",
				"reclaim-instance":   "metadata.annotations['" + api.AnnotationReclaimInstance + "']",
			}, files)
			module, err := os.ReadFile("gpu_spot.py")
			require.NoError(t, err)
			for _, file := range append(slices.Collect(maps.Keys(files)), "/etc/podinfo") {
				assert.Contains(t, string(module), `"`+file+`"`)
			}

			environment := map[string]string{}
			for _, variable := range container.Env {
				environment[variable.Name] = variable.ValueFrom.FieldRef.FieldPath
			}
			assert.Equal(t, map[string]string{"NODE_IP": "status.hostIP", "POD_NAMESPACE": "metadata.namespace"}, environment)
			assert.Contains(t, mounts, "/train")
			assert.Contains(t, mounts, "/checkpoints")
		})
	}
}

func TestTheCommandsOfTheExamplesRunWhatIsThere(t *testing.T) {
	for name, path := range map[string][]string{
		"pytorch": {"spec", "pytorchReplicaSpecs", "Worker"},
		"etjob":   {"spec", "etReplicaSpecs", "launcher"},
	} {
		command := strings.Join(template(t, job(t, filepath.Join(name, "job.yaml")), path...).Spec.Containers[0].Command, " ")
		script := regexp.MustCompile(`/train/(\S+)`).FindStringSubmatch(command)
		require.NotNil(t, script, command)
		assert.FileExists(t, filepath.Join(name, script[1]))
		assert.Contains(t, command, "--checkpoint=/checkpoints/")
	}
}
