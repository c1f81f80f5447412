// Package view shows a status to a person: as a page for a browser, and as text for a terminal. Both say the same.
package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpu-spot-autoscaler/cloudprovider/status"
)

// Path is where the page is served, and the nonResourceURL that a reader needs permission to get.
const Path = "/statusz"

// overview is a status in the words and figures that are shown.
type overview struct {
	Leader, Time, Read string
	// Verdict is the status in a few words, Good if all is well.
	Verdict string
	Good    bool
	// Nothing says why the replica describes nothing, so that there is nothing else: it does not lead, or cannot describe anything at present.
	Nothing   string
	Problems  []problem
	Figures   []figure
	Offerings table
	Pending   table
	Reclaims  table
	Jobs      table
	// Decisions are what would have been done in a dry run. Without one it has no rows and no text.
	Decisions table
}

// problem is something that somebody has to correct.
type problem struct{ Where, Text string }

// figure is a number and what it counts. Good and Bad colour it.
type figure struct {
	Value, Label string
	Good, Bad    bool
}

// table has a heading, a note about what is left out, and rows. A row is one cell per column.
type table struct {
	Title, Empty, Note string
	Columns            []column
	Rows               [][]string
}

// column is a column of a table. Those that are Minor are left out on a narrow screen.
type column struct {
	Name          string
	Number, Minor bool
}

// of returns what is shown of the status. Times are told as they are at the time of the status.
func of(s *status.Status) overview {
	o := overview{Leader: s.Leader, Time: s.Time.UTC().Format("2006-01-02 15:04:05 MST"), Nothing: nothing(s), Read: "not yet"}
	o.Verdict, o.Good = verdict(s)
	if s.Refreshed != nil {
		o.Read = short(s.Time.Sub(*s.Refreshed)) + " ago"
	}
	for _, p := range s.Problems {
		o.Problems = append(o.Problems, problem{cmp.Or(p.Pool, p.Source), p.Message})
	}
	o.Figures = figures(s)
	o.Offerings, o.Pending, o.Reclaims, o.Jobs = offerings(s), pending(s), reclaims(s), jobs(s)
	if s.DryRun != nil {
		o.Decisions = decisions(s)
	}
	return o
}

// leads returns whether the replica leads.
func leads(s *status.Status) bool { return s.Leader != "" && s.Leader == s.Replica }

// nothing returns why the replica describes nothing, "" if it does.
func nothing(s *status.Status) string {
	switch {
	case s.Leader == "":
		return s.Replica + " does not lead. No replica leads."
	case !leads(s):
		return s.Replica + " does not lead. " + s.Leader + " leads."
	case s.Undescribed:
		return s.Replica + " leads, and has nothing to tell: it has not listed the objects of the cluster yet, or is about to end."
	}
	return ""
}

// verdict returns the status in a few words, and whether all is well.
func verdict(s *status.Status) (words string, good bool) {
	switch n := len(s.Problems); {
	case !leads(s):
		return "does not lead", false
	case s.Undescribed:
		return "nothing to tell", false
	case n > 0:
		return fmt.Sprintf("%d %s", n, plural(n, "problem", "problems")), false
	case s.Refreshed == nil:
		return "pools not read yet", false
	}
	return "no problems", true
}

// figures returns those that are known.
func figures(s *status.Status) []figure {
	var live, bought, reclaiming int
	for i := range s.Pools {
		live, bought, reclaiming = live+s.Pools[i].Live, bought+s.Pools[i].Purchased, reclaiming+s.Pools[i].Reclaiming
	}
	reclaiming = max(reclaiming, len(s.Reclaims))
	var all []figure
	if s.Refreshed != nil {
		all = append(all, figure{fmt.Sprint(live), plural(live, "instance", "instances") + " in service", false, false},
			figure{fmt.Sprint(bought), "bought and not delivered yet", false, false})
	}
	if s.PendingUnknown == "" {
		all = append(all, figure{fmt.Sprint(s.PendingTotal), plural(s.PendingTotal, "pod waits", "pods wait"), false, false})
	}
	if s.Refreshed != nil || reclaiming > 0 {
		all = append(all, figure{fmt.Sprint(reclaiming), plural(reclaiming, "instance is", "instances are") + " reclaimed", false, reclaiming > 0})
	}
	if s.Spend == nil {
		return all
	}
	all = append(all, figure{money(s.Spend.PerHour, s.Currency), "an hour, for what is in service", false, false})
	if s.Spend.OnDemand > 0 {
		saved := 100 * (1 - s.Spend.Cost/s.Spend.OnDemand)
		all = append(all, figure{
			fmt.Sprintf("%.0f %%", saved),
			fmt.Sprintf("saved since %s: %s, on demand %s", s.Spend.Since.UTC().Format(time.DateOnly), money(s.Spend.Cost, s.Currency), money(s.Spend.OnDemand, s.Currency)),
			saved > 0, saved < 0,
		})
	}
	return all
}

func offerings(s *status.Status) table {
	t := table{Title: "Offerings", Empty: "There is nothing to buy from: no scaling group has the tags, or all have problems.", Columns: []column{
		{"Pool", false, true}, {"Instance type", false, false}, {"Zone", false, false}, {"Bought as", false, true}, {"Live", true, false}, {"Bought", true, true},
		{"Price", true, false}, {"Cap", true, true}, {"Useful hour", true, true}, {"State", false, false},
	}}
	if s.Refreshed == nil {
		t.Empty = "The pools have not been read yet."
	}
	type row struct {
		pool string
		status.Offering
	}
	var rows []row
	for i := range s.Pools {
		for _, offering := range s.Pools[i].Offerings {
			rows = append(rows, row{s.Pools[i].ID, offering})
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		if free := a.BlockedBy == ""; free != (b.BlockedBy == "") {
			if free {
				return -1
			}
			return 1
		}
		return cmp.Or(compare(cost(a.Offering), cost(b.Offering)), cmp.Compare(a.ID, b.ID))
	})
	for _, r := range rows {
		state := fmt.Sprintf("room for %d", r.Room)
		if r.BlockedBy != "" {
			state = "blocked: " + r.BlockedBy
		}
		t.Rows = append(t.Rows, []string{
			r.pool, r.InstanceType, r.Zone, r.PurchaseOption, fmt.Sprint(r.Live), fmt.Sprint(r.Purchased), known(r.Price), known(r.PriceCap), known(r.UsefulCost), state,
		})
	}
	if s.Currency != "" && len(rows) > 0 {
		t.Note = "Prices are in " + s.Currency + " per instance and hour; a useful hour has the expected losses in it."
	}
	return t
}

func pending(s *status.Status) table {
	t := table{Title: "Pods that wait", Empty: "No pod waits for an instance.", Columns: []column{{"Pod", false, false}, {"For", true, false}, {"Why", false, false}}}
	switch s.PendingUnknown {
	case "":
	case status.PendingUnknownServed:
		t.Empty = "With serve it is not known here which pods wait: ask the Cluster Autoscaler that is served."
	default:
		t.Empty = "It is not known which pods wait; the leader's log says why."
	}
	for _, pod := range s.Pending {
		t.Rows = append(t.Rows, []string{pod.Namespace + "/" + pod.Name, short(s.Time.Sub(pod.Since)), pod.Message})
	}
	if left := s.PendingTotal - len(s.Pending); left > 0 {
		t.Note = fmt.Sprintf("The oldest; %d more wait.", left)
	}
	return t
}

func reclaims(s *status.Status) table {
	t := table{Title: "Reclaims", Empty: "No Node is being reclaimed.", Columns: []column{
		{"Node", false, false}, {"Instance", false, true}, {"Phase", false, false}, {"Pods", true, false}, {"Released in", true, false}, {"Notice", false, true},
	}}
	if s.Refreshed == nil {
		t.Empty = "No Node is known to be reclaimed yet."
	}
	for _, r := range s.Reclaims {
		t.Rows = append(t.Rows, []string{r.Node, r.Instance, r.Phase, fmt.Sprint(r.Pods), left(s, r.Deadline), r.Source})
	}
	return t
}

func jobs(s *status.Status) table {
	t := table{Title: "Jobs that lose nodes", Columns: []column{
		{"Job", false, false}, {"System", false, true}, {"Phase", false, false}, {"Pods", true, false}, {"Time left", true, false}, {"Checkpoint", false, false},
	}}
	for _, j := range s.Jobs {
		saved := "not acknowledged"
		if j.Acknowledged {
			saved = "saved"
		}
		t.Rows = append(t.Rows, []string{j.Namespace + "/" + j.Name, j.System, j.Phase, fmt.Sprint(j.Pods), left(s, j.Deadline), saved})
	}
	return t
}

// decisions has the latest first.
func decisions(s *status.Status) table {
	t := table{Title: "Dry run: what would have been done", Empty: "This is a dry run: nothing is bought or removed. Nothing would have been done yet.", Columns: []column{
		{"Ago", true, false}, {"Pool", false, true}, {"Action", false, false}, {"Instances", true, false}, {"What", false, false},
	}}
	for _, d := range slices.Backward(s.DryRun.Decisions) {
		what := strings.Join(d.Instances, ", ")
		if what == "" {
			what = fmt.Sprintf("%s in %s (%s)", d.InstanceType, d.Zone, d.SpotStrategy)
		}
		t.Rows = append(t.Rows, []string{short(s.Time.Sub(d.Time)), d.Pool, d.Action, fmt.Sprint(d.Count), what})
	}
	return t
}

// cost is by what offerings are compared, nil if that is not known.
func cost(o status.Offering) *float64 {
	if o.UsefulCost != nil {
		return o.UsefulCost
	}
	return o.Price
}

// compare puts what is not known last.
func compare(a, b *float64) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return cmp.Compare(*a, *b)
}

func known(price *float64) string {
	if price == nil {
		return "–"
	}
	return fmt.Sprintf("%.2f", *price)
}

func money(amount float64, currency string) string {
	if currency == "" {
		return fmt.Sprintf("%.2f", amount)
	}
	return fmt.Sprintf("%.2f %s", amount, currency)
}

// left is the time until the deadline.
func left(s *status.Status, deadline time.Time) string {
	if d := deadline.Sub(s.Time); d > 0 {
		return short(d)
	}
	return "now"
}

// short is a duration in at most two units.
func short(d time.Duration) string {
	switch d = d.Round(time.Second); {
	case d < 0:
		return "0 s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %02d min", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%d days", d/(24*time.Hour))
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
