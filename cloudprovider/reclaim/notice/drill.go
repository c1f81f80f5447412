package notice

import (
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
)

// Until says how far a drill goes.
type Until string

const (
	// UntilCheckpoint: until the jobs have acknowledged that their work is saved. Nothing is evicted.
	UntilCheckpoint Until = "checkpoint"
	// UntilDrain: until the Nodes are without pods.
	UntilDrain Until = "drain"
)

// Bounds of the length of a drill. Deadlines of notices are an hour ahead at most.
const (
	MinDrill = 10 * time.Second
	MaxDrill = maxAhead
)

// DrillSuffix ends the id of a request for a checkpoint that is a rehearsal, so that the next leader, and the job, know that. In the id
// of a request for the last checkpoint something follows it.
const DrillSuffix = "-drill"

// IsOfDrill returns whether the id is that of a request for a checkpoint that is a rehearsal.
func IsOfDrill(id string) bool { return strings.Contains(id, DrillSuffix) }

// Drill is a rehearsal of a reclaim, as it stands on a Node.
type Drill struct {
	Until      Until
	Begin, End time.Time
}

// NewDrill returns a drill that begins now. The error says what makes no sense.
func NewDrill(until Until, now time.Time, length time.Duration) (Drill, error) {
	begin := now.UTC().Truncate(time.Second)
	d := Drill{Until: until, Begin: begin, End: begin.Add(length).Truncate(time.Second)}
	return d, d.check()
}

// String returns the drill as api.AnnotationDrill has it.
func (d Drill) String() string {
	return fmt.Sprintf("%s %s/%s", d.Until, d.Begin.UTC().Format(time.RFC3339), d.End.UTC().Format(time.RFC3339))
}

// ParseDrill reads the value of api.AnnotationDrill.
func ParseDrill(text string) (d Drill, err error) {
	until, interval, _ := strings.Cut(text, " ")
	begin, end, ok := strings.Cut(interval, "/")
	if !ok {
		return Drill{}, fmt.Errorf("%q is no drill, such as %q", text, "checkpoint 2006-01-02T15:04:05Z/2006-01-02T15:09:05Z")
	}
	d.Until = Until(until)
	var errs [2]error
	d.Begin, errs[0] = time.Parse(time.RFC3339, begin)
	d.End, errs[1] = time.Parse(time.RFC3339, end)
	if err := errors.Join(errs[:]...); err != nil {
		return Drill{}, fmt.Errorf("%q is no drill: %w", text, err)
	}
	return d, d.check()
}

func (d Drill) check() error {
	if d.Until != UntilCheckpoint && d.Until != UntilDrain {
		return fmt.Errorf("a drill goes until %s or %s, and not until %q", UntilCheckpoint, UntilDrain, d.Until)
	}
	if length := d.End.Sub(d.Begin); length < MinDrill || length > MaxDrill {
		return fmt.Errorf("a drill takes from %v to %v, and not %v", MinDrill, MaxDrill, length)
	}
	return nil
}

// DrillOf returns the drill that stands on the Node, and false if none does. The error says what is wrong with it.
func DrillOf(node *corev1.Node) (d Drill, found bool, err error) {
	text, found := node.Annotations[api.AnnotationDrill]
	if !found {
		return Drill{}, false, nil
	}
	d, err = ParseDrill(text)
	return d, true, err
}

// RefuseDrill returns why the drill that stands on the Node does not begin, and nil if it may, or if none stands there.
func RefuseDrill(node *corev1.Node, clk clock.PassiveClock) error {
	d, found, err := DrillOf(node)
	now := clk.Now()
	switch {
	case !found || err != nil:
		return err
	case cluster.IsOnDemand(node):
		return errors.New("an on-demand instance is never reclaimed")
	case !now.Before(d.End):
		return fmt.Errorf("it was to end at %s, and it is %s", d.End.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case d.End.Sub(now) > maxAhead:
		return fmt.Errorf("it is to end at %s, and it is only %s; is the clock right of the machine that it was started from?", d.End.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}

// drillSource is the annotation of the command drill.
type drillSource struct{ clock clock.PassiveClock }

// Announcement leaves out drills that may not begin. Package drill takes those off the Node, as it does those that are over.
func (s drillSource) Announcement(node *corev1.Node) (Announcement, bool) {
	d, found, err := DrillOf(node)
	if !found || err != nil || RefuseDrill(node, s.clock) != nil {
		return Announcement{}, false
	}
	return Announcement{Source: SourceDrill, Deadline: d.End, At: d.Begin, Until: d.Until}, true
}

// IsDrill returns whether the notice is a rehearsal, and no other source says that the instance goes.
func (n Notice) IsDrill() bool { return n.Source == SourceDrill }

// IsMove returns whether jobs are to move away from the instance, which nobody takes.
func (n Notice) IsMove() bool { return n.Source == SourceMove }

// Yields returns whether the instance would stay but for the notice: any other notice takes its place, no pod is deleted for it, and the Node is
// restored if it comes to nothing.
func (n Notice) Yields() bool { return n.IsDrill() || n.IsMove() }

// IsGivenBack returns whether the autoscaler gives the instance back itself once the Node is drained.
func (n Notice) IsGivenBack() bool { return n.Source == SourceFault || n.IsMove() }

// Evicts returns whether pods are to be evicted for the notice at all: not in a drill that ends with the checkpoint, nor in one that
// is over and whose Node is about to be restored.
func (n Notice) Evicts() bool { return !n.IsDrill() || n.Until == UntilDrain }

// Prefix is what the messages of Events begin with: it marks those of a drill.
func (n Notice) Prefix() string { return PrefixOf(n.IsDrill()) }

// PrefixOf returns what the messages of Events begin with, in a drill and otherwise.
func PrefixOf(drill bool) string {
	if drill {
		return "DRILL: "
	}
	return ""
}
