package e2e

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/cloudprovider/status"
	"gpu-spot-autoscaler/test/rig"
)

func TestADryRunTellsWhatItWouldBuyAndRemoveAndWritesNothingButItsLease(t *testing.T) {
	s := newSuite(t, newWorld(spotPool("asg-1", 10)))
	before := gpuPods("before", 1)
	bought := s.RunAutoscaler(t)
	s.Submit(t, before...)
	s.awaitRunning(before...)
	require.NoError(t, bought.Stop())
	idle := nodeOfPod(s, before[0].Name)
	require.NoError(t, s.Client.CoreV1().Pods(metav1.NamespaceDefault).Delete(t.Context(), before[0].Name, metav1.DeleteOptions{}))

	s.InstallManifest(t, secureInstall)
	s.InstallManifest(t, "deploy/manifests/optional/dry-run.yaml")
	awaitDryRunPolicy(s, idle.Name)
	versions, requests := writtenObjects(s), cloudWrites(s)
	address := ownAddress(t)
	port, err := rig.FreePort(t.Context(), address)
	require.NoError(t, err)
	s.RunAutoscaler(t, "--dry-run", "--secure-address="+net.JoinHostPort(address, port), "--scale-down-unneeded-time=5s", "--scale-down-delay-after-add=1s")
	pods := gpuPods("train", 2)
	pods[0].Spec.NodeSelector = map[string]string{"topology.kubernetes.io/zone": zoneC}
	pods[1].Spec.NodeSelector = map[string]string{"topology.kubernetes.io/zone": zoneC}
	s.Submit(t, pods...)

	token := tokenOf(s, rig.Namespace, viewer)
	s.eventually("the status has what would be bought and removed", func(ctx context.Context) (bool, error) {
		code, body, err := httpGet(ctx, s, "https://"+net.JoinHostPort(address, port)+status.Path, "Authorization", "Bearer "+token)
		var said status.Status
		if code != http.StatusOK || err != nil || json.Unmarshal([]byte(body), &said) != nil || said.DryRun == nil {
			return false, err
		}
		wouldBuy, wouldRemove := 0, 0
		for _, d := range said.DryRun.Decisions {
			switch d.Action {
			case "ScaleWithAdjustment":
				assert.Equal(t, []string{"asg-1", a10, zoneC}, []string{d.Pool, d.InstanceType, d.Zone})
				wouldBuy += d.Count
			case "RemoveInstances":
				assert.Equal(t, []string{instanceOf(idle)}, d.Instances)
				wouldRemove += d.Count
			}
		}
		assert.LessOrEqual(t, wouldBuy, 2, "a purchase counts although it is not made")
		return wouldBuy == 2 && wouldRemove == 1, nil
	})
	rig.Always(t, 10*time.Second, "nothing is bought or removed", func(context.Context) (bool, error) { return len(s.instances("asg-1")) == 1, nil })
	assert.Equal(t, requests, cloudWrites(s), "requests that change something in the cloud")
	after := writtenObjects(s)
	for name, version := range versions {
		assert.Equal(t, version, after[name], "%s was written", name)
	}
	for name := range after {
		_, known := versions[name]
		assert.True(t, known || name == "Lease gpu-spot-autoscaler-dry-run", "%s was created", name)
	}
}

// cloudWrites returns how many requests there were that change something in the cloud.
func cloudWrites(s *suite) (count int) {
	for _, action := range []string{"ScaleWithAdjustment", "RemoveInstances", "RunInstances", "AttachInstances", "DeleteInstances"} {
		count += len(s.requests(action))
	}
	return count
}

// awaitDryRunPolicy waits until the autoscaler may not write for good.
func awaitDryRunPolicy(s *suite, node string) {
	s.t.Helper()
	thief := autoscalerClient(s)
	s.eventually("the policy is in force", func(ctx context.Context) (bool, error) {
		_, err := thief.CoreV1().Nodes().Patch(ctx, node, "application/merge-patch+json", []byte(`{"metadata": {"annotations": {"gpu-spot.autoscaling/x": "y"}}}`), metav1.PatchOptions{})
		if err != nil && !apierrors.IsForbidden(err) {
			return false, err
		}
		return apierrors.IsForbidden(err), nil
	})
}

// writtenObjects returns the resource versions of what an autoscaler writes, and of its Events, by kind and name. Nodes are left out, which their
// kubelets write: of those only marks and taints count.
func writtenObjects(s *suite) map[string]string {
	s.t.Helper()
	ctx, all := s.t.Context(), map[string]string{}
	maps, err := s.Client.CoreV1().ConfigMaps(rig.Namespace).List(ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	for i := range maps.Items {
		all["ConfigMap "+maps.Items[i].Name] = maps.Items[i].ResourceVersion
	}
	leases, err := s.Client.CoordinationV1().Leases(rig.Namespace).List(ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	for _, lease := range leases.Items {
		switch lease.Name {
		case "gpu-spot-autoscaler":
			all["Lease "+lease.Name] = lease.ResourceVersion
		case "gpu-spot-autoscaler-dry-run":
			all["Lease "+lease.Name] = ""
		}
	}
	events, err := s.Client.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	for i := range events.Items {
		if events.Items[i].Source.Component == "cluster-autoscaler" || events.Items[i].Source.Component == "gpu-spot-autoscaler" {
			all["Event "+events.Items[i].Reason+" "+events.Items[i].Name] = events.Items[i].ResourceVersion
		}
	}
	nodes, err := s.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	for i := range nodes.Items {
		spec, err := json.Marshal(nodes.Items[i].Spec)
		require.NoError(s.t, err)
		all["Node "+nodes.Items[i].Name] = string(spec)
	}
	return all
}
