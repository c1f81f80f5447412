package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"gpu-spot-autoscaler/test/drill"
)

// verdict is what came of it. All but the kills should be zero.
type verdict struct {
	Kills int `json:"kills"`
	// Unmarked are reclaiming nodes that were not marked while they lived, or not to their end, and nodes that live marked.
	Unmarked int `json:"unmarked"`
	// Late are reclaiming nodes that had pods at their deadline.
	Late int `json:"late"`
	// JobsBroken are neither whole nor suspended, or, under a real operator, did not end as if nothing had happened.
	JobsBroken int `json:"jobs_broken"`
	// DoubleBuys are instances bought beyond those that were lost.
	DoubleBuys int `json:"double_buys"`

	Seed uint64 `json:"seed"`
	// Unwarned are pods that had to go without a warning.
	Unwarned int `json:"unwarned"`
	// Jobs counts them by their state.
	Jobs map[drill.State]int `json:"jobs"`
	// Systems are the real operators' jobs, by their kind.
	Systems map[drill.Kind]*ends `json:"systems,omitempty"`
	// Moments say when each kill hit, and at which step.
	Moments []string `json:"moments"`
	// Faults name what is wrong.
	Faults  []string `json:"faults,omitempty"`
	Seconds float64  `json:"seconds"`
}

// judge goes by what was seen. reclaiming has when each instance is released.
func judge(reclaiming map[string]time.Time, nodes map[string]drill.Node, pods []drill.Pod, purchases []drill.Purchase, jobs map[string]drill.State) verdict {
	v := verdict{Jobs: map[drill.State]int{}}
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		deadline, isReclaiming := reclaiming[id]
		v.judgeNode(nodes[id], isReclaiming, deadline)
	}
	for id := range reclaiming {
		if _, seen := nodes[id]; !seen {
			v.Unmarked++
			v.fault("instance %s has no node", id)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(jobs)) {
		v.Jobs[jobs[name]]++
		if state := jobs[name]; isBroken(state) {
			v.JobsBroken++
			v.fault("%s is %s", name, state)
		}
	}
	for _, pod := range pods {
		if !pod.Deleting.IsZero() && pod.Node != "" && pod.Warned.IsZero() {
			v.Unwarned++
			v.fault("%s on node %s had to go without a warning at %s; last seen with request %q",
				pod.NamespacedName, pod.Node, pod.Deleting.Format(time.TimeOnly), pod.Request)
		}
	}
	if extra := drill.Bought(purchases) - len(reclaiming); extra > 0 {
		v.DoubleBuys = extra
		v.fault("%d instances were bought for %d", drill.Bought(purchases), len(reclaiming))
	}
	return v
}

func isBroken(state drill.State) bool { return state != drill.Whole && state != drill.Suspended }

func (v *verdict) judgeNode(node drill.Node, reclaiming bool, deadline time.Time) {
	switch {
	case !reclaiming && node.Tainted && node.Gone.IsZero():
		v.Unmarked++
		v.fault("node %s lives and is marked", node.Name)
	case !reclaiming:
		return
	case node.Marked.IsZero() || node.Marked.After(deadline):
		v.Unmarked++
		v.fault("node %s was not marked while it lived", node.Name)
	case !node.Tainted:
		v.Unmarked++
		v.fault("node %s lost its mark", node.Name)
	}
	switch {
	case node.Busy > 0:
		v.Late++
		v.fault("node %s never got empty", node.Name)
	case node.Emptied.After(deadline):
		v.Late++
		v.fault("node %s was empty %.1f s after its deadline", node.Name, node.Emptied.Sub(deadline).Seconds())
	}
}

func (v *verdict) fault(format string, args ...any) {
	v.Faults = append(v.Faults, fmt.Sprintf(format, args...))
}

// failure is nil where all is well.
func (v *verdict) failure() error {
	if v.Unmarked+v.Late+v.JobsBroken+v.DoubleBuys == 0 {
		return nil
	}
	return fmt.Errorf("seed %d:\n  %s", v.Seed, strings.Join(v.Faults, "\n  "))
}

func (v *verdict) write(path string) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func (v *verdict) print(w io.Writer) {
	fmt.Fprintf(w, "\n%d kills, %d unmarked, %d late, %d jobs broken, %d double buys (seed %d, %.0f s)\n",
		v.Kills, v.Unmarked, v.Late, v.JobsBroken, v.DoubleBuys, v.Seed, v.Seconds)
	for _, state := range slices.Sorted(maps.Keys(v.Jobs)) {
		fmt.Fprintf(w, "  %d jobs %s\n", v.Jobs[state], state)
	}
	for _, kind := range slices.Sorted(maps.Keys(v.Systems)) {
		of := v.Systems[kind]
		fmt.Fprintf(w, "  %s: %d jobs, %d complete, %d restarts counted\n", kind, of.Jobs, of.Complete, of.Restarts)
	}
	fmt.Fprintf(w, "  %d pods had to go without a warning\n", v.Unwarned)
}
