package pricing

import "time"

const (
	// moveOverlap is how long both instances are taken to be paid for: until the spot instance is delivered, the job has saved its work, and the
	// on-demand instance is released.
	moveOverlap = 10 * time.Minute
	// moveFactor is how many times its cost a move has to save: how long the job goes on is a guess.
	moveFactor = 2
)

// Move is a job that may move from on-demand instances to spot ones. Money is per hour.
type Move struct {
	// OnDemand is what the on-demand instances cost that would be given back, Useful what an hour of useful work costs on spot in their place, and
	// Rest what the other instances of the job cost, which restarts as a whole.
	OnDemand, Useful, Rest float64
	// Losses is how many of the spot instances are lost per hour, each of which restarts the rest, too.
	Losses float64
	// Instances is how many instances the job has in all, and Others how many of them do not move.
	Instances, Others int
	// GoesOn is how long the job is taken to go on. Where nobody knows, that is the time for which it has run on demand: a job that moves once it
	// could have saved twice what the move costs never pays much more than one that knew. It is the rule of the ski rental problem (Karlin et al.,
	// "Competitive Snoopy Caching", Algorithmica 3, 1988).
	GoesOn time.Duration
}

// Pays returns whether the job is to move: if what it saves is twice what the move costs. That is a restart of the whole job, and both kinds of
// instances meanwhile.
func (m Move) Pays(t Terms) bool {
	value := t.ValueOfTime * float64(m.Instances)
	if t.ValueOfTime == 0 {
		value = m.OnDemand + m.Rest
	}
	cost := (value+m.Useful+m.Rest)*t.Restart.Hours() + m.Useful*moveOverlap.Hours()
	return m.IsWorthIt(t) && (m.OnDemand-m.useful(t))*m.GoesOn.Hours() >= moveFactor*cost
}

// IsWorthIt returns whether an hour on spot costs so much less than on demand that it is worth its risk, however long the job goes on.
func (m Move) IsWorthIt(t Terms) bool { return m.useful(t) < worthSpot*m.OnDemand }

// useful returns Useful with what each loss costs the others: what is paid for them meanwhile, and what their time is worth.
func (m Move) useful(t Terms) float64 {
	ofOthers := t.ValueOfTime * float64(m.Others)
	if t.ValueOfTime == 0 {
		ofOthers = m.Rest
	}
	return m.Useful + m.Losses*(m.Rest+ofOthers)*t.Restart.Hours()
}
