package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"gpu-spot-autoscaler/test/rig"
)

func TestAPoolIsBoughtUpToItsMinimumWithoutAnyPod(t *testing.T) {
	kept := spotPool("asg-1", 10)
	kept.Tags["gpu-spot.autoscaling/min-size"] = "2"
	s := newSuite(t, newWorld(kept))
	s.RunAutoscaler(t, "--enforce-node-group-min-size")
	living := func() int { return len(s.instances("asg-1")) }
	s.eventually("there are two", func(context.Context) (bool, error) { return living() == 2, nil })
	assert.Equal(t, map[string]int{zoneB: 2}, s.zonesOf("asg-1"), "where they are the cheapest")
	rig.Always(t, 10*time.Second, "they are not given back, and no more is bought", func(context.Context) (bool, error) { return living() == 2, nil })

	if err := s.Cloud.Reclaim(s.instances("asg-1")[0].ID); err != nil {
		t.Fatal(err)
	}
	s.eventually("there are two that live", func(context.Context) (bool, error) { return living() == 2, nil })
	rig.Always(t, 10*time.Second, "and no more", func(context.Context) (bool, error) { return living() == 2, nil })
	assert.Equal(t, map[string]int{zoneB: 1, zoneC: 1}, s.zonesOf("asg-1"), "where one was reclaimed it counts for dearer")
}
