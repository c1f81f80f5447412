package main

import (
	"context"
	"errors"
	"time"

	"k8s.io/utils/clock"
)

// pace is how time passes for an account.
type pace struct {
	clock clock.PassiveClock
	// pass returns when so much of the clock's time has passed.
	pass func(ctx context.Context, d time.Duration) error
	// speed is how many of the cloud's seconds pass in one of the clock's: 1 but for the simulator.
	speed float64
}

// realPace is that of a real account.
func realPace() *pace {
	return &pace{clock: clock.RealClock{}, pass: sleep, speed: 1}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// wait lets time of the cloud's pass.
func (p *pace) wait(ctx context.Context, d time.Duration) error {
	return p.pass(ctx, time.Duration(float64(d)/p.speed))
}

// since is how much of the cloud's time has passed.
func (p *pace) since(t time.Time) time.Duration {
	return time.Duration(float64(p.clock.Since(t)) * p.speed)
}

// until looks every few seconds until something holds, and returns how long that took; it gives up after most.
func (p *pace) until(ctx context.Context, most time.Duration, holds func() (bool, error)) (took time.Duration, err error) {
	return p.untilEvery(ctx, 5*time.Second, most, holds)
}

// untilEvery is until with another pause between looks, for what passes quickly.
func (p *pace) untilEvery(ctx context.Context, pause, most time.Duration, holds func() (bool, error)) (took time.Duration, err error) {
	for began := p.clock.Now(); ; {
		done, err := holds()
		took = p.since(began)
		if err != nil || done {
			return took, err
		}
		if took > most {
			return took, errTooLate
		}
		if err := p.wait(ctx, pause); err != nil {
			return took, err
		}
	}
}

var errTooLate = errors.New("it took too long")
