package podlist

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/processors/nodegroupset"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

func TestPodsOfReclaimingNodesGetNoEventsOfScaleUps(t *testing.T) {
	worker, pending := testutil.NewPod("worker", testutil.OnNode("reclaiming"), testutil.OwnedBy("Job")), testutil.NewPod("pending")
	for name, test := range map[string]struct {
		result status.ScaleUpStatus
		want   string
	}{
		"when something was bought": {status.ScaleUpStatus{
			Result: status.ScaleUpSuccessful, ScaleUpInfos: make([]nodegroupset.ScaleUpInfo, 1),
			PodsTriggeredScaleUp: []*apiv1.Pod{worker, pending},
		}, "TriggeredScaleUp"},
		"when nothing could be": {status.ScaleUpStatus{
			Result:                  status.ScaleUpNoOptionsAvailable,
			PodsRemainUnschedulable: []status.NoScaleUpInfo{{Pod: worker}, {Pod: pending}},
		}, "NotTriggerScaleUp"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, _, recorder := testutil.NewContext([]*apiv1.Pod{worker}, []*apiv1.Node{testutil.NewNode("reclaiming")})
			added := &AddedPods{}
			_, err := NewReclaimingPods(&placing{fails: []string{"worker", "pending"}}, func(*apiv1.Node) bool { return true }, added, clock.RealClock{}, nil).Process(ctx, []*apiv1.Pod{pending})
			require.NoError(t, err)

			handed := test.result.PodsTriggeredScaleUp
			NewStatusFilter(&status.EventingScaleUpStatusProcessor{}, added.Has).Process(ctx, &test.result)
			require.Len(t, recorder.Events, 1, "that of the pod that a user asked for")
			assert.Contains(t, <-recorder.Events, test.want)
			if handed != nil {
				assert.Equal(t, []string{"worker", "pending"}, testutil.Names(handed), "the list handed in is left as it was")
			}
		})
	}
}
