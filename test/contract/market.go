package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

func marketQuestions() []question {
	return []question{{
		name:    "spot-price-history",
		asks:    "How far back, how often and in which order does DescribeSpotPriceHistory tell prices?",
		matters: "The last spot price of each zone is used, and only a fresh one is compared with a cap.",
		source:  metadata + ": StartTime up to 30 days before EndTime, times as yyyy-MM-ddTHH:mm:ssZ; spacing and order are not documented",
		believed: facts{
			"30 days back": "accepted", "31 days back": "refused", "without ZoneId": "every zone", "spacing": "an hour",
			"order in a zone": "oldest first", "Timestamp": "seconds, UTC", "SpotPrice": "number", "OriginPrice": "number",
		},
		ask: askSpotPriceHistory,
	}, {
		name:    "spot-advice",
		asks:    "In which words and numbers does DescribeSpotAdvice tell interruptions and discounts?",
		matters: "A bucket that is not known counts as no hint.",
		source:  "DescribeSpotAdvice in " + goSDK + "; API reference of ECS: 0-3, 3-5, 5-10, 10-100",
		believed: facts{
			"InterruptRateDesc": "known", "AverageSpotDiscount": "number",
		},
		ask: askSpotAdvice,
	}, {
		name:    "price",
		asks:    "Does DescribePrice tell the price of an instance type by itself, without its disks, for an hour?",
		matters: "The on-demand price stands in for an unknown spot price.",
		source:  "DescribePrice in " + goSDK,
		believed: facts{
			"pay-as-you-go": "accepted", "spot": "accepted", "TradePrice": "number", "instanceType in DetailInfos": "yes",
			"the autoscaler finds a price": "yes",
		},
		ask: askPrice,
	}, {
		name:    "stock",
		asks:    "In which words does DescribeAvailableResource tell whether a type can be had?",
		matters: "A word that is not known is ignored: then the stock is learnt from purchases alone.",
		source:  "API reference of ECS, DescribeAvailableResource: WithStock, ClosedWithStock, WithoutStock, ClosedWithoutStock",
		believed: facts{
			"StatusCategory": "known", "as spot": "accepted",
		},
		ask: askStock,
	}, {
		name:    "elastic-strength",
		asks:    "Does DescribeElasticStrength tell how well each type can be had in each zone?",
		matters: "Where a resource pool has no ElasticStrength its HealthScore counts, and without either the stock is learnt from purchases and from ECS alone.",
		source:  docComment + ": ElasticStrength Strong, Medium, Weak; InventoryHealth.HealthScore -3 to 6; in " + goSDK,
		believed: facts{
			"the group": "accepted", "types and vSwitches": "accepted", "ElasticStrength": "known", "ResourcePools": "list", "HealthScore": "-3 to 6",
			"a resource pool": "type and zone", "ElasticStrength of a resource pool": "known", "the autoscaler finds strengths": "yes",
		},
		ask: askElasticStrength,
	}}
}

func listPrices(ctx context.Context, a *account, instanceType string, back time.Duration) (object, error) {
	return a.ecs(ctx, "DescribeSpotPriceHistory", parameters{
		"InstanceType": instanceType, "NetworkType": "vpc",
		"StartTime": a.clock.Now().Add(-back).UTC().Format("2006-01-02T15:04:05Z"),
	})
}

func askSpotPriceHistory(ctx context.Context, a *account) (facts, error) {
	types, err := a.typesOfGroup(ctx)
	if err != nil {
		return nil, err
	}
	found := facts{}
	const day = 24 * time.Hour
	for name, back := range map[string]time.Duration{"30 days back": 30*day - 5*time.Minute, "31 days back": 31 * day} {
		_, err := listPrices(ctx, a, types[0], back)
		word, err := acceptedOrRefused(err)
		if err != nil {
			return found, err
		}
		found[name] = word
	}
	body, err := listPrices(ctx, a, types[0], 2*day)
	if err != nil {
		return found, err
	}
	byZone := map[string][]time.Time{}
	for _, p := range body.list("SpotPrices") {
		found["Timestamp"], found["SpotPrice"], found["OriginPrice"] = timeForm(p.text("Timestamp")), p.kind("SpotPrice"), p.kind("OriginPrice")
		if at, err := time.Parse(time.RFC3339, p.text("Timestamp")); err == nil {
			byZone[p.text("ZoneId")] = append(byZone[p.text("ZoneId")], at)
		}
	}
	if len(byZone) > 1 {
		found["without ZoneId"] = "every zone"
	}
	for _, times := range byZone {
		if len(times) > 2 {
			found["order in a zone"], found["spacing"] = orderOf(times), spacingOf(times)
		}
	}
	return found, nil
}

// orderOf names the order of times.
func orderOf(times []time.Time) string {
	newest := func(a, b time.Time) int { return b.Compare(a) }
	switch {
	case slices.IsSortedFunc(times, time.Time.Compare):
		return "oldest first"
	case slices.IsSortedFunc(times, newest):
		return "newest first"
	}
	return "none"
}

// spacingOf names the gap that times mostly have.
func spacingOf(times []time.Time) string {
	sorted := slices.SortedFunc(slices.Values(times), time.Time.Compare)
	count := map[time.Duration]int{}
	for n := 1; n < len(sorted); n++ {
		count[sorted[n].Sub(sorted[n-1])]++
	}
	var most time.Duration
	for gap, n := range count {
		if n > count[most] {
			most = gap
		}
	}
	if most == time.Hour {
		return "an hour"
	}
	return most.String()
}

func askSpotAdvice(ctx context.Context, a *account) (facts, error) {
	types, err := a.typesOfGroup(ctx)
	if err != nil {
		return nil, err
	}
	body, err := a.ecs(ctx, "DescribeSpotAdvice", parameters{"NetworkType": "vpc"}.list("InstanceTypes", types[0]))
	if err != nil {
		return nil, err
	}
	found := facts{}
	for _, zone := range body.list("AvailableSpotZones") {
		for _, advice := range zone.list("AvailableSpotResources") {
			word := known(advice.text("InterruptRateDesc"), "0-3", "3-5", "5-10", "10-100")
			if found["InterruptRateDesc"] == "" || word != "known" {
				found["InterruptRateDesc"] = word
			}
			found["AverageSpotDiscount"] = advice.kind("AverageSpotDiscount")
		}
	}
	if len(found) == 0 {
		return nil, cannotTell("there is no advice on %s", types[0])
	}
	return found, nil
}

func askPrice(ctx context.Context, a *account) (facts, error) {
	types, err := a.typesOfGroup(ctx)
	if err != nil {
		return nil, err
	}
	found := facts{}
	disk := ""
	for _, category := range []string{"cloud_essd", ""} {
		if _, err = describePrice(ctx, a, types[0], "", "NoSpot", category); err == nil {
			disk = category
			break
		}
	}
	for name, strategy := range map[string]string{"pay-as-you-go": "NoSpot", "spot": "SpotAsPriceGo"} {
		body, err := describePrice(ctx, a, types[0], "", strategy, disk)
		word, err := verdict(err)
		if err != nil {
			return found, err
		}
		found[name] = word
		if price := body.object("PriceInfo").object("Price"); price != nil && strategy == "NoSpot" {
			found["TradePrice"] = price.kind("TradePrice")
			found["instanceType in DetailInfos"] = yesNo(slices.ContainsFunc(price.list("DetailInfos"),
				func(d object) bool { return d.text("Resource") == "instanceType" }))
		}
	}
	each, err := a.client.OnDemandPrice(ctx, types[0], "")
	if _, refused := refusal(err); err != nil && !refused {
		return found, err
	}
	found["the autoscaler finds a price"] = yesNo(err == nil && each > 0)
	return found, nil
}

// describePrice asks what an instance of a type costs in an hour, in a zone or, where it is "", anywhere, with a system disk of
// the category or, where that is "", of ECS's choice.
func describePrice(ctx context.Context, a *account, instanceType, zone, strategy, disk string) (object, error) {
	p := parameters{"ResourceType": "instance", "InstanceType": instanceType, "PriceUnit": "Hour", "SpotStrategy": strategy}
	if zone != "" {
		p = p.with("ZoneId", zone)
	}
	if disk != "" {
		p = p.with("SystemDisk.Category", disk)
	}
	return a.ecs(ctx, "DescribePrice", p)
}

func askStock(ctx context.Context, a *account) (facts, error) {
	types, err := a.typesOfGroup(ctx)
	if err != nil {
		return nil, err
	}
	stock, err := a.stock(ctx, types[0], "", alicloud.SpotAsPriceGo)
	word, err := verdict(err)
	if err != nil {
		return nil, err
	}
	found := facts{"as spot": word}
	for _, category := range stock {
		category = known(category, "WithStock", "ClosedWithStock", "WithoutStock", "ClosedWithoutStock")
		if found["StatusCategory"] == "" || category != "known" {
			found["StatusCategory"] = category
		}
	}
	return found, nil
}

// stock returns the words for the stock of an instance type in one zone or, if zone is "", in all zones.
func (a *account) stock(ctx context.Context, instanceType, zone, spotStrategy string) ([]string, error) {
	asked := parameters{
		"DestinationResource": "InstanceType", "IoOptimized": "optimized", "InstanceChargeType": "PostPaid",
		"InstanceType": instanceType, "SpotStrategy": spotStrategy,
	}
	if zone != "" {
		asked = asked.with("ZoneId", zone)
	}
	body, err := a.ecs(ctx, "DescribeAvailableResource", asked)
	if err != nil {
		return nil, err
	}
	var categories []string
	for _, in := range body.list("AvailableZones") {
		if zone != "" && in.text("ZoneId") != zone {
			continue
		}
		for _, resource := range in.list("AvailableResources") {
			for _, s := range resource.list("SupportedResources") {
				if s.text("Value") == instanceType {
					categories = append(categories, s.text("StatusCategory"))
				}
			}
		}
	}
	return categories, nil
}

func askElasticStrength(ctx context.Context, a *account) (facts, error) {
	body, err := a.ess(ctx, "DescribeElasticStrength", parameters{"ScalingGroupId": a.group})
	word, err := verdict(err)
	if err != nil {
		return nil, err
	}
	found := facts{"the group": word}
	g, err := a.describeGroup(ctx, a.group)
	if err != nil {
		return found, err
	}
	types, err := a.typesOfGroup(ctx)
	if err != nil {
		return found, err
	}
	_, err = a.ess(ctx, "DescribeElasticStrength", parameters{"SpotStrategy": "SpotAsPriceGo"}.
		list("InstanceTypes", types[0]).list("VSwitchIds", g.texts("VSwitchIds")...))
	if found["types and vSwitches"], err = verdict(err); err != nil || word != "accepted" {
		return found, err
	}
	found["ElasticStrength"] = known(body.text("ElasticStrength"), "Strong", "Medium", "Weak")
	found["ResourcePools"], _, _ = strings.Cut(body.kind("ResourcePools"), " ")
	for _, pool := range body.list("ResourcePools") {
		if pool.text("InstanceType") != "" && pool.text("ZoneId") != "" {
			found["a resource pool"] = "type and zone"
		}
		found["ElasticStrength of a resource pool"] = known(pool.text("ElasticStrength"), "Strong", "Medium", "Weak")
		if health := pool.object("InventoryHealth"); health.kind("HealthScore") == "number" {
			found["HealthScore"] = scoreForm(health.number("HealthScore"))
		}
	}
	strengths, err := a.client.SpotStrengths(ctx, a.group)
	if _, refused := refusal(err); err != nil && !refused {
		return found, err
	}
	found["the autoscaler finds strengths"] = yesNo(len(strengths) > 0)
	return found, nil
}

func scoreForm(score int) string {
	if score < -3 || score > 6 {
		return fmt.Sprintf("%d", score)
	}
	return "-3 to 6"
}
