package deploy_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestWhatIsFixedInTheSecretOfTheCredentialsNeedsNoRestart(t *testing.T) {
	objects := render(t, "credentials.secretName=keys")
	pod := named[*appsv1.Deployment](t, objects, "gpu-spot-autoscaler").Spec.Template.Spec
	container := pod.Containers[0]
	assert.Contains(t, container.Args, "--credentials-dir=/etc/gpu-spot/credentials")
	require.Len(t, container.VolumeMounts, 1)
	assert.Equal(t, "/etc/gpu-spot/credentials", container.VolumeMounts[0].MountPath)
	assert.Empty(t, container.VolumeMounts[0].SubPath, "which the kubelet does not renew")
	require.Len(t, pod.Volumes, 1)
	assert.Equal(t, "keys", pod.Volumes[0].Secret.SecretName)
	assert.True(t, *pod.Volumes[0].Secret.Optional, "the process itself says that there is none")
	for _, variable := range container.Env {
		assert.Nil(t, variable.ValueFrom.SecretKeyRef, variable.Name)
	}

	rrsa := []string{"credentials.secretName=keys", "credentials.rrsa.roleARN=acs:ram::1:role/r", "credentials.rrsa.oidcProviderARN=acs:ram::1:oidc-provider/p"}
	pod = named[*appsv1.Deployment](t, render(t, rrsa...), "gpu-spot-autoscaler").Spec.Template.Spec
	assert.NotContains(t, pod.Containers[0].Args, "--credentials-dir=/etc/gpu-spot/credentials")
	assert.Len(t, pod.Volumes, 1, "the token alone")
}

func TestNoticesReachAReplicaThatIsNotReady(t *testing.T) {
	objects := render(t, "push.enabled=true", "push.tokenSecretName=tokens", "push.tlsSecretName=certificates",
		"push.service.type=ClusterIP")
	assert.True(t, named[*corev1.Service](t, objects, "gpu-spot-autoscaler-notices").Spec.PublishNotReadyAddresses)
	container := named[*appsv1.Deployment](t, objects, "gpu-spot-autoscaler").Spec.Template.Spec.Containers[0]
	assert.Equal(t, "/readyz", container.ReadinessProbe.HTTPGet.Path)
	assert.Equal(t, "/health-check", container.LivenessProbe.HTTPGet.Path, "which a cloud that refuses everything leaves well")
}

func TestTheChartSetsWhichNodesAreFaulty(t *testing.T) {
	args := func(values ...string) []string {
		return named[*appsv1.Deployment](t, render(t, values...), "gpu-spot-autoscaler").Spec.Template.Spec.Containers[0].Args
	}
	for _, arg := range args() {
		assert.NotContains(t, arg, "node-fault", "the defaults are those of the binary")
	}
	chosen := args("nodeFaults.conditions={NvidiaDeviceLost,NvidiaXID48Error=5m}", "nodeFaults.maxNodes=3")
	assert.Contains(t, chosen, "--node-fault-conditions=NvidiaDeviceLost,NvidiaXID48Error=5m")
	assert.Contains(t, chosen, "--node-fault-max-nodes=3")
	assert.Contains(t, args("nodeFaults.maxNodes=0"), "--node-fault-max-nodes=0")
	assert.Contains(t, args("nodeFaults.enabled=false"), "--node-fault-conditions=")
}
