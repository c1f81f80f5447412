package market

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/pricing"
)

const (
	// stockInterval is the time between two observations, which is lengthened by up to stockJitter at random: with the
	// time that they take, they are less than ten minutes apart. That is one call for each instance type.
	stockInterval = 8 * time.Minute
	stockJitter   = .1
	// stockRetry is the wait if no offerings are known yet.
	stockRetry = 10 * time.Second
	// stockTimeout bounds one observation.
	stockTimeout = time.Minute
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

// reasonUnobserved is the reason of the Event that nobody may ask what is in stock.
const reasonUnobserved = "SpotStockUnobserved"

// Watch observes the stock of offerings, before anybody needs them. All fields are required.
type Watch struct {
	Memory *Memory
	Source StockSource
	Clock  clock.WithTicker
	Events EventSink
	// Offerings returns those that are wanted. It has to be safe for concurrent use.
	Offerings func() []pricing.Offering

	// refused is true from a refusal to answer until an answer.
	refused bool
}

// Run observes the stock until ctx ends. If it must not, it says so in an Event once, and goes on trying. Run is to be called once.
func (w *Watch) Run(ctx context.Context) {
	for {
		pause := wait.Jitter(stockInterval, stockJitter)
		if types := w.types(); len(types) == 0 {
			pause = stockRetry
		} else {
			w.observe(ctx, types)
		}
		select {
		case <-w.Clock.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// types returns the instance types of the spot offerings.
func (w *Watch) types() []string {
	types := sets.New[string]()
	for _, o := range w.Offerings() {
		if o.Spot {
			types.Insert(o.InstanceType)
		}
	}
	return sets.List(types)
}

// observe asks for each instance type. It ends early if it is not allowed to ask.
func (w *Watch) observe(ctx context.Context, types []string) {
	bounded, cancel := context.WithTimeout(ctx, stockTimeout)
	defer cancel()
	isWhole := true
	for _, instanceType := range types {
		found, err := w.Source.SpotStock(bounded, instanceType)
		switch {
		case err == nil:
			w.refused = false
			w.Memory.NoteStock(instanceType, found, w.Clock.Now())
			continue
		case ctx.Err() != nil:
			return
		case alicloud.NeedsOperator(err):
			w.reportRefused(ctx, err)
			return
		}
		isWhole = false
		klog.FromContext(ctx).Error(err, "Cannot observe the stock of an instance type, will try again", "instanceType", instanceType)
		if bounded.Err() != nil {
			return
		}
	}
	if isWhole {
		w.Memory.StockRead(w.Clock.Now())
	}
}

func (w *Watch) reportRefused(ctx context.Context, err error) {
	if w.refused {
		return
	}
	w.refused = true
	klog.FromContext(ctx).Error(err, "Must not observe the stock, and goes by purchases alone")
	w.Events.Eventf(corev1.EventTypeWarning, reasonUnobserved,
		"What is in stock is learnt from purchases alone, since ECS refuses to say it. Does the RAM policy allow ecs:DescribeAvailableResource? %v", err)
}
