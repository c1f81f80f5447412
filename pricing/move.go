package pricing

import "time"

const (
	// moveOverlap is how long both instances are taken to be paid for: until the spot instance is delivered, the job has saved its work, and the
	// on-demand instance is released.
	moveOverlap = 10 * time.Minute
	// moveFactor is how many times its cost a move has to save: how long the job goes on is a guess.
	moveFactor = 2
)

// MovePays returns whether a job that runs on demand for that price per hour is to move to spot, where an hour of useful work costs so much. It
// saves the difference for as long as the job goes on. It costs a restart, and both instances are paid for meanwhile.
//
// Where nobody knows how long that is, the time that it has run on demand stands for it: a job that moves once it could have saved twice the cost
// of the move never pays much more than one that knew. It is the rule of the ski rental problem (Karlin et al., "Competitive Snoopy Caching",
// Algorithmica 3, 1988).
func MovePays(onDemand, useful float64, goesOn time.Duration, t Terms) bool {
	value := t.ValueOfTime
	if value == 0 {
		value = onDemand
	}
	cost := (value+useful)*t.Restart.Hours() + useful*moveOverlap.Hours()
	return useful < worthSpot*onDemand && (onDemand-useful)*goesOn.Hours() >= moveFactor*cost
}
