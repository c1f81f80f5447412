package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/market"
	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/rig"
)

// In the last two weeks, spot was lost within half an hour most of the time. It has just come back.
func TestAJobWithMuchTimeWaitsUntilSpotHasLasted(t *testing.T) {
	onDemand := singleOfferingPool("asg-on-demand", 10)
	onDemand.SpotStrategy = alisim.NoSpot
	s := newSuite(t, newWorld(singleOfferingPool("asg-spot", 10), onDemand))
	s.Cloud.SetPrice(a10, zoneA, 2, 3)
	// Each day it comes back six times for 20 minutes, the last time just now, and then lasts for 18 hours.
	s.remember(func(looksAgo int) bool { return (looksAgo+1)%6 < 2 || (looksAgo+1)%144 >= 36 })
	autoscaler := s.RunAutoscaler(t)

	timed := func(name string, slack time.Duration) *corev1.Pod {
		pod := rig.GPUPod(name, 1)
		pod.Annotations = map[string]string{api.AnnotationWork: "24h", api.AnnotationDeadline: time.Now().Add(24*time.Hour + slack).Format(time.RFC3339)}
		return pod
	}
	patient := timed("patient", 15*time.Hour)
	s.Submit(t, patient)
	s.awaitEvent("NotTriggerScaleUp", "2 not bought for such pods now")
	s.eventually("it is computed what costs least", func(context.Context) (bool, error) {
		return strings.Contains(autoscaler.Log(1000), "Learnt what a job with a deadline runs on"), nil
	})
	rig.Always(t, 10*time.Second, "nothing is bought", func(context.Context) (bool, error) {
		return len(s.instances("asg-spot"))+len(s.instances("asg-on-demand")) == 0, nil
	})
	s.deletePods(patient) // or the scheduler might give it the node that is bought for the next one
	hurried := timed("hurried", 2*time.Hour)
	s.Submit(t, hurried)
	s.awaitRunning(hurried)
	assert.Len(t, s.instances("asg-spot"), 1)
	assert.Empty(t, s.instances("asg-on-demand"))
}

// remember has the autoscaler know of the spot offering in zone a in which of the looks until now, every ten minutes, it was up.
func (s *suite) remember(up func(looksAgo int) bool) {
	s.t.Helper()
	memory, offering := market.NewMemory(), pricing.Offering{InstanceType: a10, Zone: zoneA, Spot: true}
	for ago := 14 * 24 * 6; ago >= 0; ago-- {
		at := time.Now().Add(-time.Duration(ago) * 10 * time.Minute)
		memory.Observe([]market.Living{{ID: fmt.Sprint(ago), Offering: offering, Lost: !up(ago), Price: 2}}, at)
	}
	state, err := memory.Encode()
	require.NoError(s.t, err)
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: rig.Namespace, Name: "gpu-spot-autoscaler-market"}, BinaryData: map[string][]byte{"state.json.gz": state}}
	_, err = s.Client.CoreV1().ConfigMaps(rig.Namespace).Create(s.t.Context(), configMap, metav1.CreateOptions{})
	require.NoError(s.t, err)
}
