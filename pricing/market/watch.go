package market

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/work"
	"gpu-spot-autoscaler/pricing"
)

const (
	// stockInterval is the time from the beginning of an observation to the beginning of the next. It is lengthened by up to stockJitter at
	// random, and is less than ten minutes then. An observation makes one call for each instance type, and one for each pool.
	stockInterval = 8 * time.Minute
	stockJitter   = .1
	// stockPace is the time between two calls. It is less if there are so many that they would take longer than stockInterval.
	stockPace = time.Second
	// stockRetry is the wait if no offerings are known yet.
	stockRetry = 10 * time.Second
	// stockTimeout bounds one call.
	stockTimeout = 30 * time.Second
)

// StockSource is who says what is in stock. It is implemented by *client.Client of package alicloud/client.
type StockSource interface {
	// SpotStock returns what is said of spot instances of the type, for each zone that sells it.
	SpotStock(ctx context.Context, instanceType string) ([]alicloud.Stock, error)
	// SpotStrengths returns how well ESS expects spot instances to be had in the scaling group, for each instance type and zone of it.
	SpotStrengths(ctx context.Context, scalingGroupID string) ([]alicloud.OfferingStrength, error)
}

// EventSink records an Event about the autoscaler. It must not block.
type EventSink interface {
	Eventf(eventType, reason, messageFmt string, args ...any)
}

// reasonUnobserved is the reason of the Event that ECS or ESS refuses to say what is in stock.
const reasonUnobserved = "SpotStockUnobserved"

// WatchConfig is what a Watch is made of. All fields are required.
type WatchConfig struct {
	Memory *Memory
	Source StockSource
	Clock  clock.WithTicker
	Events EventSink
	// Offerings returns those that are wanted, with what an instance costs per hour now, 0 if that is not known. It has to be safe for concurrent use.
	Offerings func() map[pricing.Offering]float64
	// Pools returns the ids of the scaling groups that buy spot instances. It has to be safe for concurrent use.
	Pools func() []string
}

// Watch observes the stock of offerings, before anybody needs them.
type Watch struct {
	config            WatchConfig
	categories, pools round
}

// NewWatch returns a Watch, which does nothing until it runs.
func NewWatch(config WatchConfig) *Watch {
	return &Watch{
		config: config,
		categories: round{of: "instance types",
			refusal: "ECS refuses to say what is in stock, which is learnt without it. Does the RAM policy allow ecs:DescribeAvailableResource? %v"},
		pools: round{of: "pools", isPerName: true,
			refusal: "ESS refuses to say how well spot instances can be had, which is learnt without it. Does the RAM policy allow ess:DescribeElasticStrength? %v"},
	}
}

// Run observes the stock until ctx ends. If ECS or ESS refuses that, Run says so in an Event once, and goes on trying. Run is to be called once.
func (w *Watch) Run(ctx context.Context) {
	for ctx.Err() == nil {
		began, interval := w.config.Clock.Now(), stockRetry
		if wanted := w.wanted(); len(wanted) > 0 {
			interval = wait.Jitter(stockInterval, stockJitter)
			w.observe(ctx, wanted)
		}
		w.wait(ctx, began, interval)
	}
}

// wait waits until the interval is over, or ctx ends.
func (w *Watch) wait(ctx context.Context, began time.Time, interval time.Duration) {
	_ = work.Sleep(ctx, w.config.Clock, interval-w.config.Clock.Since(began))
}

// prices are what an instance of a type costs per hour, by zone.
type prices map[string]float64

// wanted returns the prices of the spot offerings by instance type.
func (w *Watch) wanted() map[string]prices {
	byType := map[string]prices{}
	for o, price := range w.config.Offerings() {
		if !o.Spot {
			continue
		}
		if byType[o.InstanceType] == nil {
			byType[o.InstanceType] = prices{}
		}
		byType[o.InstanceType][o.Zone] = price
	}
	return byType
}

// observe asks for each instance type, and for each pool. What one of them fails to say does not hinder the other.
func (w *Watch) observe(ctx context.Context, wanted map[string]prices) {
	instanceTypes, pools := slices.Sorted(maps.Keys(wanted)), w.config.Pools()
	pace := min(stockPace, stockInterval/time.Duration(len(instanceTypes)+len(pools)))
	if w.askAll(ctx, &w.categories, instanceTypes, pace, func(ctx context.Context, instanceType string) error {
		return w.askType(ctx, instanceType, wanted[instanceType])
	}) {
		w.config.Memory.StockRead(w.config.Clock.Now())
	}
	found := map[pricing.Offering]alicloud.Strength{}
	isWhole := w.askAll(ctx, &w.pools, pools, pace, func(ctx context.Context, pool string) error { return w.askPool(ctx, pool, wanted, found) })
	w.config.Memory.NoteStrengths(found, isWhole, w.config.Clock.Now())
	if isWhole && len(pools) > 0 {
		w.config.Memory.StrengthsRead(w.config.Clock.Now())
	}
}

// round is the part of an observation that asks one service.
type round struct {
	// of is what each call is about, refusal the Event of a service that refuses to answer.
	of, refusal string
	// isPerName is whether the service may refuse one name and answer another. If not, no more is asked after a refusal.
	isPerName bool
	// refused is true from a refusal to answer until all is answered.
	refused bool
}

// askAll asks for each of the names, and returns whether all were answered.
func (w *Watch) askAll(ctx context.Context, r *round, names []string, pace time.Duration, ask func(context.Context, string) error) (isWhole bool) {
	var failure error
	failed := 0
	for _, name := range names {
		began := w.config.Clock.Now()
		err := boundedAsk(ctx, name, ask)
		switch {
		case ctx.Err() != nil:
			return false
		case alicloud.NeedsOperator(err):
			w.reportRefused(ctx, r, err)
			if !r.isPerName {
				return false
			}
			failure, failed = err, failed+1
		case err != nil:
			failure, failed = err, failed+1
		}
		w.wait(ctx, began, pace)
	}
	if failure != nil {
		klog.FromContext(ctx).Error(failure, "Cannot observe all of the stock, will try again", "of", r.of, "failed", failed, "asked", len(names))
	}
	r.refused = r.refused && failure != nil
	return failure == nil
}

func boundedAsk(ctx context.Context, name string, ask func(context.Context, string) error) error {
	bounded, cancel := context.WithTimeout(ctx, stockTimeout)
	defer cancel()
	return ask(bounded, name)
}

// askType asks for one instance type. What is said of zones that are not wanted is left out: nobody buys there, and it would take the place of what
// is remembered of others.
func (w *Watch) askType(ctx context.Context, instanceType string, wanted prices) error {
	found, err := w.config.Source.SpotStock(ctx, instanceType)
	if err != nil {
		return err
	}
	var said []Said
	for _, each := range found {
		if price, ok := wanted[each.ZoneID]; ok {
			offering := pricing.Offering{InstanceType: instanceType, Zone: each.ZoneID, Spot: true}
			said = append(said, Said{Offering: offering, Category: each.Category, Price: price})
		}
	}
	w.config.Memory.NoteStock(said, w.config.Clock.Now())
	return nil
}

// askPool asks for one pool, and adds what is said of wanted offerings to what was found. Where pools differ, the strongest counts: what can be had
// through one of them is there.
func (w *Watch) askPool(ctx context.Context, pool string, wanted map[string]prices, found map[pricing.Offering]alicloud.Strength) error {
	said, err := w.config.Source.SpotStrengths(ctx, pool)
	if err != nil {
		return err
	}
	for _, each := range said {
		offering := pricing.Offering{InstanceType: each.InstanceType, Zone: each.ZoneID, Spot: true}
		if _, ok := wanted[each.InstanceType][each.ZoneID]; ok && isStronger(each.Strength, found[offering]) {
			found[offering] = each.Strength
		}
	}
	return nil
}

func (w *Watch) reportRefused(ctx context.Context, r *round, err error) {
	if r.refused {
		return
	}
	r.refused = true
	klog.FromContext(ctx).Error(err, "Cannot observe the stock, which is learnt without it", "of", r.of)
	w.config.Events.Eventf(corev1.EventTypeWarning, reasonUnobserved, r.refusal, err)
}
