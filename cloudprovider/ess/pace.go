package ess

import "time"

const (
	// instancesPerPage is how many instances one call lists.
	instancesPerPage = 100
	// freePages are listed as often as core likes. Each page more keeps the next listing off for pageCost, which is how
	// long the client needs to earn a call, going by its budget of 25 listing calls a second.
	freePages = 10
	pageCost  = time.Second / 25
)

// tooSoon says whether the last snapshot has to do for this loop. While pods are pending a loop follows the other within
// a fraction of a second; listing ten thousand instances each time would soon use up the budget of calls, and then each
// loop would stand still for four seconds before it buys. What is bought and removed meanwhile counts all the same. It
// is called by Refresh only.
func (p *Provider) tooSoon(now time.Time) bool {
	pages := (p.listed + instancesPerPage - 1) / instancesPerPage
	return now.Before(p.listedAt.Add(time.Duration(max(0, pages-freePages)) * pageCost))
}
