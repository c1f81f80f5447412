package intervals

import (
	"math"
	"time"
)

const (
	// shortest is the least interval that is advised.
	shortest = time.Minute
	// precision is what intervals are rounded to.
	precision = 10 * time.Second
	// tolerance is by which part of it an interval may differ from the one that was advised last, which stays then.
	tolerance = .2
)

// Interval returns how long a job trains best from one checkpoint to the next if it takes so long to save one, during which it does not
// train, and loses an instance once in a life on average. It is zero if no instance is lost.
//
// Source: J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future Generation Computer
// Systems 22 (2006), equation 37, which continues J. W. Young's √(2 × checkpoint × life).
func Interval(checkpoint, life time.Duration) time.Duration {
	if life <= 0 || checkpoint <= 0 {
		return 0
	}
	c, m := checkpoint.Seconds(), life.Seconds()
	seconds := m
	if c < 2*m {
		ratio := c / (2 * m)
		seconds = math.Sqrt(2*c*m)*(1+math.Sqrt(ratio)/3+ratio/9) - c
	}
	return max(shortest, time.Duration(seconds*float64(time.Second)).Round(precision))
}

// together returns how long none of the instances is lost on average, zero if none ever is.
func together(lives []time.Duration) time.Duration {
	rate := 0.
	for _, life := range lives {
		if life > 0 {
			rate += 1 / life.Seconds()
		}
	}
	if rate == 0 {
		return 0
	}
	return time.Duration(float64(time.Second) / rate)
}

// isClose returns whether the interval is worth no change of what was advised.
func isClose(advised, interval time.Duration) bool {
	return math.Abs(float64(interval-advised)) <= tolerance*float64(advised)
}
