package alisim

import (
	"errors"
	"fmt"
	"slices"

	"gpu-spot-autoscaler/test/alisim/market"
)

// Validate says everything that is wrong with a world, each complaint naming its culprit.
func (w World) Validate() error {
	var errs []error
	complain := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if w.Region == "" {
		complain("region is missing")
	}
	if w.Speed < 0 {
		complain("speed %g is negative", w.Speed)
	}
	vswitches := map[string]bool{}
	for i, v := range w.VSwitches {
		if v.ID == "" || v.Zone == "" {
			complain("vswitches[%d] needs id and zone", i)
		}
		if vswitches[v.ID] {
			complain("vSwitch %q is described twice", v.ID)
		}
		vswitches[v.ID] = true
	}
	pools := map[string]bool{}
	for i, p := range w.Pools {
		if pools[p.ID] {
			complain("pool %q is described twice", p.ID)
		}
		pools[p.ID] = true
		if err := w.validatePool(p); err != nil {
			complain("pools[%d] %q: %w", i, p.ID, err)
		}
	}
	for i, t := range w.Types {
		if t.ID == "" || t.VCPU <= 0 || t.MemoryGiB <= 0 {
			complain("types[%d] %q needs id, vcpu and memoryGiB", i, t.ID)
		}
	}
	if err := w.Market.validate(); err != nil {
		complain("market: %w", err)
	}
	return errors.Join(errs...)
}

// validatePool refuses what the real service would not store. A type or a vSwitch that does not exist is refused too,
// but a pool without any is not: such groups exist, and clients must cope.
func (w World) validatePool(p Pool) error {
	catalogue := market.Catalogue()
	known := func(id string) bool {
		_, published := catalogue[id]
		return published || slices.ContainsFunc(w.Types, func(t Type) bool { return t.ID == id })
	}
	switch {
	case p.ID == "":
		return errors.New("id is missing")
	case p.MinSize < 0 || p.MaxSize < p.MinSize:
		return fmt.Errorf("need 0 <= minSize <= maxSize, have %d and %d", p.MinSize, p.MaxSize)
	case p.DesiredCapacity != nil && (*p.DesiredCapacity < p.MinSize || *p.DesiredCapacity > p.MaxSize):
		return fmt.Errorf("desiredCapacity %d is not between minSize %d and maxSize %d", *p.DesiredCapacity, p.MinSize, p.MaxSize)
	case p.Instances > p.MaxSize:
		return fmt.Errorf("instances %d is above maxSize %d", p.Instances, p.MaxSize)
	case !oneOf(p.SpotStrategy, "", NoSpot, SpotAsPriceGo, SpotWithPriceLimit):
		return fmt.Errorf("unknown spotStrategy %q", p.SpotStrategy)
	case !oneOf(p.MultiAZPolicy, "", policyPriority, policyBalance, policyCost):
		return fmt.Errorf("unknown multiAZPolicy %q", p.MultiAZPolicy)
	case !oneOf(p.HealthCheckType, "", healthCheckECS, healthCheckNone):
		return fmt.Errorf("unknown healthCheckType %q", p.HealthCheckType)
	case !oneOf(p.LifecycleState, "", groupActive, groupInactive, groupDeleting):
		return fmt.Errorf("unknown lifecycleState %q", p.LifecycleState)
	case p.SpotDuration != nil && *p.SpotDuration != 0 && *p.SpotDuration != 1:
		return fmt.Errorf("spotDuration is 0 or 1, not %d", *p.SpotDuration)
	}
	for _, process := range p.SuspendedProcesses {
		if !slices.Contains(processes, process) {
			return fmt.Errorf("unknown process %q", process)
		}
	}
	for _, id := range p.InstanceTypes {
		if !known(id) {
			return fmt.Errorf("unknown instance type %q; describe it under types", id)
		}
	}
	for _, id := range p.VSwitches {
		if !slices.ContainsFunc(w.VSwitches, func(v VSwitch) bool { return v.ID == id }) {
			return fmt.Errorf("unknown vSwitch %q", id)
		}
	}
	if _, err := parseTaints(p.Node.Taints); err != nil {
		return err
	}
	return nil
}

func oneOf(value string, allowed ...string) bool { return slices.Contains(allowed, value) }
