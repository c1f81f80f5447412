package ledger

import (
	"time"

	"gpu-spot-autoscaler/pricing"
)

// Amounts are what something cost and what it was for. Money is in the currency of the Report.
type Amounts struct {
	InstanceHours float64 `json:"instanceHours"`
	// Unpriced are the instance-hours in which no price was known. They are not in Cost.
	Unpriced float64 `json:"unpricedInstanceHours,omitempty"`
	Cost     float64 `json:"cost"`
	// OnDemand is what the same instances would have cost on demand.
	OnDemand float64 `json:"onDemandCost"`
	GPUHours float64 `json:"gpuHours"`
	// Used are the GPU-hours that pods requested.
	Used float64 `json:"usedGPUHours"`
	// Reclaiming are the GPU-hours from a notice to the release of the instance: of what a job does in them, only what its last checkpoint
	// holds is kept.
	Reclaiming float64 `json:"reclaimingGPUHours,omitempty"`
}

// plus returns the sum of both.
func (a Amounts) plus(b Amounts) Amounts {
	return Amounts{
		InstanceHours: a.InstanceHours + b.InstanceHours, Unpriced: a.Unpriced + b.Unpriced, Cost: a.Cost + b.Cost, OnDemand: a.OnDemand + b.OnDemand,
		GPUHours: a.GPUHours + b.GPUHours, Used: a.Used + b.Used, Reclaiming: a.Reclaiming + b.Reclaiming,
	}
}

// share returns a part of the amounts, all of which is used.
func (a Amounts) share(part float64) Amounts {
	return Amounts{
		InstanceHours: a.InstanceHours * part, Unpriced: a.Unpriced * part, Cost: a.Cost * part, OnDemand: a.OnDemand * part,
		GPUHours: a.GPUHours * part, Used: a.GPUHours * part, Reclaiming: a.Reclaiming * part,
	}
}

// Offering is a pool's offering. It is comparable.
type Offering struct {
	Pool           string `json:"pool"`
	InstanceType   string `json:"instanceType"`
	Zone           string `json:"zone"`
	PurchaseOption string `json:"purchaseOption"`
}

func offeringOf(pool string, o pricing.Offering) Offering {
	return Offering{Pool: pool, InstanceType: o.InstanceType, Zone: o.Zone, PurchaseOption: o.PurchaseOption()}
}

// Job is a job of a namespace. It is comparable.
type Job struct {
	Namespace string `json:"namespace"`
	// System is the job system, and Name the name of the job in it.
	System string `json:"system"`
	Name   string `json:"job"`
}

// jobAmounts are those of a job, and when it last had a pod.
type jobAmounts struct {
	Amounts
	lastSeen time.Time
	// announced is true once somebody was told that it has ended, or nobody is to be told any more. tried is when that was last tried.
	announced bool
	tried     time.Time
}

// totals are all that is accounted for until a time.
type totals struct {
	currency string
	since    time.Time
	until    time.Time

	offerings  map[Offering]Amounts
	namespaces map[string]Amounts
	jobs       map[Job]*jobAmounts
	// running is what was paid for when the totals were saved, as of runningAt. That may be later than until: instances are not accounted for
	// while their prices are not known.
	running   []RunningLine
	runningAt time.Time
}

func newTotals() *totals {
	return &totals{offerings: map[Offering]Amounts{}, namespaces: map[string]Amounts{}, jobs: map[Job]*jobAmounts{}}
}

// add adds what an instance cost in a period, and what its pods bear of that: of the period, each the part in which it ran. It is told whether
// the metrics count it too.
func (t *totals) add(i Instance, cost Amounts, p period, measured bool) {
	all := 0.
	for _, share := range i.Shares {
		all += share.Part
	}
	scale := 1 / max(1, all) // pods may share a GPU, and so request more than there is
	for _, share := range i.Shares {
		part := cost.share(share.Part * scale * p.after(share.Since))
		cost.Used += part.Used
		t.namespaces[share.Job.Namespace] = t.namespaces[share.Job.Namespace].plus(part)
		job := t.jobs[share.Job]
		if job == nil {
			job = &jobAmounts{}
			t.jobs[share.Job] = job
		}
		job.Amounts = job.Amounts.plus(part)
		if p.to.After(job.lastSeen) {
			job.lastSeen, job.announced = p.to, false
		}
		if measured {
			countNamespace(share.Job.Namespace, part)
		}
	}
	offering := offeringOf(i.Pool, i.Offering)
	t.offerings[offering] = t.offerings[offering].plus(cost)
	if measured {
		count(offering, cost)
	}
}

// after returns which part of the period is after the time.
func (p period) after(since time.Time) float64 {
	length := p.to.Sub(p.from)
	if length <= 0 || !since.After(p.from) {
		return 1
	}
	return max(0, float64(p.to.Sub(since))/float64(length))
}
