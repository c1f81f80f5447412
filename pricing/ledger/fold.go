package ledger

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

const (
	// foldAfter is how long after its last pod a job keeps a line of its own. Then it is part of its namespace only.
	foldAfter = 7 * 24 * time.Hour
	// mostJobs, mostNamespaces and mostOfferings bound the lines, since a ConfigMap holds 1 MiB.
	mostJobs, mostNamespaces, mostOfferings = 2000, 1000, 1000
)

// other is the pool, or the namespace, of what has no line of its own.
const other = "(other)"

// fold removes the lines of jobs that ended long ago, and lines of which there are too many. Nothing is lost: namespaces have the amounts of
// their jobs already, and what is removed of the others is added up.
func (t *totals) fold(now time.Time) {
	for job, amounts := range t.jobs {
		if now.Sub(amounts.lastSeen) > foldAfter {
			delete(t.jobs, job)
		}
	}
	t.foldJobs()
	foldCheapest(t.namespaces, mostNamespaces, func(namespace string) string { return other })
	foldCheapest(t.offerings, mostOfferings, func(o Offering) Offering { return Offering{Pool: other, PurchaseOption: o.PurchaseOption} })
}

// foldJobs removes lines of the namespaces that have most of them, so that no namespace costs another its lines: of each those that ended
// first, and of these the cheapest.
func (t *totals) foldJobs() {
	excess := len(t.jobs) - mostJobs
	if excess <= 0 {
		return
	}
	lines := map[string][]Job{}
	for job := range t.jobs {
		lines[job.Namespace] = append(lines[job.Namespace], job)
	}
	for _, own := range lines { // the last is the first to go
		slices.SortFunc(own, func(a, b Job) int {
			one, two := t.jobs[a], t.jobs[b]
			return cmp.Or(two.lastSeen.Compare(one.lastSeen), cmp.Compare(two.Cost, one.Cost), cmp.Compare(a.Name, b.Name))
		})
	}
	for range excess {
		most := ""
		for namespace, own := range lines {
			if len(own) > len(lines[most]) || len(own) == len(lines[most]) && namespace < most {
				most = namespace
			}
		}
		own := lines[most]
		delete(t.jobs, own[len(own)-1])
		lines[most] = own[:len(own)-1]
	}
}

// foldCheapest adds up lines of the least cost, if there are too many, to those that rest returns for them.
func foldCheapest[K comparable](lines map[K]Amounts, most int, rest func(K) K) {
	if len(lines) <= most {
		return
	}
	keys := slices.SortedFunc(maps.Keys(lines), func(a, b K) int { return cmp.Compare(lines[a].Cost, lines[b].Cost) })
	for _, key := range keys {
		sum := rest(key)
		if len(lines) <= most {
			return
		}
		if sum == key {
			continue
		}
		lines[sum] = lines[sum].plus(lines[key])
		delete(lines, key)
	}
}
