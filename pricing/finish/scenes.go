package finish

import "math"

// Steps of the grid of a sceneTable.
const (
	workStep  = 16
	slackStep = 4
)

// sceneTable is what it costs to finish without an instance, by the slack and by the work that is left. It is safe for concurrent use.
type sceneTable struct {
	terms Terms
	// lost is after an instance was lost, found is after offers came back. The first index is of the slack: that of index 0 is a
	// restart, and less of it is never enough.
	lost, found [][]float64
	// known is how many of their rows are computed.
	known int
}

// newSceneTable returns the table for jobs that lose instances in the one kind of scenes, and see offers come back in the other. Without
// any scenes there is on-demand only.
func newSceneTable(terms Terms, losses, returns []scene) *sceneTable {
	if len(losses) == 0 {
		losses = []scene{{}}
	}
	if len(returns) == 0 {
		returns = losses
	}
	rows, columns := (max(terms.Slack-terms.Restart, 0)+slackStep-1)/slackStep+1, (terms.Work+workStep-1)/workStep+1
	t := &sceneTable{terms: terms, lost: make([][]float64, rows), found: make([][]float64, rows)}
	for row := range rows {
		t.lost[row], t.found[row] = make([]float64, columns), make([]float64, columns)
		t.solve(row, losses, returns)
	}
	return t
}

// solve computes a row. A loss soon after a purchase leads to a slack between the row and the one below, so the row is computed twice: first
// by those below alone.
func (t *sceneTable) solve(row int, losses, returns []scene) {
	slack := float64(t.terms.Restart + row*slackStep)
	for pass := range 2 {
		t.known = max(row+pass, 1)
		for column := 1; column < len(t.lost[row]); column++ {
			work := float64(column * workStep)
			if row == 0 {
				t.lost[row][column] = t.terms.atOnce(work, slack)
				t.found[row][column] = t.lost[row][column]
				continue
			}
			t.lost[row][column], t.found[row][column] = t.mean(losses, work, slack), t.mean(returns, work, slack)
		}
	}
	t.known = row + 1
}

func (t *sceneTable) mean(scenes []scene, work, slack float64) (sum float64) {
	for _, s := range scenes {
		least := t.onDemand(s, t.terms.Restart, work, slack)
		for _, o := range s.offers {
			least = min(least, t.terms.buy(o, work, slack, t.afterLoss))
		}
		sum += min(least, t.wait(s, work, slack))
	}
	return sum / float64(len(scenes))
}

// at interpolates between the four values around it.
func (t *sceneTable) at(grid [][]float64, work, slack float64) float64 {
	restart := float64(t.terms.Restart)
	switch {
	case work <= 0:
		return 0
	case slack < restart:
		return t.terms.atOnce(work, slack)
	}
	row, x := split((slack-restart)/slackStep, t.known)
	column, y := split(work/workStep, len(grid[0]))
	value := between(grid[row][column], grid[row][column+1], y)
	if x > 0 {
		value = between(value, between(grid[row+1][column], grid[row+1][column+1], y), x)
	}
	return value
}

// between returns the value that is such a part of the way from a to b.
func between(a, b, part float64) float64 { return a*(1-part) + b*part }

// split returns the lower neighbour of x among so many, and how far x is beyond it: the last but one and 1 if x is beyond all of them.
func split(x float64, count int) (int, float64) {
	switch i := int(x); {
	case count < 2:
		return 0, 0
	case i >= count-1:
		return count - 2, 1
	default:
		return i, x - float64(i)
	}
}

// spot returns what it costs to finish on the offer, until it is lost, and then as cheaply as can be.
func (t *sceneTable) spot(o offer, warmUp int, work, slack float64) float64 {
	return costOfSpot(o, float64(warmUp), work, slack, t.afterLoss)
}

// afterLoss returns what it costs to finish when an instance was lost.
func (t *sceneTable) afterLoss(work, slack float64) float64 { return t.at(t.lost, work, slack) }

// stays are for how long it is looked at to stay on on-demand while there are offers.
var stays = []float64{8, 24, 72}

// onDemand returns what it costs to finish on on-demand, or to leave it at some time.
func (t *sceneTable) onDemand(s scene, warmUp int, work, slack float64) float64 {
	warm := float64(warmUp)
	least := t.terms.OnDemand * (work + warm)
	if len(s.outages) > 0 {
		return min(least, t.onDemandUntilFound(s.outages, warm, work, slack))
	}
	if len(s.offers) == 0 {
		return least
	}
	for _, stay := range stays {
		if stay < work {
			least = min(least, t.terms.OnDemand*(stay+warm)+t.afterLoss(work-stay, slack-warm))
		}
	}
	return min(least, t.terms.afterSeason(s.offers, warm, work, slack, t.afterLoss))
}

// onDemandUntilFound returns what it costs to finish on on-demand until there are offers again.
func (t *sceneTable) onDemandUntilFound(outages []float64, warmUp, work, slack float64) (sum float64) {
	for _, outage := range outages {
		on := max(outage, warmUp)
		if on-warmUp >= work {
			sum += t.terms.OnDemand * (work + warmUp)
		} else {
			sum += t.terms.OnDemand*on + t.at(t.found, work-(on-warmUp), slack-warmUp)
		}
	}
	return sum / float64(len(outages))
}

// patiences is how many times are looked at after which the wait for offers is given up.
const patiences = 6

// wait returns what it costs to finish if nothing runs until there are offers again, or on-demand once that takes too long: the best time
// to stop waiting, by how long outages lasted that were as long as this one already. Without an outage it is infinite.
func (t *sceneTable) wait(s scene, work, slack float64) float64 {
	least := math.Inf(1)
	longest := slack - float64(t.terms.Restart)
	for i := 1; i <= patiences && len(s.outages) > 0; i++ {
		patience := min(s.outages[(len(s.outages)-1)*i/patiences], longest)
		if patience > 0 {
			least = min(least, t.waitFor(patience, s.outages, work, slack))
		}
	}
	return least
}

func (t *sceneTable) waitFor(patience float64, outages []float64, work, slack float64) (sum float64) {
	var over []float64
	for _, outage := range outages {
		if outage <= patience {
			sum += t.terms.ValueOfTime*outage + t.at(t.found, work, slack-outage)
		} else {
			sum += t.terms.ValueOfTime * patience
			over = append(over, outage-patience)
		}
	}
	if len(over) > 0 {
		sum += float64(len(over)) * t.onDemandUntilFound(over, float64(t.terms.Restart), work, slack-patience)
	}
	return sum / float64(len(outages))
}
