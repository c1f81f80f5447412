package report

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Core is how fast a core of the machine was during a measurement: the processor time that the same arithmetic took, again and again. Other
// programs on the machine have the arithmetic wait, which takes no processor time. So where it grows, the host gave less, or the cores
// share their caches or a clock with what runs beside.
type Core struct {
	Best float64 `json:"probe_best_ms"`
	P50  float64 `json:"probe_p50_ms"`
	P99  float64 `json:"probe_p99_ms"`
}

const (
	// probeEvery and probeRounds let the probe take about two thousandths of one core.
	probeEvery  = 5 * time.Second
	probeRounds = 5_000_000
)

// WatchCore probes a core until the returned function is called, which returns what was found.
func WatchCore(ctx context.Context) (stop func() Core) {
	ctx, cancel := context.WithCancel(ctx)
	found := make(chan Core, 1)
	go func() {
		runtime.LockOSThread() // the time is that of a thread
		defer runtime.UnlockOSThread()
		ticks := time.NewTicker(probeEvery)
		defer ticks.Stop()
		took := []float64{probe()}
		for {
			select {
			case <-ctx.Done():
				found <- Core{Percentile(took, 0), Percentile(took, 50), Percentile(took, 99)}
				return
			case <-ticks.C:
				took = append(took, probe())
			}
		}
	}()
	return func() Core {
		cancel()
		return <-found
	}
}

// probe returns the processor time of the arithmetic in milliseconds.
func probe() float64 {
	began := threadTime()
	state := uint64(began) | 1
	for range probeRounds { // xorshift: each round needs the one before it
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
	}
	ended := threadTime()
	if state == 0 { // never so; without it the compiler may leave the rounds out
		return 0
	}
	return float64(ended-began) / float64(time.Millisecond)
}

// threadTime is the processor time that this thread has taken.
func threadTime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		panic(err) // there is this clock on each Unix that x/sys has
	}
	return time.Duration(now.Nano())
}
