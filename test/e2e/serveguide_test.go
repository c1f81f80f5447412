package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"gpu-spot-autoscaler/test/rig"
)

// serveGuide is what docs/serve.md has its reader write.
type serveGuide struct {
	// values are those of the chart, cloudConfig is the file and flags are the arguments of Cluster Autoscaler.
	values, cloudConfig string
	flags               []string
}

func readServeGuide(t *testing.T) (guide serveGuide) {
	t.Helper()
	page, err := os.ReadFile("../../docs/serve.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.Len(t, blocks, 3, "values, cloud-config, flags")
	guide.values = blocks[0][1]
	var config map[string]string
	require.NoError(t, utilyaml.Unmarshal([]byte(blocks[1][1]), &config))
	for _, key := range []string{"address", "cert", "key", "cacert", "grpc_timeout"} {
		guide.cloudConfig += key + ": " + config[key] + "\n"
	}
	require.Len(t, config, 5)
	require.NoError(t, utilyaml.Unmarshal([]byte(blocks[2][1]), &guide.flags))
	return guide
}

// servingChart is what the chart installs with the values of the guide.
type servingChart struct {
	deployment appsv1.Deployment
	// ports leads from the address of each port of a Service to the port of the container.
	ports map[string]int32
}

// renderServing has helm render the chart.
func renderServing(s *suite, values string) (chart servingChart) {
	s.t.Helper()
	const binary = "../../out/bin/helm"
	require.FileExists(s.t, binary, "make lint and make test-e2e build it")
	file := filepath.Join(s.t.TempDir(), "values.yaml")
	require.NoError(s.t, os.WriteFile(file, []byte(values), 0o600))
	text, err := exec.CommandContext(s.t.Context(), binary, "template", rig.ServiceAccount, "../../deploy/chart/gpu-spot-autoscaler",
		"--namespace="+rig.Namespace, "--kube-version=1.36.1", "--set=region="+s.World.Region, "--set=clusterName="+s.ClusterName, "--values="+file,
		"--show-only=templates/deployment.yaml", "--show-only=templates/service.yaml").CombinedOutput()
	require.NoError(s.t, err, "%s", text)
	var services []corev1.Service
	decoder := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
	for buffer := make([]byte, 1<<20); ; {
		n, err := decoder.Read(buffer)
		if err == io.EOF {
			break
		}
		require.NoError(s.t, err)
		var of metav1.TypeMeta
		require.NoError(s.t, utilyaml.Unmarshal(buffer[:n], &of))
		if of.Kind == "Deployment" {
			require.NoError(s.t, yaml.UnmarshalStrict(buffer[:n], &chart.deployment))
			continue
		}
		services = append(services, corev1.Service{})
		require.NoError(s.t, yaml.UnmarshalStrict(buffer[:n], &services[len(services)-1]))
	}
	checked := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}} // the control plane takes it
	_, err = s.Client.AppsV1().Deployments(rig.Namespace).Create(s.t.Context(), &chart.deployment, checked)
	require.NoError(s.t, err)
	chart.ports = map[string]int32{}
	for _, service := range services {
		_, err = s.Client.CoreV1().Services(rig.Namespace).Create(s.t.Context(), &service, checked)
		require.NoError(s.t, err)
		require.Subset(s.t, chart.deployment.Spec.Template.Labels, service.Spec.Selector)
		for _, port := range service.Spec.Ports {
			for _, own := range chart.deployment.Spec.Template.Spec.Containers[0].Ports {
				if own.Name == port.TargetPort.StrVal {
					chart.ports[fmt.Sprintf("%s.%s.svc:%d", service.Name, service.Namespace, port.Port)] = own.ContainerPort
				}
			}
		}
	}
	return chart
}

// argsWith returns the arguments of the container, with the directories of Secrets in place of where those are mounted.
func (c servingChart) argsWith(t *testing.T, secrets map[string]string) []string {
	t.Helper()
	pod := c.deployment.Spec.Template.Spec
	args := slices.Clone(pod.Containers[0].Args)
	for _, volume := range pod.Volumes {
		require.NotNil(t, volume.Secret, volume.Name)
		directory := secrets[volume.Secret.SecretName]
		require.NotEmpty(t, directory, "the guide has no Secret %s", volume.Secret.SecretName)
		at := slices.IndexFunc(pod.Containers[0].VolumeMounts, func(mount corev1.VolumeMount) bool { return mount.Name == volume.Name })
		require.GreaterOrEqual(t, at, 0)
		for i, arg := range args {
			args[i] = strings.ReplaceAll(arg, pod.Containers[0].VolumeMounts[at].MountPath+"/", directory+"/")
		}
	}
	for _, arg := range args {
		assert.NotContains(t, arg, "=/etc/gpu-spot/", "it is mounted")
	}
	return args
}

// portOf returns the port in an argument of the container.
func portOf(t *testing.T, args []string, flag string) (port int32) {
	t.Helper()
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, flag+"=:"); ok {
			_, err := fmt.Sscan(value, &port)
			require.NoError(t, err)
		}
	}
	require.NotZero(t, port, flag)
	return port
}

// valueOf returns the value of a flag of the guide.
func (g serveGuide) valueOf(t *testing.T, flag string) string {
	t.Helper()
	for _, each := range g.flags {
		if value, ok := strings.CutPrefix(each, flag+"="); ok {
			return value
		}
	}
	t.Fatalf("the guide gives Cluster Autoscaler no %s", flag)
	return ""
}

// address returns that of the provider.
func (g serveGuide) address() string {
	line, _, _ := strings.Cut(g.cloudConfig, "\n")
	return strings.TrimPrefix(line, "address: ")
}

// requireReached checks that the addresses of the guide are those at which the container listens.
func (c servingChart) requireReached(t *testing.T, guide serveGuide, args []string) {
	t.Helper()
	assert.Equal(t, ptr.To[int32](1), c.deployment.Spec.Replicas)
	assert.Equal(t, portOf(t, args, "--serve-address"), c.ports[guide.address()], "%s leads to the provider: %v", guide.address(), c.ports)
	expander := guide.valueOf(t, "--grpc-expander-url")
	assert.Equal(t, portOf(t, args, "--serve-expander-address"), c.ports[expander], "%s leads to the expander: %v", expander, c.ports)
}
