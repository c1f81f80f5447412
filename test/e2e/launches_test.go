package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/rig"
)

// launchPool returns a pool of one type in three zones that buys by RunInstances.
func launchPool(id string, maxSize int) alisim.Pool {
	pool := spotPool(id, maxSize)
	pool.Tags["gpu-spot.autoscaling/purchase"] = "run-instances"
	return pool
}

// alive returns the instances that exist, in scaling groups or not.
func (s *suite) alive() []alisim.InstanceView {
	return slices.DeleteFunc(s.Cloud.Instances(), func(i alisim.InstanceView) bool { return i.Status == "Released" })
}

// awaitAttached waits until so many instances exist, all of them in the pool and in service.
func (s *suite) awaitAttached(poolID string, count int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%d instances are in %s", count, poolID), func(context.Context) (bool, error) {
		alive := s.alive()
		return len(alive) == count && !slices.ContainsFunc(alive, func(i alisim.InstanceView) bool {
			return i.ScalingGroupID != poolID || i.Lifecycle != "InService"
		}), nil
	})
}

func TestAPoolThatBuysByRunInstancesServesAndGivesBack(t *testing.T) {
	s := newSuite(t, newWorld(launchPool("asg-1", 30)))
	s.RunAutoscaler(t)
	gang := rig.Gang("allreduce", 8)
	s.Submit(t, gang...)
	s.awaitRunning(gang...)
	s.awaitAttached("asg-1", 8)
	assert.Empty(t, s.Cloud.Requests("ScaleWithAdjustment"))
	zones := map[string]int{}
	for _, instance := range s.alive() {
		zones[instance.Zone]++
	}
	assert.Len(t, zones, 1, "a gang is in one zone")

	s.deletePods(gang...)
	s.eventually("all are given back", func(context.Context) (bool, error) { return len(s.alive()) == 0, nil })
}

// What cannot be attached serves all the same, and is released without its scaling group.
func TestInstancesThatCannotBeAttachedServeAndAreGivenBack(t *testing.T) {
	rig.Long(t)
	s := newSuite(t, newWorld(launchPool("asg-1", 30)))
	s.injectFault(alisim.Fault{Action: "AttachInstances", Kind: alisim.FaultError, Code: "Forbidden.RAM", Status: 403})
	s.RunAutoscaler(t)
	pods := gpuPods("train", 2)
	s.Submit(t, pods...)
	s.awaitRunning(pods...)
	s.awaitEvent("SpotPoolProblem", "unattached", "AttachInstances")
	s.deletePods(pods...)
	s.eventually("both are given back", func(context.Context) (bool, error) { return len(s.alive()) == 0, nil })
	assert.Empty(t, s.Cloud.Requests("RemoveInstances"))
}

// launchKills is how often the autoscaler is killed between the calls of a purchase. LAUNCH_KILLS sets it for a longer run.
func launchKills(t *testing.T) int {
	t.Helper()
	text, set := os.LookupEnv("LAUNCH_KILLS")
	if !set {
		return 4
	}
	kills, err := strconv.Atoi(text)
	require.NoError(t, err)
	return kills
}

// For each gang the autoscaler is killed at another moment: when RunInstances has created the instances and not answered, while ESS
// attaches them, a second after RunInstances, and as soon as it was called.
func TestGangsBoughtByRunInstancesAreBoughtOnceHoweverOftenTheAutoscalerIsKilled(t *testing.T) {
	rig.Long(t)
	kills := launchKills(t)
	s := newSuite(t, newWorld(launchPool("asg-1", 8*kills+16)))
	a := s.RunAutoscaler(t)
	var gangs []*corev1.Pod
	for kill := range kills {
		watched, pause := "RunInstances", time.Duration(0)
		switch kill % 4 {
		case 0:
			s.injectFault(alisim.Fault{Action: "RunInstances", Kind: alisim.FaultLostReply, Times: 1})
		case 1:
			watched = "AttachInstances"
		case 2:
			pause = time.Second
		}
		before := len(s.Cloud.Requests(watched))
		gang := rig.Gang(fmt.Sprintf("gang-%d", kill), 8)
		s.Submit(t, gang...)
		gangs = append(gangs, gang...)
		s.eventually(watched+" is called", func(context.Context) (bool, error) { return len(s.Cloud.Requests(watched)) > before, nil })
		time.Sleep(pause)
		a.Kill()
		a = s.RunAutoscaler(t)
	}
	s.awaitRunning(gangs...)
	s.awaitAttached("asg-1", len(gangs))
	rig.Always(t, 5*time.Second, "nothing is bought twice", func(context.Context) (bool, error) { return len(s.alive()) == len(gangs), nil })
}
