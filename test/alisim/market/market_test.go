package market_test

import (
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/test/alisim/market"
)

const (
	a10     = "ecs.gn7i-c8g1.2xlarge"
	v100    = "ecs.gn6v-c8g1.2xlarge"
	l20     = "ecs.gn8is.2xlarge" // in the catalogue, without any price
	heyuanA = "cn-heyuan-a"
	heyuanB = "cn-heyuan-b"
)

var start = time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)

func ptr[T any](v T) *T { return &v }

func TestCatalogueHoldsThePublishedShapes(t *testing.T) {
	types := market.Catalogue()
	assert.Len(t, types, 63)
	assert.Equal(t, market.Type{
		ID: a10, VCPU: 8, MemoryGiB: 30, GPUs: 1, GPUModel: "A10", GPUMemGiB: 24,
		OnDemand: 9.5326, SpotMin: 2.145, SpotMax: 18.065,
	}, types[a10])
	for id, typ := range types {
		assert.Equal(t, id, typ.ID)
		assert.Positive(t, typ.VCPU, id)
		assert.Positive(t, typ.MemoryGiB, id)
		assert.Positive(t, typ.GPUs, id)
		assert.Positive(t, typ.GPUMemGiB, id)
	}
	delete(types, a10)
	assert.Contains(t, market.Catalogue(), a10, "the map belongs to the caller")
}

func TestPricesComeFromTheNearestPublishedPlace(t *testing.T) {
	tests := map[string]struct {
		instanceType, zone string
		listed             bool
		want               market.Price
		onDemand           float64
	}{
		"zone with spot":               {a10, heyuanA, true, market.Price{Spot: 3.003, OnDemand: 8.5794}, 8.5794},
		"zone without spot":            {a10, "cn-beijing-a", true, market.Price{OnDemand: 9.5326}, 9.5326},
		"unlisted zone of a region":    {a10, "cn-heyuan-z", false, market.Price{}, 8.5794},
		"unknown region":               {a10, "cn-nowhere-a", false, market.Price{}, 9.5326},
		"zone name without a dash":     {a10, "us-east-1z", false, market.Price{}, 15.144184},
		"type without a price":         {l20, heyuanA, false, market.Price{}, 0},
		"type that is no GPU instance": {"ecs.g7.large", heyuanA, false, market.Price{}, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, listed := market.ZonePrice(tt.instanceType, tt.zone)
			assert.Equal(t, tt.listed, listed)
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.onDemand, market.OnDemandPrice(tt.instanceType, tt.zone))
		})
	}
}

func TestSnapshotSellsWhatWasListed(t *testing.T) {
	m := market.Snapshot{}
	assert.Equal(t, market.Quote{Available: true, Capacity: market.Unlimited, Spot: 3.003, OnDemand: 8.5794},
		m.Quote(a10, heyuanA, start))
	assert.Equal(t, market.Quote{OnDemand: 9.5326}, m.Quote(a10, "cn-beijing-a", start))
	assert.Zero(t, m.Quote(l20, heyuanA, start))
	_, changes := m.NextChange(start)
	assert.False(t, changes)
}

func TestStaticKeepsWhatWasPinned(t *testing.T) {
	tests := map[string]struct {
		pin          func(*market.Static)
		instanceType string
		want         market.Quote
	}{
		"nothing pinned":      {func(*market.Static) {}, a10, market.Quote{Available: true, Capacity: -1, Spot: 3.003, OnDemand: 8.5794}},
		"stock":               {func(s *market.Static) { s.SetStock(a10, heyuanA, 7) }, a10, market.Quote{Available: true, Capacity: 7, Spot: 3.003, OnDemand: 8.5794}},
		"sold out":            {func(s *market.Static) { s.SetStock(a10, heyuanA, 0) }, a10, market.Quote{Spot: 3.003, OnDemand: 8.5794}},
		"price":               {func(s *market.Static) { s.SetPrice(a10, heyuanA, 1, 2, time.Time{}) }, a10, market.Quote{Available: true, Capacity: -1, Spot: 1, OnDemand: 2}},
		"no longer spot":      {func(s *market.Static) { s.SetPrice(a10, heyuanA, 0, 2, time.Time{}) }, a10, market.Quote{OnDemand: 2}},
		"unlisted, now sold":  {func(s *market.Static) { s.SetPrice(l20, heyuanA, 5, 20, time.Time{}) }, l20, market.Quote{Available: true, Capacity: -1, Spot: 5, OnDemand: 20}},
		"unlisted, but stock": {func(s *market.Static) { s.SetStock(l20, heyuanA, 5) }, l20, market.Quote{}},
		"another zone":        {func(s *market.Static) { s.SetStock(a10, heyuanB, 0) }, a10, market.Quote{Available: true, Capacity: -1, Spot: 3.003, OnDemand: 8.5794}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := market.NewStatic(nil)
			tt.pin(m)
			assert.Equal(t, tt.want, m.Quote(tt.instanceType, heyuanA, start))
		})
	}
}

func TestStaticMayBeChangedWhileItIsRead(t *testing.T) {
	m := market.NewStatic(nil)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Add(2)
		go func() {
			defer wg.Done()
			m.SetStock(a10, heyuanA, i)
			m.SetPrice(a10, heyuanA, float64(i), 10, time.Time{})
		}()
		go func() {
			defer wg.Done()
			m.Quote(a10, heyuanA, start)
			m.History(a10, heyuanA, start.Add(-time.Hour), start)
		}()
	}
	wg.Wait()
}

func TestScriptFollowsItsChanges(t *testing.T) {
	m := market.NewScript(nil, market.Timeline{Start: start}, []market.Change{
		{At: 30 * time.Minute, InstanceType: a10, Zone: heyuanA, Stock: ptr(4)},
		{At: 10 * time.Minute, Zone: heyuanA, Stock: ptr(0)}, // the list need not be in order
		{At: 30 * time.Minute, Stock: ptr(1)},
		{At: 40 * time.Minute, InstanceType: a10, Spot: ptr(2.0)},
		{At: 50 * time.Minute, InstanceType: l20, Zone: heyuanA, Spot: ptr(3.0), OnDemand: ptr(9.0)},
		{At: 60 * time.Minute, InstanceType: l20, Zone: heyuanA, Stock: ptr(market.Unlimited)},
	})
	tests := map[string]struct {
		instanceType, zone string
		minute             int
		want               market.Quote
	}{
		"before the first change":           {a10, heyuanA, 9, market.Quote{Available: true, Capacity: -1, Spot: 3.003, OnDemand: 8.5794}},
		"a change of the whole zone":        {a10, heyuanA, 10, market.Quote{Spot: 3.003, OnDemand: 8.5794}},
		"leaves other zones alone":          {a10, heyuanB, 10, market.Quote{Available: true, Capacity: -1, Spot: 2.145, OnDemand: 8.5794}},
		"the more exact of one time wins":   {a10, heyuanA, 30, market.Quote{Available: true, Capacity: 4, Spot: 3.003, OnDemand: 8.5794}},
		"a change of everything":            {a10, heyuanB, 30, market.Quote{Available: true, Capacity: 1, Spot: 2.145, OnDemand: 8.5794}},
		"a price keeps the stock":           {a10, heyuanA, 45, market.Quote{Available: true, Capacity: 4, Spot: 2, OnDemand: 8.5794}},
		"a type the snapshot does not sell": {l20, heyuanA, 55, market.Quote{Available: true, Capacity: 1, Spot: 3, OnDemand: 9}},
		"the last change holds for ever":    {l20, heyuanA, 9999, market.Quote{Available: true, Capacity: -1, Spot: 3, OnDemand: 9}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			at := start.Add(time.Duration(tt.minute) * time.Minute)
			assert.Equal(t, tt.want, m.Quote(tt.instanceType, tt.zone, at))
		})
	}

	var minutes []int
	for at, ok := m.NextChange(start.Add(-time.Hour)); ok; at, ok = m.NextChange(at) {
		minutes = append(minutes, int(at.Sub(start).Minutes()))
	}
	assert.Equal(t, []int{10, 30, 40, 50, 60}, minutes, "each moment of change is announced once")
}

const (
	twoZones  = "zone,tick,available\nwest,0,0\nwest,2,1\nwest,10,0\neast,0,1\n"
	twoPrices = "zone,tick,usd_per_hour\nwest,1,0.306\nwest,5,1.53\neast,1,3.06\n"
)

func trace(t *testing.T, base market.Market, opts market.TraceOptions) *market.Trace {
	t.Helper()
	m, err := market.NewTrace(base, opts, strings.NewReader(twoZones), strings.NewReader(twoPrices))
	require.NoError(t, err)
	return m
}

func TestTraceReplaysRecordedZones(t *testing.T) {
	m := trace(t, nil, market.TraceOptions{
		Timeline: market.Timeline{Start: start, Offset: market.Tick, Speed: 60},
		Zones:    map[string]string{heyuanA: "west", v100 + "/" + heyuanA: "east", "cn-beijing-a": "east"},
		PoolSize: 16,
	})
	real := market.Tick / 60 // one tick on the clock
	tests := map[string]struct {
		instanceType, zone string
		at                 time.Duration
		want               market.Quote
	}{
		"begins at the offset":                   {a10, heyuanA, 0, market.Quote{Spot: .858, OnDemand: 8.5794}},
		"becomes available":                      {a10, heyuanA, real, market.Quote{Available: true, Capacity: 16, Spot: .858, OnDemand: 8.5794}},
		"price moves":                            {a10, heyuanA, 4 * real, market.Quote{Available: true, Capacity: 16, Spot: 4.29, OnDemand: 8.5794}},
		"is lost":                                {a10, heyuanA, 9 * real, market.Quote{Spot: 4.29, OnDemand: 8.5794}},
		"stands still after the end":             {a10, heyuanA, 900 * real, market.Quote{Spot: 4.29, OnDemand: 8.5794}},
		"stands still before the beginning":      {a10, heyuanA, -900 * real, market.Quote{Available: false, Spot: .858, OnDemand: 8.5794}},
		"an offering may follow another zone":    {v100, heyuanA, 0, market.Quote{Available: true, Capacity: 16, Spot: 26.46, OnDemand: 26.46}},
		"sells spot where the snapshot does not": {a10, "cn-beijing-a", 0, market.Quote{Available: true, Capacity: 16, Spot: 9.533, OnDemand: 9.5326}},
		"unmapped zones follow the market below": {a10, heyuanB, 0, market.Quote{Available: true, Capacity: -1, Spot: 2.145, OnDemand: 8.5794}},
		"a type without any price cannot be had": {l20, heyuanA, real, market.Quote{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, m.Quote(tt.instanceType, tt.zone, start.Add(tt.at)))
		})
	}
}

func TestTraceAnnouncesEveryChangeAtAnySpeed(t *testing.T) {
	for _, speed := range []float64{0, .37, 1, 7, 60, 1234.5} {
		m, err := market.V100Trace(nil, market.TraceOptions{
			Timeline: market.Timeline{Start: start, Offset: 1234 * time.Second, Speed: speed},
			Zones:    map[string]string{heyuanA: "us-west-2b"},
		})
		require.NoError(t, err)

		announced, before := 0, start
		for at, ok := m.NextChange(start); ok; at, ok = m.NextChange(at) {
			require.Equal(t, m.Quote(v100, heyuanA, before), m.Quote(v100, heyuanA, at.Add(-time.Nanosecond)), "unannounced change")
			announced, before = announced+1, at
		}
		assert.Greater(t, announced, 150, "speed %v", speed)
	}
}

func TestEmbeddedTraceHasNineZones(t *testing.T) {
	for _, zone := range []string{
		"us-east-1a", "us-east-1c", "us-east-1d", "us-east-1f", "us-east-2a", "us-east-2b",
		"us-west-2a", "us-west-2b", "us-west-2c",
	} {
		_, err := market.V100Trace(nil, market.TraceOptions{Zones: map[string]string{heyuanA: zone}})
		assert.NoError(t, err, zone)
	}
}

func TestBrokenTracesNameTheCulprit(t *testing.T) {
	tests := map[string]struct{ availability, price, zone, want string }{
		"empty file":          {"", twoPrices, "west", "availability trace: no header line"},
		"missing column":      {"zone,tick\n", twoPrices, "west", `no column "available"`},
		"ragged line":         {"zone,tick,available\nwest,0\n", twoPrices, "west", "record on line 2"},
		"tick is no number":   {"zone,tick,available\nwest,x,1\n", twoPrices, "west", "line 2"},
		"negative tick":       {"zone,tick,available\nwest,-1,1\n", twoPrices, "west", "line 2"},
		"ticks go back":       {"zone,tick,available\nwest,5,1\nwest,5,0\n", twoPrices, "west", "line 3: tick 5 of west"},
		"neither 0 nor 1":     {"zone,tick,available\nwest,0,2\n", twoPrices, "west", "line 2"},
		"price below zero":    {twoZones, "zone,tick,usd_per_hour\nwest,0,-1\n", "west", "price trace: line 2"},
		"price is no number":  {twoZones, "zone,tick,usd_per_hour\nwest,0,NaN\n", "west", "price trace: line 2"},
		"zone not recorded":   {twoZones, twoPrices, "north", `zone "north" is not in the trace`},
		"zone without prices": {twoZones, "zone,tick,usd_per_hour\neast,0,1\n", "west", `zone "west" is not in the trace`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := market.NewTrace(nil, market.TraceOptions{Zones: map[string]string{heyuanA: tt.zone}},
				strings.NewReader(tt.availability), strings.NewReader(tt.price))
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

func TestLayersAnnounceTheEarlierChange(t *testing.T) {
	timeline := market.Timeline{Start: start}
	m := market.NewStatic(trace(t,
		market.NewScript(nil, timeline, []market.Change{{At: 3 * market.Tick, Stock: ptr(1)}, {At: 99 * market.Tick, Stock: ptr(2)}}),
		market.TraceOptions{Timeline: timeline, Zones: map[string]string{heyuanA: "west"}}))
	var ticks []int
	for at, ok := m.NextChange(start); ok; at, ok = m.NextChange(at) {
		ticks = append(ticks, int(at.Sub(start)/market.Tick))
	}
	assert.Equal(t, []int{1, 2, 3, 5, 10, 99}, ticks)
}

func TestHistoryIsHourlyInMarketTime(t *testing.T) {
	const speed = 3600 // a market hour is a second
	script := market.NewScript(nil, market.Timeline{Start: start, Speed: speed}, []market.Change{
		{At: 90 * time.Minute, InstanceType: a10, Spot: ptr(1.0)},
	})
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	point := func(s, spot float64) market.PricePoint {
		return market.PricePoint{At: at(s), Spot: spot, OnDemand: 8.5794}
	}
	tests := map[string]struct {
		from, to float64
		want     []market.PricePoint
	}{
		"full hours within":                {-1.5, 1.2, []market.PricePoint{point(-1, 3.003), point(0, 3.003), point(1, 3.003)}},
		"and now, if the price just moved": {.5, 1.6, []market.PricePoint{point(1, 3.003), point(1.6, 1)}},
		"now, where no full hour lies":     {1.2, 1.4, []market.PricePoint{point(1.4, 3.003)}},
		"both ends included":               {2, 3, []market.PricePoint{point(2, 1), point(3, 1)}},
		"nothing where it ends too early":  {3, 2, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, script.History(a10, heyuanA, at(tt.from), at(tt.to)))
			assert.Equal(t, tt.want, market.NewStatic(script).History(a10, heyuanA, at(tt.from), at(tt.to)))
		})
	}
	assert.Len(t, script.History(a10, heyuanA, start.AddDate(-1, 0, 0), start), market.HistoryHours+1, "30 days are kept")
	assert.Empty(t, script.History(a10, "cn-beijing-a", start.Add(-time.Hour), start), "not sold as spot")
}

func TestAdviceCountsLostHours(t *testing.T) {
	// Of every `period` hours the zone is up for all but the last.
	flapping := func(period int) market.Market {
		var changes []market.Change
		for h := 0; h <= market.HistoryHours; h++ {
			changes = append(changes, market.Change{At: time.Duration(h) * time.Hour, Stock: ptr((h + 1) % period)})
		}
		return market.NewScript(nil, market.Timeline{Start: start.Add(-market.HistoryHours * time.Hour)}, changes)
	}
	tests := map[string]struct {
		market market.Market
		zone   string
		bucket string
		rate   float64
		ratio  float64
	}{
		"never lost":       {market.Snapshot{}, heyuanA, "0-3", 0, .35},
		"once in 50 hours": {flapping(51), heyuanA, "0-3", 2, .35},
		"once in 25 hours": {flapping(26), heyuanA, "3-5", 4, .35},
		"once in 12 hours": {flapping(13), heyuanA, "5-10", 8.3, .35},
		"once in 4 hours":  {flapping(5), heyuanA, "10-100", 25, .35},
		"never up":         {flapping(1), heyuanA, "0-3", 0, .35},
		"not sold as spot": {market.Snapshot{}, "cn-beijing-a", "", 0, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := market.Advise(tt.market, a10, tt.zone, start)
			assert.Equal(t, tt.bucket, got.Bucket)
			assert.InDelta(t, tt.rate, got.InterruptionRate, .2)
			assert.InDelta(t, tt.ratio, got.Discount, .001)
		})
	}
}

func TestStockIsToldInCategories(t *testing.T) {
	for left, want := range map[int]string{
		market.Unlimited: "WithStock", 100: "WithStock", 3: "ClosedWithStock", 1: "ClosedWithStock", 0: "WithoutStock",
	} {
		assert.Equal(t, want, market.StockCategory(left), left)
	}
}

func TestTimelineMomentIsTheFirstThatSeesTheChange(t *testing.T) {
	for _, speed := range []float64{0, 1. / 3, 1, 3, 59.9, 86400} {
		line := market.Timeline{Start: start, Offset: 77 * time.Hour, Speed: speed}
		for _, elapsed := range []time.Duration{0, 1, market.Tick, 77 * time.Hour, 30 * 24 * time.Hour, math.MaxInt32} {
			at := line.Moment(elapsed)
			assert.GreaterOrEqual(t, line.Elapsed(at), elapsed)
			assert.Less(t, line.Elapsed(at.Add(-time.Microsecond)), elapsed, "not later than needed")
		}
	}
}
