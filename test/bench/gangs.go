package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/market"
	"gpu-spot-autoscaler/test/bench/report"
	"gpu-spot-autoscaler/test/drill"
	"gpu-spot-autoscaler/test/rig"
)

const (
	gangSize = 4
	// leastStock and mostStock are between how many instances an offering has.
	leastStock, mostStock = 16, 64
	// gangsTimeout is after how long the rest of the gangs is not waited for.
	gangsTimeout = 5 * time.Minute
)

// gangsRow is about gangs of pods of one GPU each that are all created at once. Instances have one GPU too.
type gangsRow struct {
	Gangs     int `json:"gangs"`
	GangSize  int `json:"gang_size"`
	Offerings int `json:"offerings"`
	// RequestedPct is for how many of the GPUs the cloud accepted a purchase, and AllRequested how long that took; if it never did
	// for all, the time until the end. A gang whose purchase came short is asked for again after the others.
	RequestedPct float64 `json:"requested_pct"`
	AllRequested float64 `json:"all_requested_s"`
	// HeldPct is for how many there are purchases at the end that did not come short, and AllHeld how long it took until there were
	// for all; if there never were, the time until the end.
	HeldPct float64 `json:"held_pct"`
	AllHeld float64 `json:"all_held_s"`
	// Parallel says whether the scaling groups take several purchases at once.
	Parallel bool   `json:"parallel"`
	Temper   string `json:"temper"`
}

// gangsDetail is what else there is to know of a row.
type gangsDetail struct {
	gangsRow
	// Purchases are those accepted, Short those of them that came short.
	Purchases  int     `json:"purchases"`
	Short      int     `json:"short"`
	CPUSeconds float64 `json:"cpu_seconds"`
}

// measureGangs creates gangs at once over five pools whose offerings have few instances each: first with scaling groups that take
// several purchases at once, then with those of the temper.
func measureGangs(ctx context.Context, s *session) (r report.Report, err error) {
	gangs := 500
	if s.quick {
		gangs = 40
	}
	const pools, types, zones = 5, 10, 4
	const roomForAll = 2000
	sold := slices.DeleteFunc(soldTypes(), func(t market.Type) bool { return t.GPUs != 1 })
	world := func() alisim.World { return s.tempered(scarce(newWorldOf(sold, pools, types, zones, roomForAll))) }
	bench, err := newRig(ctx, s, "gangs", world())
	if err != nil {
		return r, err
	}
	defer bench.Stop()
	if err := stopControllers(ctx, bench); err != nil {
		return r, err
	}
	var rows []gangsRow
	var details []gangsDetail
	for _, parallel := range []bool{true, false} {
		w := world()
		if parallel {
			w.Temper = w.Temper.OrDefault()
			w.Temper.OneAtATime = false
		}
		s.logf("gangs: %d of %d pods, several purchases at once: %t", gangs, gangSize, parallel)
		detail, err := gangsOnce(ctx, s, bench, w, gangs)
		if err != nil {
			return r, fmt.Errorf("%d gangs: %w", gangs, err)
		}
		detail.Offerings, detail.Parallel = pools*types*zones, parallel
		rows, details = append(rows, detail.gangsRow), append(details, detail)
	}
	r.Rows, r.Details = rows, details
	r.Aims = []report.Aim{
		report.AtLeast(100, rows[0].RequestedPct, "requested_pct of %d gangs, several purchases at once", gangs),
		report.AtMost(60, rows[0].AllRequested, "all_requested_s of %d gangs, several purchases at once", gangs),
	}
	return r, nil
}

// scarce gives every offering of the world a limited number of instances.
func scarce(world alisim.World) alisim.World {
	for i := range world.Market.Script {
		world.Market.Script[i].Stock = ptr.To(leastStock + i*13%(mostStock-leastStock+1))
	}
	return world
}

func gangsOnce(ctx context.Context, s *session, bench *rig.Rig, world alisim.World, gangs int) (detail gangsDetail, err error) {
	if err := errors.Join(bench.ReplaceWorld(ctx, world), slowDown(bench)); err != nil {
		return detail, err
	}
	a, err := startAutoscaler(ctx, bench, s.flags()...)
	if err != nil {
		return detail, err
	}
	defer func() { err = errors.Join(err, a.Stop(), deletePods(ctx, bench)) }()
	stopProfile := s.profile(ctx, a, fmt.Sprintf("gangs-%d", gangs), 10*time.Second)
	defer stopProfile()
	before, err := report.CPUSeconds(a.PID())
	if err != nil {
		return detail, err
	}
	began := time.Now()
	if err := submitGangs(ctx, bench, gangs); err != nil {
		return detail, err
	}
	wanted := gangs * gangSize
	detail.gangsRow = gangsRow{Gangs: gangs, GangSize: gangSize, Temper: temperOf(bench.Cloud.Temper())}
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, gangsTimeout, true, func(context.Context) (bool, error) {
		spent := time.Since(began).Seconds()
		if detail.RequestedPct < 100 {
			detail.RequestedPct, detail.AllRequested = percent(min(askedFor(bench), wanted), wanted), spent
		}
		held := drill.Bought(drill.Purchases(bench, began))
		detail.HeldPct, detail.AllHeld = percent(min(held, wanted), wanted), spent
		return held >= wanted, nil
	})
	if err != nil && ctx.Err() != nil {
		return detail, ctx.Err()
	}
	after, err := report.CPUSeconds(a.PID())
	detail.CPUSeconds = after - before
	detail.Purchases, detail.Short = countPurchases(bench)
	return detail, err
}

// askedFor is how many instances the accepted purchases were for.
func askedFor(bench *rig.Rig) (instances int) {
	for _, pool := range bench.World.Pools {
		group, _ := bench.Cloud.Group(pool.ID)
		for _, activity := range group.Activities {
			instances += activity.Asked
		}
	}
	return instances
}

func countPurchases(bench *rig.Rig) (purchases, short int) {
	for _, pool := range bench.World.Pools {
		group, _ := bench.Cloud.Group(pool.ID)
		for _, activity := range group.Activities {
			purchases++
			if !activity.Ended.IsZero() && len(activity.Created) < activity.Asked {
				short++
			}
		}
	}
	return purchases, short
}

// submitGangs creates the pods of all gangs, gang by gang.
func submitGangs(ctx context.Context, bench *rig.Rig, gangs int) error {
	var creations errgroup.Group
	creations.SetLimit(submitters)
	for i := range gangs * gangSize {
		creations.Go(func() error {
			name := "gang-" + strconv.Itoa(i/gangSize)
			pod := trainingPod(metav1.OwnerReference{}, i)
			pod.OwnerReferences = nil
			pod.Labels = map[string]string{"job": name}
			pod.Annotations = map[string]string{api.AnnotationGangName: name, api.AnnotationGangSize: strconv.Itoa(gangSize)}
			_, err := bench.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
			return err
		})
	}
	return creations.Wait()
}
