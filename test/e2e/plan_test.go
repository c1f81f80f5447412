package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/plan"
	"gpu-spot-autoscaler/test/rig"
)

const plannedJob = `apiVersion: batch/v1
kind: Job
metadata:
  name: train
spec:
  completionMode: Indexed
  completions: 3
  parallelism: 3
  template:
    metadata:
      annotations:
        gpu-spot.autoscaling/gang-name: train
        gpu-spot.autoscaling/gang-size: "3"
        gpu-spot.autoscaling/work: 10h
    spec:
      restartPolicy: Never
      containers:
        - name: trainer
          image: train
          resources:
            limits: {nvidia.com/gpu: 1}
`

func TestAPlanIsWhatIsBoughtOnceTheJobIsSubmitted(t *testing.T) {
	w := newWorld(spotPool("asg-1", 10))
	key, credentials := withDryRunKey(t, &w), t.TempDir()
	s := newSuite(t, w)
	s.InstallManifest(t, secureInstall)
	for name, text := range map[string]string{"ALIBABA_CLOUD_ACCESS_KEY_ID": key.ID, "ALIBABA_CLOUD_ACCESS_KEY_SECRET": key.Secret} {
		require.NoError(t, os.WriteFile(filepath.Join(credentials, name), []byte(text), 0o600))
	}
	file := filepath.Join(t.TempDir(), "job.yaml")
	require.NoError(t, os.WriteFile(file, []byte(plannedJob), 0o600))
	labels := map[string]string{"app": "gpu-spot-autoscaler"}
	_, err := s.Client.AppsV1().Deployments(rig.Namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu-spot-autoscaler"},
		Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "autoscaler", Image: "x", Args: []string{
				"--region=" + s.World.Region, "--cluster-name=" + s.ClusterName, "--credentials-dir=/not/here", "--cloud-scheme=http",
				"--ess-endpoint=" + s.Cloud.Endpoint(), "--ecs-endpoint=" + s.Cloud.Endpoint(), "--vpc-endpoint=" + s.Cloud.Endpoint(),
			}}}},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	itself, err := s.Cluster.ServiceAccountKubeconfig(t.Context(), rig.Namespace, rig.ServiceAccount)
	require.NoError(t, err)

	versions := writtenObjects(s)
	said, err := s.printed(t.Context(), itself, "plan", "-f", file, "--credentials-dir="+credentials)
	require.NoError(t, err, said)
	t.Logf("plan -f job.yaml:\n%s", said)
	assert.Contains(t, said, "3 × "+a10+" (spot) in "+zoneB+", pool asg-1, at 4.000 CNY an hour each")
	assert.Contains(t, said, "The leader could not be asked what was out of stock lately")
	assert.Equal(t, versions, writtenObjects(s), "nothing is written in the cluster")
	assert.Empty(t, cloudWrites(s), "nor in the cloud")

	runReplicas(s)
	made := &plan.Plan{}
	s.eventually("the leader tells what was out of stock", func(ctx context.Context) (bool, error) {
		command := s.Subcommand(ctx, "plan", "-f", "-", "-o", "json", "--credentials-dir="+credentials, "--kubeconfig="+s.Cluster.AdminKubeconfig())
		command.Stdin = strings.NewReader(plannedJob)
		out, err := command.Output()
		if err != nil {
			return false, err
		}
		made = &plan.Plan{}
		err = json.Unmarshal(out, made)
		return len(made.Notes) == 0, err
	})
	require.Len(t, made.Purchase.Items, 1)
	require.NotNil(t, made.RunnerUp)
	assert.Equal(t, zoneC, made.RunnerUp.Items[0].Zone)
	assert.Empty(t, cloudWrites(s))

	job := &batchv1.Job{}
	require.NoError(t, yaml.Unmarshal([]byte(plannedJob), job))
	_, err = s.Client.BatchV1().Jobs(metav1.NamespaceDefault).Create(t.Context(), job, metav1.CreateOptions{})
	require.NoError(t, err)
	item := made.Purchase.Items[0]
	s.eventually("as many are bought", func(context.Context) (bool, error) { return len(s.instances(item.Pool)) == item.Count, nil })
	s.eventually("the job runs", func(ctx context.Context) (bool, error) {
		now, err := s.Client.BatchV1().Jobs(metav1.NamespaceDefault).Get(ctx, "train", metav1.GetOptions{})
		return err == nil && ptr.Deref(now.Status.Ready, 0) == 3, err
	})
	for _, request := range s.Cloud.Requests() {
		assert.NotEqual(t, "Forbidden.RAM", request.Code, "%s by %s", request.Action, request.Parameters["AccessKeyId"])
	}
	assert.Equal(t, map[string]int{item.Zone: item.Count}, s.zonesOf(item.Pool))
	assert.Len(t, s.requests("ScaleWithAdjustment"), 1)

	said, err = s.printed(t.Context(), s.Cluster.AdminKubeconfig(), "plan", "-f", file, "--credentials-dir="+credentials)
	require.Error(t, err)
	assert.Contains(t, said, "document 1 (Job default/train): metadata.name: the cluster has it already")
}
