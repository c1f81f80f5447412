package alisim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/test/alisim/market"
)

// cloud is everything there is, and what will happen to it. One mutex guards all of it.
type cloud struct {
	world    World
	clock    clock.Clock
	market   *market.Static
	timeline market.Timeline
	types    map[string]Type
	nodes    *nodeKeeper // nil without a cluster

	mu     sync.Mutex
	random *rand.Rand
	made   uint64

	auth   authenticator
	limits *limits
	tokens clientTokens
	faults []*Fault
	log    requestLog

	metadataTokens metadataTokens

	agenda agenda
	// wake tells run that the agenda begins earlier than it thinks.
	wake chan struct{}

	groups     roster[*group]
	groupByID  map[string]*group
	rules      roster[*rule]
	ruleByID   map[string]*rule
	activities map[string]*activity
	vswitches  map[string]*vswitch

	// machines are the ECS instances; members those that belong to a scaling group. An instance that was reclaimed stays
	// a member until a health check misses it.
	machines   roster[*instance]
	members    roster[*instance]
	spot       int // of members
	recycling  roster[*instance]
	instanceBy map[string]*instance
	offerings  map[offeringKey]*offering
}

type vswitch struct {
	VSwitch
	used int
}

func newCloud(w World, clk clock.Clock, nodes *nodeKeeper) (*cloud, error) {
	if err := w.Validate(); err != nil {
		return nil, err
	}
	w = w.withDefaults()
	prices, timeline, err := w.buildMarket(clk.Now())
	if err != nil {
		return nil, fmt.Errorf("market: %w", err)
	}
	c := &cloud{
		world: w, clock: clk, market: prices, timeline: timeline, nodes: nodes,
		types:  catalogue(w.Types),
		random: rand.New(rand.NewPCG(w.Seed, w.Seed)),
		auth:   authenticator{keys: map[string]credential{}, nonces: map[string]time.Time{}},
		limits: newLimits(w.RateLimits),
		tokens: clientTokens{answers: map[string]answered{}},
		log:    requestLog{counts: map[string]int{}},
		wake:   make(chan struct{}, 1),

		metadataTokens: metadataTokens{},
		groupByID:      map[string]*group{},
		ruleByID:       map[string]*rule{},
		activities:     map[string]*activity{},
		vswitches:      map[string]*vswitch{},
		instanceBy:     map[string]*instance{},
		offerings:      map[offeringKey]*offering{},
	}
	for _, k := range w.Credentials {
		c.auth.keys[k.ID] = credential{secret: k.Secret, caller: accountOwner(w.AccountID)}
	}
	for _, v := range w.VSwitches {
		c.vswitches[v.ID] = &vswitch{VSwitch: v}
	}
	for _, p := range w.Pools {
		c.putGroup(p)
	}
	c.watchMarket()
	return c, nil
}

// catalogue is the published one with the world's own types over it.
func catalogue(own []Type) map[string]Type {
	types := map[string]Type{}
	for id, t := range market.Catalogue() {
		types[id] = Type{ID: id, VCPU: t.VCPU, MemoryGiB: t.MemoryGiB, GPUs: t.GPUs, GPUModel: t.GPUModel, GPUMemGiB: t.GPUMemGiB}
	}
	for _, t := range own {
		types[t.ID] = t
	}
	return types
}

// run does what is on the agenda until the context ends.
func (c *cloud) run(ctx context.Context) {
	for {
		timer := c.nextTimer()
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		case <-c.wake:
			timer.Stop()
		}
	}
}

// idle is how long run sleeps when the agenda is empty; whoever adds an entry wakes it.
const idle = time.Hour

// nextTimer does what is due and returns a timer for what is not. A clock that jumped between reading it and setting
// the timer would leave the timer late, so the clock is read again.
func (c *cloud) nextTimer() clock.Timer {
	for {
		now := c.clock.Now()
		wait := c.catchUp(now)
		timer := c.clock.NewTimer(wait)
		if c.clock.Now().Sub(now) < wait {
			return timer
		}
		timer.Stop()
	}
}

// catchUp does everything due and returns how long nothing else is.
func (c *cloud) catchUp(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		do, due := c.agenda.pop(now)
		if !due {
			break
		}
		do(now)
	}
	if next, any := c.agenda.next(); any {
		return next.Sub(now)
	}
	return idle
}

// later puts something on the agenda.
func (c *cloud) later(delay time.Duration, do func(now time.Time)) {
	c.at(c.clock.Now().Add(delay), do)
}

func (c *cloud) at(due time.Time, do func(now time.Time)) {
	first, any := c.agenda.next()
	c.agenda.add(due, do)
	if !any || due.Before(first) {
		select {
		case c.wake <- struct{}{}:
		default: // run is awake already
		}
	}
}

func (c *cloud) ordinal() uint64 {
	c.made++
	return c.made
}

const idAlphabet = "0123456789abcdefghijklmnopqrstuvwxyz"

// newID makes an id such as "i-t4n0…", of the length that Alibaba's have.
func (c *cloud) newID(prefix string) string {
	text := make([]byte, 20)
	for i := range text {
		text[i] = idAlphabet[c.random.IntN(len(idAlphabet))]
	}
	return prefix + string(text)
}
