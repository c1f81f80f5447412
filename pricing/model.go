package pricing

import (
	"errors"
	"fmt"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// noSpot is the value of api.LabelSpotStrategy on nodes that were bought on demand.
const noSpot = "NoSpot"

// ErrNoPrice is the error of what has no known price.
var ErrNoPrice = errors.New("no price is known")

// Prices are what the Model needs of a Book.
type Prices interface {
	Price(Offering) (float64, bool)
	Known() map[Offering]float64
	// Currency is that of all prices; empty while it is not known.
	Currency() string
}

// Shape is what an instance type consists of.
type Shape struct {
	VCPU      float64
	MemoryGiB float64
	GPUs      float64
}

// ModelConfig is what a Model is made of. Prices is required.
type ModelConfig struct {
	Prices Prices
	// Shape tells an instance type's shape, as far as it is known. Without it pods have no price.
	Shape func(instanceType string) (Shape, bool)
	// Candidates are the offerings that a node which names no type or no zone may turn out to be. Without it, or where
	// it returns none, they are the known ones that agree with the node's labels.
	Candidates func(*apiv1.Node) []Offering
	// Surcharge is the part by which an offering's price counts for more, for a risk that the market does not price. Optional.
	Surcharge func(Offering) float64
}

// Model prices nodes and pods. It is safe for concurrent use if what it is made of is, and never touches the network.
type Model struct {
	config ModelConfig
}

var _ cloudprovider.PricingModel = (*Model)(nil)

// NewModel returns a model.
func NewModel(config ModelConfig) *Model { return &Model{config: config} }

// NodePrice is the price of running a node for a time, by its labels, with the surcharge. A node that does not say which
// offering it will be costs what the dearest one does. The error is ErrNoPrice where none is known.
func (m *Model) NodePrice(node *apiv1.Node, start, end time.Time) (float64, error) {
	perHour, ok := m.perHour(node, m.config.Surcharge)
	if !ok {
		return 0, fmt.Errorf("node %s (%s in %q): %w", node.Name, node.Labels[apiv1.LabelInstanceTypeStable], node.Labels[apiv1.LabelTopologyZone], ErrNoPrice)
	}
	return perHour * hours(start, end), nil
}

// Currency is that of the prices; empty while it is not known.
func (m *Model) Currency() string { return m.config.Prices.Currency() }

// MarketPrice is NodePrice for an hour, without the surcharge; false where it is unknown.
func (m *Model) MarketPrice(node *apiv1.Node) (float64, bool) { return m.perHour(node, nil) }

func (m *Model) perHour(node *apiv1.Node, surcharge func(Offering) float64) (float64, bool) {
	if surcharge == nil {
		surcharge = func(Offering) float64 { return 0 }
	}
	o := offeringOf(node)
	candidates := m.candidates(node, o)
	if candidates == nil {
		price, ok := m.config.Prices.Price(o)
		return price * (1 + surcharge(o)), ok
	}
	var dearest float64
	for _, candidate := range candidates {
		if price, ok := m.config.Prices.Price(candidate); ok {
			dearest = max(dearest, price*(1+surcharge(candidate)))
		}
	}
	return dearest, dearest > 0
}

// candidates is nil for a node that is one offering and no other.
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

// offeringOf reads a node's labels. Our own label on how it was bought wins over ACK's.
func offeringOf(node *apiv1.Node) Offering {
	labels := node.Labels
	strategy := labels[api.LabelSpotStrategy]
	o := Offering{
		InstanceType: labels[apiv1.LabelInstanceTypeStable],
		Zone:         labels[apiv1.LabelTopologyZone],
		Spot:         strategy != "" && strategy != noSpot,
	}
	if purchase := labels[api.LabelPurchaseOption]; purchase != "" {
		o.Spot = purchase == purchaseSpot
	}
	return o
}

// PodPrice is the least that running a pod for a time could cost: its share of the offering that is cheapest for it,
// filled to the brim with such pods. The error is ErrNoPrice where no offering suits it.
func (m *Model) PodPrice(pod *apiv1.Pod, start, end time.Time) (float64, error) {
	needs := demandOf(pod)
	least, found := 0.0, false
	for o, price := range m.config.Prices.Known() {
		share, ok := m.share(needs, o.InstanceType)
		if ok && (!found || share*price < least) {
			least, found = share*price, true
		}
	}
	if !found {
		return 0, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, ErrNoPrice)
	}
	return least * hours(start, end), nil
}

// share is the part of an instance that a demand takes: of its GPUs where GPUs are asked for, else of CPU or memory,
// whichever is more.
func (m *Model) share(needs demand, instanceType string) (float64, bool) {
	if m.config.Shape == nil {
		return 0, false
	}
	shape, ok := m.config.Shape(instanceType)
	switch {
	case !ok:
		return 0, false
	case needs.gpus > 0:
		return needs.gpus / shape.GPUs, shape.GPUs > 0
	case shape.VCPU <= 0 || shape.MemoryGiB <= 0:
		return 0, false
	}
	return max(needs.cpu/shape.VCPU, needs.memoryGiB/shape.MemoryGiB), true
}

func hours(start, end time.Time) float64 { return max(end.Sub(start), 0).Hours() }
