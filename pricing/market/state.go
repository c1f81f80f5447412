package market

import (
	"context"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/state"
)

const (
	// observeEvery is how often the instances are looked at, saveEvery how often what is remembered is saved. A process that ends without
	// saving forgets that much.
	observeEvery = 10 * time.Second
	saveEvery    = 5 * time.Minute
	saveTimeout  = 10 * time.Second
)

// KeeperConfig is what a Keeper is made of. All fields but Corrupt are required.
type KeeperConfig struct {
	Memory *Memory
	Store  state.Store
	Clock  clock.WithTicker
	// Instances returns all spot instances, and as of when; zero while they are not known. It has to be safe for concurrent use.
	Instances func() ([]Living, time.Time)
	// Corrupt is called if what was saved cannot be read. It is forgotten then.
	Corrupt func(error)
}

// Keeper fills a Memory, and keeps it across restarts.
type Keeper struct{ config KeeperConfig }

// NewKeeper returns a Keeper.
func NewKeeper(config KeeperConfig) *Keeper { return &Keeper{config: config} }

// Run loads what was remembered, and observes the instances until ctx ends. Then it saves once more. Until what was saved is loaded, nothing
// is saved, so that nothing is lost. Run is to be called once.
func (k *Keeper) Run(ctx context.Context) {
	published.Store(k)
	defer published.CompareAndSwap(k, nil)
	ticker := k.config.Clock.NewTicker(observeEvery)
	defer ticker.Stop()
	loaded := false
	saved := k.config.Clock.Now()
	for {
		loaded = loaded || k.tryLoad(ctx)
		if instances, at := k.config.Instances(); loaded && !at.IsZero() { // before, it would count what the saved state has counted
			k.config.Memory.Observe(instances, at)
		}
		if loaded && k.config.Clock.Since(saved) >= saveEvery {
			saved = k.config.Clock.Now()
			k.save(ctx)
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
			if loaded {
				k.save(context.WithoutCancel(ctx))
			}
			return
		}
	}
}

// Load adds what was saved last to the Memory, if anything was.
func (k *Keeper) Load(ctx context.Context) error {
	saved, err := k.config.Store.Load(ctx)
	if err != nil || len(saved) == 0 {
		return err
	}
	return k.config.Memory.Decode(saved)
}

// tryLoad sets aside what cannot be read, and returns false if it has to be tried again.
func (k *Keeper) tryLoad(ctx context.Context) bool {
	bounded, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	saved, err := k.config.Store.Load(bounded)
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot load what was remembered of the market, will try again")
		}
		return false
	}
	if len(saved) == 0 {
		return true
	}
	if err := k.config.Memory.Decode(saved); err != nil {
		klog.FromContext(ctx).Error(err, "What was remembered of the market is set aside")
		k.config.Store.SetAside()
		if k.config.Corrupt != nil {
			k.config.Corrupt(err)
		}
	}
	return true
}

func (k *Keeper) save(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	saved, err := k.config.Memory.Encode()
	if err == nil {
		err = k.config.Store.Save(bounded, saved)
	}
	if apierrors.IsConflict(err) { // by a former leader: what it has seen in its last minutes is not worth more than what was seen here
		_, err = k.config.Store.Load(bounded)
	}
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot save what is remembered of the market, will try again", "after", saveEvery)
	}
}

// memoryVersion is that of what Encode returns.
const memoryVersion = 1

type memoryState struct {
	Version int           `json:"version"`
	At      time.Time     `json:"at"`
	Seen    []placeMemory `json:"seen"`
	// Lost are instances whose loss is counted already.
	Lost map[string]time.Time `json:"lost,omitempty"`
	// Past is when offerings were up.
	Past []placePast `json:"past,omitempty"`
	// Stock is what ECS and ESS say of the stock, and how often it was so.
	Stock stockState `json:"stock,omitzero"`
}

type placeMemory struct {
	place
	experience
}

// Encode returns what is remembered, as Decode takes it.
func (m *Memory) Encode() ([]byte, error) { return state.Encode(m.state()) }

// state returns a copy of what is remembered. It is compressed without the lock, for which whoever buys would wait.
func (m *Memory) state() memoryState {
	m.mu.RLock()
	defer m.mu.RUnlock()
	saved := memoryState{Version: memoryVersion, At: m.now, Lost: maps.Clone(m.lost), Past: m.past.encode(), Stock: m.stock.encode()}
	for key, e := range m.seen {
		saved.Seen = append(saved.Seen, placeMemory{key, *e})
	}
	return saved
}

// Decode remembers what was encoded, in addition to what was seen since. Nothing changes if it returns an error.
func (m *Memory) Decode(text []byte) error {
	var saved memoryState
	if err := state.Decode(text, memoryVersion, &saved); err != nil {
		return fmt.Errorf("read what was remembered of the market: %w", err)
	}
	runs, err := decodePast(saved.Past)
	if err != nil {
		return fmt.Errorf("read what was remembered of the market: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.past.prepend(runs)
	m.stock.restore(saved.Stock)
	for _, s := range saved.Seen {
		m.add(pricing.Offering{InstanceType: s.InstanceType, Zone: s.Zone, Spot: true}, s.experience)
	}
	maps.Copy(m.lost, saved.Lost)
	if m.now.Before(saved.At) {
		m.now = saved.At
	}
	return nil
}
