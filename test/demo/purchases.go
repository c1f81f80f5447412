package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/market"
)

// purchase is what the cloud was asked for. Whom it is for is told by Events on the pods; core writes one of them a pod
// in five minutes, so that a second purchase for the same pods shows only in what its nodes work for.
type purchase struct {
	request alisim.RequestView
	of      offering
	price   float64
	// market is what else could be had then.
	market string
	seen   time.Time
	// announced are the events about it, one for each job, or one that waits for its job.
	announced []*event
}

// eventWait is how long the Events about a purchase are waited for.
const eventWait = time.Second

// followPurchases matches what the cloud was asked for with the Events on the pods it is for.
func (c *timeline) followPurchases(s snapshot) {
	for _, r := range s.requests {
		if r.Action == "ScaleWithAdjustment" && r.Code == "" && r.Parameters["ExecutionMode"] != "PlanOnly" {
			of := offering{r.Parameters["InstanceType.1"], c.zones[r.Parameters["VSwitchId.1"]]}
			c.purchases = append(c.purchases, &purchase{request: r, of: of, price: s.quotes[of].Spot, market: s.onSale(of), seen: s.at})
		}
	}
	for _, w := range s.clusterEvents {
		switch w.reason {
		case "SpotOfferingChosen":
			c.add(event{Time: s.at, Kind: offeringChosen, Message: w.text})
		case "SpotPurchaseFailed", "SpotPurchaseRolledBack":
			c.add(event{Time: s.at, Kind: purchaseFailed, Message: w.text})
		}
	}
	for _, w := range s.clusterEvents {
		for _, of := range w.purchases() {
			c.attribute(of, c.podJobs[w.object])
		}
	}
	for _, p := range c.purchases {
		if len(p.announced) == 0 && s.at.Sub(p.seen) >= eventWait {
			c.announcePurchase(p, "")
		}
	}
}

// onSale ranks the cheapest offerings of the same pool by what a GPU-hour costs now.
func (s snapshot) onSale(of offering) string {
	type ranked struct {
		offering
		price float64
	}
	var ranking []ranked
	for _, o := range rivals(of) {
		if quote := s.quotes[o]; quote.Available {
			ranking = append(ranking, ranked{o, quote.Spot / float64(market.Catalogue()[o.instanceType].GPUs)})
		}
	}
	slices.SortStableFunc(ranking, func(a, b ranked) int { return cmp.Compare(a.price, b.price) })
	var prices []string
	for _, r := range ranking[:min(3, len(ranking))] {
		prices = append(prices, fmt.Sprintf("¥%.3f %s", r.price, r.offering))
	}
	return "cheapest GPU-hours: " + strings.Join(prices, ", ")
}

// attribute speaks of the latest purchase of an offering, once for each job.
func (c *timeline) attribute(of offering, job string) {
	for _, p := range slices.Backward(c.purchases) {
		if p.of != of || job == "" {
			continue
		}
		if !slices.ContainsFunc(p.announced, func(e *event) bool { return e.Job == job }) {
			c.announcePurchase(p, job)
		}
		return
	}
}

func (c *timeline) announcePurchase(p *purchase, job string) {
	if len(p.announced) == 1 && p.announced[0].Job == "" {
		p.announced[0].Job = job
		return
	}
	count, _ := strconv.Atoi(p.request.Parameters["AdjustmentValue"]) // the cloud took it
	p.announced = append(p.announced, c.add(event{
		Time: p.request.Time, Kind: scaleUp, Job: job, Offering: p.of.String(), Price: p.price, Count: count, Message: p.market,
	}))
}

// learnJob fills in whom the latest purchase before the instance was for.
func (c *timeline) learnJob(l *instanceRecord, job string) {
	for _, p := range slices.Backward(c.purchases) {
		if p.of == l.offering && !p.request.Time.After(l.Created) {
			if len(p.announced) == 1 && p.announced[0].Job == "" {
				p.announced[0].Job = job
			}
			return
		}
	}
}
