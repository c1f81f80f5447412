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
	// random, and is less than ten minutes then. An observation makes one call for each instance type.
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
}

// EventSink records an Event about the autoscaler. It must not block.
type EventSink interface {
	Eventf(eventType, reason, messageFmt string, args ...any)
}

// reasonUnobserved is the reason of the Event that ECS refuses to say what is in stock.
const reasonUnobserved = "SpotStockUnobserved"

// WatchConfig is what a Watch is made of. All fields are required.
type WatchConfig struct {
	Memory *Memory
	Source StockSource
	Clock  clock.WithTicker
	Events EventSink
	// Offerings returns those that are wanted, with what an instance costs per hour now, 0 if that is not known. It has to be safe for concurrent use.
	Offerings func() map[pricing.Offering]float64
}

// Watch observes the stock of offerings, before anybody needs them.
type Watch struct {
	config WatchConfig
	// refused is true from a refusal to answer until an answer.
	refused bool
}

// NewWatch returns a Watch, which does nothing until it runs.
func NewWatch(config WatchConfig) *Watch { return &Watch{config: config} }

// Run observes the stock until ctx ends. If ECS refuses that, Run says so in an Event once, and goes on trying. Run is to be called once.
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

// observe asks for each instance type. It ends early if ECS refuses to answer.
func (w *Watch) observe(ctx context.Context, wanted map[string]prices) {
	pace := min(stockPace, stockInterval/time.Duration(len(wanted)))
	var failure error
	failed := 0
	for _, instanceType := range slices.Sorted(maps.Keys(wanted)) {
		began := w.config.Clock.Now()
		err := w.ask(ctx, instanceType, wanted[instanceType])
		switch {
		case ctx.Err() != nil:
			return
		case alicloud.NeedsOperator(err):
			w.reportRefused(ctx, err)
			return
		case err != nil:
			failure, failed = err, failed+1
		default:
			w.refused = false
		}
		w.wait(ctx, began, pace)
	}
	if failure != nil {
		klog.FromContext(ctx).Error(failure, "Cannot observe the stock of all instance types, will try again", "failed", failed, "of", len(wanted))
		return
	}
	w.config.Memory.StockRead(w.config.Clock.Now())
}

// ask asks for one instance type. What is said of zones that are not wanted is left out: nobody buys there, and it would take the place of what is
// remembered of others.
func (w *Watch) ask(ctx context.Context, instanceType string, wanted prices) error {
	bounded, cancel := context.WithTimeout(ctx, stockTimeout)
	defer cancel()
	found, err := w.config.Source.SpotStock(bounded, instanceType)
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

func (w *Watch) reportRefused(ctx context.Context, err error) {
	if w.refused {
		return
	}
	w.refused = true
	klog.FromContext(ctx).Error(err, "Cannot observe the stock, so that it is learnt from purchases alone")
	w.config.Events.Eventf(corev1.EventTypeWarning, reasonUnobserved,
		"What is in stock is learnt from purchases alone, since ECS refuses to say it. Does the RAM policy allow ecs:DescribeAvailableResource? %v", err)
}
