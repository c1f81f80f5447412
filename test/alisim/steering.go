package alisim

import (
	"maps"
	"slices"
	"time"

	"gpu-spot-autoscaler/test/alisim/market"
)

// Fault switches a fault on.
func (s *Server) Fault(f Fault) error {
	if err := f.validate(); err != nil {
		return err
	}
	return s.locked(func(c *cloud) error {
		c.faults = append(c.faults, &f)
		return nil
	})
}

// Faults returns those that are on.
func (s *Server) Faults() []Fault {
	list := []Fault{}
	s.locked(func(c *cloud) error {
		for _, f := range c.faults {
			list = append(list, *f)
		}
		return nil
	})
	return list
}

// ClearFaults switches all faults off.
func (s *Server) ClearFaults() {
	s.locked(func(c *cloud) error { c.faults = nil; return nil })
}

// Reclaim gives a spot instance its notice now, protected or not.
func (s *Server) Reclaim(instanceID string) error {
	return s.locked(func(c *cloud) error {
		i, known := c.instanceBy[instanceID]
		if !known || i.status == statusReleased {
			return unknown("instance", instanceID)
		}
		c.reclaim(i, c.clock.Now())
		return nil
	})
}

// Withdraw takes the notice of an instance back: it lives on as if there had been none.
func (s *Server) Withdraw(instanceID string) error {
	return s.locked(func(c *cloud) error {
		i, known := c.instanceBy[instanceID]
		if !known || !i.recycling() {
			return unknown("doomed instance", instanceID)
		}
		c.withdraw(i)
		return nil
	})
}

// StopInstance makes an instance unhealthy, as if it had been stopped from inside.
func (s *Server) StopInstance(instanceID string) error {
	return s.locked(func(c *cloud) error {
		i, known := c.instanceBy[instanceID]
		if !known || i.status == statusReleased {
			return unknown("instance", instanceID)
		}
		i.status = statusStopped
		c.lookAfter(i.group)
		return nil
	})
}

// SetStock says how many spot instances of a type a zone carries at once, running ones included; market.Unlimited
// lifts the bound. Running instances beyond it are reclaimed once their protected time is over.
func (s *Server) SetStock(instanceType, zone string, stock int) {
	s.locked(func(c *cloud) error {
		c.market.SetStock(instanceType, zone, stock)
		c.checkOffering(c.offeringOf(instanceType, zone), c.clock.Now())
		return nil
	})
}

// SetOnDemandStock says how many pay-as-you-go instances of a type a zone carries at once; running ones stay.
func (s *Server) SetOnDemandStock(instanceType, zone string, stock int) {
	s.locked(func(c *cloud) error {
		c.offeringOf(instanceType, zone).onDemandStock = stock
		return nil
	})
}

// SetPrice says what an instance-hour costs, in CNY. Running instances whose price limit is passed are reclaimed once
// their protected time is over.
func (s *Server) SetPrice(instanceType, zone string, spot, onDemand float64) {
	s.locked(func(c *cloud) error {
		c.market.SetPrice(instanceType, zone, spot, onDemand)
		c.checkOffering(c.offeringOf(instanceType, zone), c.clock.Now())
		return nil
	})
}

// Quote returns what the market says of a type in a zone now. Its capacity includes the instances that run.
func (s *Server) Quote(instanceType, zone string) market.Quote {
	return s.cloud.market.Quote(instanceType, zone, s.cloud.clock.Now())
}

// PutGroup adds a pool, or changes one without touching its instances.
func (s *Server) PutGroup(p Pool) error {
	if err := s.cloud.world.validatePool(p); err != nil {
		return err
	}
	return s.locked(func(c *cloud) error { c.putGroup(p); return nil })
}

// DeleteGroup releases all instances of a pool at once and forgets it.
func (s *Server) DeleteGroup(id string) error {
	return s.withGroup(id, func(c *cloud, g *group) { c.deleteGroup(g) })
}

// SetGroupTags replaces the tags of a scaling group.
func (s *Server) SetGroupTags(id string, tags map[string]string) error {
	return s.withGroup(id, func(_ *cloud, g *group) { g.Tags = maps.Clone(tags) })
}

// SetConfigurationTags replaces the tags of a scaling configuration.
func (s *Server) SetConfigurationTags(id string, tags map[string]string) error {
	return s.withGroup(id, func(_ *cloud, g *group) { g.ConfigurationTags = maps.Clone(tags) })
}

// Group returns a scaling group; false where there is none of that ID.
func (s *Server) Group(id string) (GroupView, bool) {
	var v GroupView
	err := s.withGroup(id, func(_ *cloud, g *group) { v = g.view() })
	return v, err == nil
}

// Instances returns all instances, oldest first, those included that are released but still members of their group.
func (s *Server) Instances() []InstanceView {
	list := []InstanceView{}
	s.locked(func(c *cloud) error {
		var all roster[*instance]
		all.items = slices.Clone(c.machines.items)
		for _, i := range c.members.items {
			all.add(i)
		}
		for _, i := range all.items {
			list = append(list, i.view())
		}
		return nil
	})
	return list
}

// Instance returns an instance; false where there is none of that ID.
func (s *Server) Instance(id string) (InstanceView, bool) {
	var v InstanceView
	err := s.locked(func(c *cloud) error {
		i, known := c.instanceBy[id]
		if !known {
			return unknown("instance", id)
		}
		v = i.view()
		return nil
	})
	return v, err == nil
}

// Requests returns the latest requests, oldest first: all, or those of the named actions.
func (s *Server) Requests(actions ...string) []RequestView {
	list := []RequestView{}
	s.locked(func(c *cloud) error {
		for _, r := range c.log.requests {
			if len(actions) == 0 || slices.Contains(actions, r.Action) {
				list = append(list, r)
			}
		}
		return nil
	})
	return list
}

// RequestCounts returns how many requests of each action came since the world began.
func (s *Server) RequestCounts() map[string]int {
	var counts map[string]int
	s.locked(func(c *cloud) error { counts = maps.Clone(c.log.counts); return nil })
	return counts
}

// MarketHour is how long an hour of market time takes, and the protected first hour of a spot instance.
func (s *Server) MarketHour() time.Duration { return s.cloud.timeline.Hour() }

func (s *Server) locked(do func(*cloud) error) error {
	s.cloud.mu.Lock()
	defer s.cloud.mu.Unlock()
	return do(s.cloud)
}

func (s *Server) withGroup(id string, do func(*cloud, *group)) error {
	return s.locked(func(c *cloud) error {
		g, known := c.groupByID[id]
		if !known {
			return unknown("scaling group", id)
		}
		do(c, g)
		return nil
	})
}
