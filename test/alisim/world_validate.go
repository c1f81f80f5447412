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
		if err := p.Validate(w.hasType, w.hasVSwitch); err != nil {
			complain("pools[%d] %q: %w", i, p.ID, err)
		}
	}
	for i, t := range w.Types {
		if t.ID == "" || t.VCPU <= 0 || t.MemoryGiB <= 0 {
			complain("types[%d] %q needs id, vcpu and memoryGiB", i, t.ID)
		}
	}
	if err := w.RAMPolicy.Validate(); err != nil {
		complain("ramPolicy: %w", err)
	}
	for i, k := range w.Credentials {
		if err := k.RAMPolicy.Validate(); err != nil {
			complain("credentials[%d] %q: %w", i, k.ID, err)
		}
	}
	if err := w.Temper.Validate(); err != nil {
		complain("temper: %w", err)
	}
	if err := w.Market.validate(); err != nil {
		complain("market: %w", err)
	}
	return errors.Join(errs...)
}

func (w World) hasType(id string) bool {
	_, published := market.Catalogue()[id]
	return published || slices.ContainsFunc(w.Types, func(t Type) bool { return t.ID == id })
}

func (w World) hasVSwitch(id string) bool {
	return slices.ContainsFunc(w.VSwitches, func(v VSwitch) bool { return v.ID == id })
}
