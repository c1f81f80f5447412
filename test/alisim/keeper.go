package alisim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/test/alisim/nodes"
)

// Registrar makes booted instances appear as Nodes, and disappear. *nodes.Registrar is one.
type Registrar interface {
	Up(ctx context.Context, m nodes.Machine) error
	Down(ctx context.Context, instanceID string) error
	// Wait returns when nothing that Up and Down left for later is under way.
	Wait()
}

// nodeKeeper carries machines to the cluster and back, one goroutine for each that is up. All end with the context.
type nodeKeeper struct {
	ctx       context.Context
	registrar Registrar
	clock     clock.Clock
	group     sync.WaitGroup
	// slots bounds the calls under way at once.
	slots chan struct{}
}

func newNodeKeeper(ctx context.Context, r Registrar, clk clock.Clock) *nodeKeeper {
	return &nodeKeeper{ctx: ctx, registrar: r, clock: clk, slots: make(chan struct{}, 32)}
}

// boot registers the machine, and takes it off again when gone is closed.
func (k *nodeKeeper) boot(m nodes.Machine, gone <-chan struct{}) {
	k.group.Go(func() {
		if !k.persist(gone, "up", m.InstanceID, func(ctx context.Context) error { return k.registrar.Up(ctx, m) }) {
			return
		}
		select {
		case <-k.ctx.Done():
			return
		case <-gone:
		}
		k.persist(nil, "down", m.InstanceID, func(ctx context.Context) error { return k.registrar.Down(ctx, m.InstanceID) })
	})
}

const (
	firstPause = 200 * time.Millisecond
	lastPause  = 5 * time.Second
)

// wait returns when all goroutines have ended, which they do after the context.
func (k *nodeKeeper) wait() {
	k.group.Wait()
	k.registrar.Wait()
}

// persist repeats a call until it succeeds, enough is closed, or everything ends; false in the last case.
func (k *nodeKeeper) persist(enough <-chan struct{}, what, id string, call func(context.Context) error) bool {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := k.inSlot(call)
		if err == nil {
			return true
		}
		if k.ctx.Err() == nil {
			klog.FromContext(k.ctx).Error(err, "Node of simulated instance", "call", what, "instance", id, "retryIn", pause)
		}
		select {
		case <-k.ctx.Done():
			return false
		case <-enough:
			return true
		case <-k.clock.After(pause):
		}
	}
}

func (k *nodeKeeper) inSlot(call func(context.Context) error) error {
	select {
	case k.slots <- struct{}{}:
		defer func() { <-k.slots }()
		return call(k.ctx)
	case <-k.ctx.Done():
		return k.ctx.Err()
	}
}

// machine is what the cluster is told about an instance.
func (c *cloud) machine(i *instance) nodes.Machine {
	m := nodes.Machine{
		InstanceID: i.id, Region: c.world.Region, Zone: i.vsw.Zone, InstanceType: i.typ.ID, SpotStrategy: i.spotStrategy,
		PoolID: i.group.ID,
		VCPU:   i.typ.VCPU, MemoryGiB: i.typ.MemoryGiB, GPUs: i.typ.GPUs, GPUModel: i.typ.GPUModel, GPUMemGiB: i.typ.GPUMemGiB,
		SystemDiskGiB: i.group.SystemDiskGiB, DriverDelay: c.world.DriverDelay.Duration,
	}
	m.Labels, m.Taints, m.Resources = nodeExtras(i.group.Pool)
	return m
}

// Prefixes of the tags that describe a pool's nodes.
const (
	labelTag    = "k8s.io/cluster-autoscaler/node-template/label/"
	taintTag    = "k8s.io/cluster-autoscaler/node-template/taint/"
	resourceTag = "k8s.io/cluster-autoscaler/node-template/resources/"
)

// nodeExtras are the labels, taints and resources that a pool gives its nodes. Tags that do not parse give none, as a
// kubelet would not have been told about them.
func nodeExtras(p Pool) (labels map[string]string, taints []corev1.Taint, resources map[string]string) {
	labels, resources = map[string]string{}, map[string]string{}
	tags := nodeTags(p)
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		value := tags[key]
		if name, is := strings.CutPrefix(key, labelTag); is {
			labels[name] = value
		} else if name, is := strings.CutPrefix(key, resourceTag); is {
			resources[name] = value
		} else if name, is := strings.CutPrefix(key, taintTag); is {
			if taint, err := parseTaint(name + "=" + value); err == nil {
				taints = append(taints, taint)
			}
		}
	}
	more, _ := parseTaints(p.Node.Taints) // checked by Validate
	maps.Copy(labels, p.Node.Labels)
	maps.Copy(resources, p.Node.Resources)
	return labels, append(taints, more...), resources
}

// nodeTags are a pool's tags; the group's win over the configuration's.
func nodeTags(p Pool) map[string]string {
	tags := map[string]string{}
	maps.Copy(tags, p.ConfigurationTags)
	maps.Copy(tags, p.Tags)
	return tags
}

func parseTaints(texts []string) ([]corev1.Taint, error) {
	var taints []corev1.Taint
	for _, text := range texts {
		t, err := parseTaint(text)
		if err != nil {
			return nil, err
		}
		taints = append(taints, t)
	}
	return taints, nil
}

// parseTaint reads "key=value:effect".
func parseTaint(text string) (corev1.Taint, error) {
	key, rest, hasValue := strings.Cut(text, "=")
	value, effect, hasEffect := strings.Cut(rest, ":")
	t := corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
	known := oneOf(effect, string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectNoExecute), string(corev1.TaintEffectPreferNoSchedule))
	if !hasValue || !hasEffect || key == "" || !known {
		return t, fmt.Errorf("taint %q is not of the form key=value:effect", text)
	}
	return t, nil
}
