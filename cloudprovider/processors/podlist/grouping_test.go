package podlist

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaleup/equivalence"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"

	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

// ofJob is a worker of the job on the reclaiming node.
func ofJob(job string, options ...testutil.PodOption) *apiv1.Pod {
	return testutil.NewPod(job, append([]testutil.PodOption{testutil.OnNode("reclaiming"), testutil.InPhase(apiv1.PodRunning), testutil.Labelled("job", job), func(pod *apiv1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: job, UID: types.UID(job), Controller: ptr.To(true)}}
	}}, options...)...)
}

func keepingAway(pod *apiv1.Pod) {
	pod.Spec.Affinity = &apiv1.Affinity{PodAntiAffinity: &apiv1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []apiv1.PodAffinityTerm{
		{TopologyKey: apiv1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"job": "a"}}},
	}}}
}

func TestPodsOfReclaimingNodesOfManyJobsAreLookedAtTogether(t *testing.T) {
	host := func(name string) testutil.PodOption { return func(pod *apiv1.Pod) { pod.Spec.Hostname = name } }
	with := func(change func(*apiv1.PodSpec)) testutil.PodOption {
		return func(pod *apiv1.Pod) { change(&pod.Spec) }
	}
	for name, test := range map[string]struct {
		pods   []*apiv1.Pod
		groups int
	}{
		"alike, of two jobs":   {[]*apiv1.Pod{ofJob("a"), ofJob("b")}, 1},
		"host names differ":    {[]*apiv1.Pod{ofJob("a", host("a-0")), ofJob("b", host("b-0"))}, 1},
		"they want other GPUs": {[]*apiv1.Pod{ofJob("a"), ofJob("b", testutil.Requesting(api.ResourceGPU, "2"))}, 2},
		"they select nodes":    {[]*apiv1.Pod{ofJob("a", testutil.Selecting("pool", "a")), ofJob("b", testutil.Selecting("pool", "b"))}, 2},
		"a gang stays one":     {[]*apiv1.Pod{ofJob("a", testutil.InGang("a", 1)), ofJob("b", testutil.InGang("b", 1))}, 2},
		"one keeps others off": {[]*apiv1.Pod{ofJob("a"), ofJob("b", keepingAway)}, 2},
		"they spread": {[]*apiv1.Pod{ofJob("a"), ofJob("b", with(func(spec *apiv1.PodSpec) {
			spec.TopologySpreadConstraints = []apiv1.TopologySpreadConstraint{{TopologyKey: apiv1.LabelTopologyZone}}
		}))}, 2},
		"they have volumes": {[]*apiv1.Pod{ofJob("a"), ofJob("b", with(func(spec *apiv1.PodSpec) {
			spec.Volumes = []apiv1.Volume{{VolumeSource: apiv1.VolumeSource{PersistentVolumeClaim: &apiv1.PersistentVolumeClaimVolumeSource{ClaimName: "b"}}}}
		}))}, 2},
		"they want a port": {[]*apiv1.Pod{ofJob("a"), ofJob("b", with(func(spec *apiv1.PodSpec) {
			spec.Containers[0].Ports = []apiv1.ContainerPort{{HostPort: 80}}
		}))}, 2},
		"somebody who stays keeps others off": {[]*apiv1.Pod{ofJob("a"), ofJob("b"), testutil.NewPod("c", testutil.OnNode("healthy"), keepingAway)}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			added := podsToMoveOf(t, test.pods...)
			assert.Len(t, equivalence.BuildPodGroups(added), test.groups)
			for i, pod := range added {
				assert.Equal(t, fmt.Sprint(test.pods[i].UID), fmt.Sprint(pod.UID))
				assert.NotEmpty(t, test.pods[i].Labels, "the pods themselves are left alone")
				assert.Equal(t, "Job", test.pods[i].OwnerReferences[0].Kind)
			}
		})
	}
}
