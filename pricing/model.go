package pricing

import (
	"errors"
	"fmt"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
)

// ErrNoPrice is returned for a node or a pod without a known price.
var ErrNoPrice = errors.New("no price is known")

// Prices are what the Model needs of a Book.
type Prices interface {
	Price(Offering) (float64, bool)
	Known() map[Offering]float64
	// Currency returns the currency of all prices, or "" while it is not known.
	Currency() string
}

// Shape is the size of an instance type.
type Shape struct {
	VCPU      float64
	MemoryGiB float64
	GPUs      float64
}

// ModelConfig configures a Model. Prices is required.
type ModelConfig struct {
	Prices Prices
	// Shape returns the shape of an instance type, and false if it is not known. Without it pods have no price.
	Shape func(instanceType string) (Shape, bool)
	// Candidates returns the offerings that a node may belong to which has no label for its instance type or its zone. Without
	// it, or if it returns none, they are the known ones that match the node's labels.
	Candidates func(*apiv1.Node) []Offering
	// Dearness returns the factor on an offering's price, 1 or more, for what the market does not price: that its instances are
	// likely to be reclaimed soon, or to be out of stock. Optional.
	Dearness func(Offering) float64
	// GroupPrice returns the price of a node of the node group per hour, with its dearness for pods whose time is worth that much; nil if they do
	// not say. It returns false if the price is not known. Optional.
	GroupPrice func(groupID string, valueOfTime *float64) (float64, bool)
}

// Model prices nodes and pods. It is safe for concurrent use if the functions of its configuration are. It makes no calls to the
// cloud.
type Model struct {
	config ModelConfig
}

var _ cloudprovider.PricingModel = (*Model)(nil)

// NewModel returns a model.
func NewModel(config ModelConfig) *Model { return &Model{config: config} }

// NodePrice returns the price of running a node for a time, by its labels, with its dearness. For a node that may belong
// to several offerings it returns the highest of their prices. The error is ErrNoPrice if no price is known.
func (m *Model) NodePrice(node *apiv1.Node, start, end time.Time) (float64, error) {
	perHour, ok := m.perHour(node, m.config.Dearness)
	if !ok {
		return 0, fmt.Errorf("node %s (%s in %q): %w", node.Name, node.Labels[apiv1.LabelInstanceTypeStable], node.Labels[apiv1.LabelTopologyZone], ErrNoPrice)
	}
	return perHour * hours(start, end), nil
}

// GroupPrice returns the price of a node of the node group per hour, with its dearness for the pods. It returns false if that is not known, as for
// node groups that the model does not know.
func (m *Model) GroupPrice(groupID string, pods []*apiv1.Pod) (float64, bool) {
	if m.config.GroupPrice == nil {
		return 0, false
	}
	return m.config.GroupPrice(groupID, ValueOfTime(pods...))
}

// Currency returns the currency of the prices, or "" while it is not known.
func (m *Model) Currency() string { return m.config.Prices.Currency() }

// MarketPrice returns NodePrice for an hour, without the dearness. It returns false if no price is known.
func (m *Model) MarketPrice(node *apiv1.Node) (float64, bool) { return m.perHour(node, nil) }

func (m *Model) perHour(node *apiv1.Node, dearness func(Offering) float64) (float64, bool) {
	if dearness == nil {
		dearness = func(Offering) float64 { return 1 }
	}
	o := OfferingOf(node)
	candidates := m.candidates(node, o)
	if candidates == nil {
		price, ok := m.config.Prices.Price(o)
		return price * dearness(o), ok
	}
	var dearest float64
	for _, candidate := range candidates {
		if price, ok := m.config.Prices.Price(candidate); ok {
			dearest = max(dearest, price*dearness(candidate))
		}
	}
	return dearest, dearest > 0
}

// candidates returns nil for a node that belongs to the offering of its labels.
func (m *Model) candidates(node *apiv1.Node, o Offering) []Offering {
	if m.config.Candidates != nil {
		if candidates := m.config.Candidates(node); len(candidates) > 0 {
			return candidates
		}
	}
	if o.InstanceType != AnyType && o.InstanceType != "" && !o.anyZone() {
		return nil
	}
	candidates := []Offering{}
	for known := range m.config.Prices.Known() {
		sameType := o.InstanceType == "" || o.InstanceType == AnyType || o.InstanceType == known.InstanceType
		sameZone := o.anyZone() || o.Zone == known.Zone
		if sameType && sameZone && o.Spot == known.Spot {
			candidates = append(candidates, known)
		}
	}
	return candidates
}

// OfferingOf returns the offering that a node's labels say. Our own label for the purchase option takes precedence over ACK's.
func OfferingOf(node *apiv1.Node) Offering {
	labels := node.Labels
	strategy := labels[api.LabelSpotStrategy]
	o := Offering{
		InstanceType: labels[apiv1.LabelInstanceTypeStable],
		Zone:         labels[apiv1.LabelTopologyZone],
		Spot:         strategy != "" && strategy != alicloud.NoSpot,
	}
	if purchase := labels[api.LabelPurchaseOption]; purchase != "" {
		o.Spot = purchase == api.PurchaseSpot
	}
	return o
}

// PodPrice returns the least that running a pod for a time could cost: its share of an instance of the cheapest offering, if that
// is full of such pods. The error is ErrNoPrice if no offering suits the pod.
func (m *Model) PodPrice(pod *apiv1.Pod, start, end time.Time) (float64, error) {
	demand := DemandOf(pod)
	least, found := 0.0, false
	for o, price := range m.config.Prices.Known() {
		share, ok := m.share(demand, o.InstanceType)
		if ok && (!found || share*price < least) {
			least, found = share*price, true
		}
	}
	if !found {
		return 0, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, ErrNoPrice)
	}
	return least * hours(start, end), nil
}

// share returns the share of an instance that a demand takes: of its GPUs if GPUs are requested, else of its CPUs or its memory,
// whichever is more.
func (m *Model) share(demand Demand, instanceType string) (float64, bool) {
	if m.config.Shape == nil {
		return 0, false
	}
	shape, ok := m.config.Shape(instanceType)
	switch {
	case !ok:
		return 0, false
	case demand.GPUs > 0:
		return demand.GPUs / shape.GPUs, shape.GPUs > 0
	case shape.VCPU <= 0 || shape.MemoryGiB <= 0:
		return 0, false
	}
	return max(demand.CPUs/shape.VCPU, demand.MemoryGiB/shape.MemoryGiB), true
}

func hours(start, end time.Time) float64 { return max(end.Sub(start), 0).Hours() }
