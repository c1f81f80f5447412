package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"time"

	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/test/bench/report"
)

const (
	// poolsPage and instancesPage are the largest pages of ESS.
	poolsPage, instancesPage = 50, 100
	// pausePerPage lets the client earn back the budget of calls that a refresh used, as Cluster Autoscaler's scan interval
	// of 10 s does.
	pausePerPage = 45 * time.Millisecond
)

// refreshRow is about one refresh in the steady state: everything that rarely changes has been read, nothing is under
// way. Calls and bytes are those of the dearest of the repetitions, seconds are their median.
type refreshRow struct {
	Pools     int `json:"pools"`
	Instances int `json:"instances"`
	Calls     int `json:"calls"`
	// CallsBound is one per full page of pools and of instances.
	CallsBound int     `json:"calls_bound"`
	Seconds    float64 `json:"seconds"`
	// AllocBytes are all bytes that this process allocated meanwhile. The simulated cloud is another process.
	AllocBytes uint64 `json:"alloc_bytes"`
	Temper     string `json:"temper"`
}

// refreshDetail is one refresh.
type refreshDetail struct {
	Offerings  int            `json:"offerings"`
	Cold       bool           `json:"cold"`
	Calls      map[string]int `json:"calls"`
	Seconds    float64        `json:"seconds"`
	AllocBytes uint64         `json:"alloc_bytes"`
}

// measureRefresh refreshes a provider that begins knowing nothing. The first refresh, which also reads configurations,
// types, vSwitches and the latest activities of each pool, is in the details only.
func measureRefresh(ctx context.Context, s *session) (report.Report, error) {
	sizes := []struct{ pools, instances int }{{50, 1000}, {200, 10_000}}
	if s.quick {
		sizes = sizes[:1]
	}
	var rows []refreshRow
	var details []refreshDetail
	var aims []report.Aim
	for _, size := range sizes {
		s.logf("refresh: %d pools, %d instances", size.pools, size.instances)
		stopProfile, err := s.profileSelf(fmt.Sprintf("refresh-%d", size.instances))
		if err != nil {
			return report.Report{}, err
		}
		found, temper, err := refreshes(ctx, s, size.pools, size.instances, s.repetitions(5))
		if err := errors.Join(err, stopProfile()); err != nil {
			return report.Report{}, err
		}
		row := summarise(found[1:])
		row.Pools, row.Instances, row.Temper = size.pools, size.instances, temper
		row.CallsBound = pages(size.pools, poolsPage) + pages(size.instances, instancesPage)
		rows, details = append(rows, row), append(details, found...)
		aims = append(aims, report.AtMost(1.2*float64(row.CallsBound), float64(row.Calls), "calls at %d instances", row.Instances))
		if row.Instances == 10_000 {
			aims = append(aims, report.AtMost(.5, row.Seconds, "seconds at %d instances", row.Instances))
		}
	}
	return report.Report{Rows: rows, Aims: aims, Details: details}, nil
}

func pages(items, size int) int { return (items + size - 1) / size }

// refreshes returns the cold one and then the steady ones, and the temper of the cloud.
func refreshes(ctx context.Context, s *session, pools, instances, steady int) (found []refreshDetail, temper string, err error) {
	world := newWorld(pools, 3, 2, instances)
	for i := range world.Pools {
		world.Pools[i].Instances = instances / pools
	}
	p, err := newProvided(ctx, s.tempered(world))
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := p.expectInstances(ctx, instances); err != nil {
		return nil, "", err
	}
	for i := range steady + 1 {
		if i > 0 {
			if err := sleep(ctx, time.Duration(pages(instances, instancesPage))*pausePerPage); err != nil {
				return nil, "", err
			}
		}
		detail, err := refreshOnce(ctx, p)
		if err != nil {
			return nil, "", err
		}
		detail.Cold = i == 0
		found = append(found, detail)
	}
	return found, p.cloud.Temper, checkSizes(p.Provider, instances)
}

func (p *provided) expectInstances(ctx context.Context, n int) error {
	state, err := p.cloud.state(ctx)
	if err == nil && len(state.Instances) != n {
		err = fmt.Errorf("the simulated cloud began with %d instances, not %d", len(state.Instances), n)
	}
	return err
}

func refreshOnce(ctx context.Context, p *provided) (refreshDetail, error) {
	var detail refreshDetail
	calls, err := p.cloud.calls(ctx, func() error {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		err := p.Refresh()
		detail.Seconds = time.Since(began).Seconds()
		runtime.ReadMemStats(&after)
		detail.AllocBytes = after.TotalAlloc - before.TotalAlloc
		return err
	})
	detail.Calls, detail.Offerings = calls, len(p.NodeGroups())
	return detail, err
}

// checkSizes makes sure that what was measured had the right outcome.
func checkSizes(p *ess.Provider, instances int) error {
	total := 0
	for _, group := range p.NodeGroups() {
		size, err := group.TargetSize()
		if err != nil {
			return err
		}
		total += size
	}
	if total != instances {
		return fmt.Errorf("the provider counts %d instances, not %d", total, instances)
	}
	return nil
}

func summarise(found []refreshDetail) refreshRow {
	var row refreshRow
	var seconds []float64
	for _, detail := range found {
		seconds = append(seconds, detail.Seconds)
		row.Calls = max(row.Calls, total(detail.Calls))
		row.AllocBytes = max(row.AllocBytes, detail.AllocBytes)
	}
	row.Seconds = report.Percentile(seconds, 50)
	return row
}

func total(calls map[string]int) (sum int) {
	for n := range maps.Values(calls) {
		sum += n
	}
	return sum
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
