package market

import (
	"math"
	"time"
)

// Timeline maps the caller's clock to market time, which may start anywhere in a trace and run faster than the clock.
type Timeline struct {
	// Start is the moment of the caller's clock at which market time is Offset.
	Start time.Time
	// Offset is the market time at Start: how far into a trace the simulation begins.
	Offset time.Duration
	// Speed is how many market seconds pass in one second of the clock; 0 means 1.
	Speed float64
}

func (t Timeline) speed() float64 {
	if t.Speed <= 0 {
		return 1
	}
	return t.Speed
}

// Elapsed returns the market time at a moment of the clock. It is negative before the market began.
func (t Timeline) Elapsed(at time.Time) time.Duration {
	return t.Offset + time.Duration(math.Floor(float64(at.Sub(t.Start))*t.speed()))
}

// Moment returns the earliest moment of the clock at which Elapsed is not below the given one.
func (t Timeline) Moment(elapsed time.Duration) time.Time {
	at := t.Start.Add(time.Duration(math.Floor(float64(elapsed-t.Offset)/t.speed())) - 1)
	// The division may round either way; a caller who wakes at a change must then really see it.
	for t.Elapsed(at) < elapsed {
		at = at.Add(1)
	}
	return at
}

// Hour returns how long one hour of market time takes on the clock.
func (t Timeline) Hour() time.Duration {
	return time.Duration(float64(time.Hour) / t.speed())
}
