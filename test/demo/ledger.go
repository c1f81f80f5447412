package main

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// sample is a point of the plots. Maps are keyed by offering.
type sample struct {
	// At is in seconds since the world began, Market in hours of market time.
	At     float64 `json:"at"`
	Market float64 `json:"market"`
	// Nodes that are ready, their GPUs, and the GPUs whose pods run.
	Nodes map[string]int `json:"nodes"`
	GPUs  map[string]int `json:"gpus"`
	Used  int            `json:"used"`
	// Pending counts pods that wait.
	Pending int `json:"pending"`
	// Price is per GPU-hour in CNY, absent where nothing is sold.
	Price map[string]float64 `json:"price"`
	// Spot is what was spent so far, OnDemand what the same instances would have cost on demand, in CNY.
	Spot     float64 `json:"spot"`
	OnDemand float64 `json:"onDemand"`
}

// ledger keeps account of what runs and what it costs. Instances cost from their creation to their release, by the
// second of market time, at the price of the moment.
type ledger struct {
	began time.Time
	// speed is how many market seconds pass in a second.
	speed float64
	// gpus of a type.
	gpus    map[string]int
	samples []sample

	latest                   time.Time
	spot, onDemand, gpuHours float64
}

// sampleEvery is the distance of two points in a plot.
const sampleEvery = 500 * time.Millisecond

// take accounts for the time since the snapshot before, and says whether it added a point.
func (l *ledger) take(s snapshot) bool {
	if !l.latest.IsZero() {
		l.charge(s, s.at.Sub(l.latest).Hours()*l.speed)
	}
	l.latest = s.at
	at := s.at.Sub(l.began).Seconds()
	if n := len(l.samples); n > 0 && at-l.samples[n-1].At < sampleEvery.Seconds() {
		return false
	}
	l.samples = append(l.samples, l.sample(s, at))
	return true
}

func (l *ledger) charge(s snapshot, hours float64) {
	for _, i := range s.instances {
		quote := s.quotes[offeringOf(i)]
		l.spot += hours * quote.Spot
		l.onDemand += hours * quote.OnDemand
		l.gpuHours += hours * float64(l.gpus[i.InstanceType])
	}
}

func (l *ledger) sample(s snapshot, at float64) sample {
	p := sample{
		At: at, Market: at * l.speed / 3600, Nodes: map[string]int{}, GPUs: map[string]int{}, Price: map[string]float64{},
		Spot: l.spot, OnDemand: l.onDemand,
	}
	for id, n := range s.nodes {
		if i, exists := s.instances[id]; exists && n.ready {
			p.Nodes[offeringOf(i).String()]++
			p.GPUs[offeringOf(i).String()] += n.gpus
		}
	}
	for _, pod := range s.pods {
		switch {
		case pod.phase == corev1.PodRunning:
			p.Used += pod.gpus
		case pod.phase == corev1.PodPending && pod.node == "" && !pod.leaving:
			p.Pending++
		}
	}
	for o, quote := range s.quotes {
		if quote.Available {
			p.Price[o.String()] = quote.Spot / float64(max(1, l.gpus[o.instanceType]))
		}
	}
	return p
}

func (l *ledger) last() sample {
	if len(l.samples) == 0 {
		return sample{}
	}
	return l.samples[len(l.samples)-1]
}
