package finish

import "math"

// costOfSpot returns what it costs to finish on the offer, that takes so long to warm up, and after its loss.
func costOfSpot(o offer, warmUp, work, slack float64, afterLoss func(work, slack float64) float64) (sum float64) {
	for i := range o.lives {
		life := o.life(i)
		if life >= work+warmUp {
			sum += o.price * (work + warmUp)
		} else {
			sum += o.price*life + afterLoss(work-max(life-warmUp, 0), slack-min(life, warmUp))
		}
	}
	return sum / float64(len(o.lives))
}

// buy returns what it costs to finish on a new instance of the offer, and after its loss; infinity if there is no time to try.
func (t Terms) buy(o offer, work, slack float64, afterLoss func(work, slack float64) float64) float64 {
	if !t.allowsSpot(slack) {
		return math.Inf(1)
	}
	return costOfSpot(o.withProtection(t.Protected), float64(t.Restart), work, slack, afterLoss)
}

// seasons are the times, in restarts, of which the best is taken to wait until an offering has been up for longer.
var seasons = []float64{1, 2, 4, 8}

// afterSeason returns what it costs to finish if on-demand, that takes so long to warm up, is left for one of the offers at the best of some
// times, or never.
func (t Terms) afterSeason(offers []offer, warmUp, work, slack float64, afterLoss func(work, slack float64) float64) float64 {
	least := t.OnDemand * (work + warmUp)
	for _, o := range offers {
		for _, restarts := range seasons {
			ticks := restarts * float64(t.Restart)
			if stay := ticks - warmUp; stay >= 0 && stay < work {
				least = min(least, t.OnDemand*ticks+t.season(o, ticks, work-stay, slack-warmUp, afterLoss))
			}
		}
	}
	return least
}

// mature returns what it costs to finish if nothing runs until one of the offers has been up for longer, which then is of that age at most; infinity
// if there is none.
func (t Terms) mature(offers []offer, oldest, work, slack float64, afterLoss func(work, slack float64) float64) float64 {
	least := math.Inf(1)
	for _, o := range offers {
		for _, restarts := range seasons {
			ticks := restarts * float64(t.Restart)
			if o.age+ticks <= oldest && t.allowsSpot(slack-ticks) {
				least = min(least, t.ValueOfTime*ticks+t.season(o, ticks, work, slack-ticks, afterLoss))
			}
		}
	}
	return least
}

// season returns what it costs to finish from when an offer is taken that was waited for, unless it is lost by then.
func (t Terms) season(o offer, ticks, work, slack float64, afterLoss func(work, slack float64) float64) (cost float64) {
	later, kept := o.after(ticks)
	if kept < 1 {
		cost += (1 - kept) * afterLoss(work, slack)
	}
	if kept > 0 {
		cost += kept * t.buy(later, work, slack, afterLoss)
	}
	return cost
}
