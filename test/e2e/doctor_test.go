package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/test/rig"
)

// TestDoctor checks a set-up by the shipped binary, with the shipped RAM policy and admission policies.
func TestDoctor(t *testing.T) {
	pool := singleOfferingPool("asg-1", 10)
	pool.Tags["gpu-spot.autoscaling/max-size"] = "8"
	s := newSuite(t, newWorld(pool))
	key, credentials := s.Cloud.AccessKey(), t.TempDir()
	for name, text := range map[string]string{"ALIBABA_CLOUD_ACCESS_KEY_ID": key.ID, "ALIBABA_CLOUD_ACCESS_KEY_SECRET": key.Secret} {
		require.NoError(t, os.WriteFile(filepath.Join(credentials, name), []byte(text), 0o600))
	}
	examine := func(arguments ...string) (string, error) {
		return s.printed(t.Context(), s.Cluster.AdminKubeconfig(), append([]string{"doctor",
			"--region=" + s.World.Region, "--cluster-name=" + s.ClusterName, "--credentials-dir=" + credentials, "--cloud-scheme=http",
			"--ess-endpoint=" + s.Cloud.Endpoint(), "--ecs-endpoint=" + s.Cloud.Endpoint(), "--vpc-endpoint=" + s.Cloud.Endpoint(),
		}, arguments...)...)
	}
	const sound = `^nothing found
not proven: ess:ScaleWithAdjustment: .*
not proven: the quota of vCPUs of spot instances: ecs DescribeAccountAttributes: Forbidden\.RAM: .*
$`
	said, err := examine()
	require.NoError(t, err, said)
	assert.Regexp(t, sound, said, "before the install")

	labels := map[string]string{"app": "gpu-spot-autoscaler"}
	_, err = s.Client.AppsV1().Deployments(rig.Namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu-spot-autoscaler"},
		Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "autoscaler", Image: "x"}}},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	said, err = examine()
	require.NoError(t, err, said)
	assert.Regexp(t, sound, said, "with the admission policies that are installed")

	pool.Tags["gpu-spot.autoscaling/price-cup"] = "3"
	require.NoError(t, s.Cloud.SetGroupTags("asg-1", pool.Tags))
	_, err = s.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "autoscaler-meta"}, Data: map[string]string{"autoscaler-meta": `{"scaling_configurations":{"asg-1":{}}}`},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	said, err = examine()
	assert.ErrorContains(t, err, "exit status 1")
	t.Logf("doctor:\n%s", said)
	assert.Contains(t, said, `error tags asg-1: gpu-spot.autoscaling/price-cup: "3": there is no such setting; did you mean gpu-spot.autoscaling/price-cap? Correct the tag; it is read again in the next loop.`)
	assert.Contains(t, said, "error ack_autoscaler asg-1: ACK's own autoscaler is set up for the scaling group too: ConfigMap kube-system/autoscaler-meta names it. Turn off auto scaling")

	said, err = examine("-o", "json")
	assert.ErrorContains(t, err, "exit status 1")
	var report struct {
		Findings []struct{ Code, Object string }
	}
	require.NoError(t, json.Unmarshal([]byte(said), &report))
	assert.ElementsMatch(t, []struct{ Code, Object string }{{"tags", "asg-1"}, {"ack_autoscaler", "asg-1"}}, report.Findings)
}
