package e2e

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/test/rig"
	"gpu-spot-autoscaler/test/standin"
)

// TestArenaMPIJobIsAskedAndMovesAndIsTriedAgain is about a job that cannot be suspended: it saves its work while it still runs, and its
// launcher begins anew once the lost worker is back. It has a cluster of its own, as the definition has the name of the MPI operator's.
func TestArenaMPIJobIsAskedAndMovesAndIsTriedAgain(t *testing.T) {
	rig.Long(t)
	s := newJobSuite(t, "arena")
	s.runOperator(standin.NewArenaMPIOperator)
	s.submit(arenaMPIJob(gpuTemplate("arena", awaited)))
	const pods, workersOf = standin.LabelArenaMPIJob + "=arena", standin.LabelArenaMPIJob + "=arena," + standin.LabelArenaRole + "=worker"
	workers := s.awaitRunningPods(workersOf, 3)
	s.awaitField(standin.ArenaMPIJobs, "arena", "status.launcherStatus", "Active")
	launcher := s.awaitRunningPods(standin.LabelArenaMPIJob+"=arena,"+standin.LabelArenaRole+"=launcher", 1)[0]

	reclaiming := s.reclaimNodesOf(workers[2])
	s.awaitJobEvent("MPIJob", "arena", "SpotJobWarned", 1)
	awaitRequestOnAll(s, pods, 4)
	requirePodsStay(s, workers[2], launcher)
	acknowledgeWhenAsked(s, launcher)
	s.awaitGone(reclaiming)

	now := s.awaitRunningPods(workersOf, 3)
	s.requireOtherNodes(reclaiming, now)
	assert.Equal(t, names(workers), names(now), "it has its name again")
	assert.Equal(t, uids(workers[:2]), uids(now[:2]))
	s.eventually("another launcher runs", func(ctx context.Context) (bool, error) {
		list, err := s.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: pods, FieldSelector: "status.phase=Running"})
		return err == nil && slices.ContainsFunc(list.Items, func(pod corev1.Pod) bool {
			return pod.Labels[standin.LabelArenaRole] == "launcher" && pod.UID != launcher.UID
		}), err
	})
	s.awaitField(standin.ArenaMPIJobs, "arena", "status.launcherStatus", "Active")
	assert.Nil(t, s.field(standin.ArenaMPIJobs, "arena", "metadata.labels"), "it is not held")
}
