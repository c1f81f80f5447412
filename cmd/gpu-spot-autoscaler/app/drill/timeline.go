package drill

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"gpu-spot-autoscaler/cloudprovider/api"
	outcomes "gpu-spot-autoscaler/cloudprovider/reclaim/drill"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

var everything = labels.Everything()

// Steps of a drill.
const (
	stepNotice       = "notice"       // the Node says that there is a drill
	stepMark         = "mark"         // the leader has tainted and cordoned the Node
	stepAsked        = "asked"        // the pods of a job have the request for a checkpoint
	stepAcknowledged = "acknowledged" // a job says that its work is saved
	stepMissed       = "missed"       // a job has not said so in time
	stepUnprepared   = "unprepared"   // a job could be neither shrunk nor suspended
	stepEvicted      = "evicted"      // a pod was evicted
	stepDrained      = "drained"      // the Node is without pods
	stepReplacement  = "replacement"  // a Node that was bought since is ready
	stepOvertaken    = "overtaken"    // a notice has taken the place of the drill
	stepRestored     = "restored"     // the marks are taken off the Node
)

// Outcomes of the request to a job.
const (
	OutcomeAcknowledged = "acknowledged" // it said that its work is saved
	OutcomeMissed       = "missed"       // it did not say so in time
	OutcomeNotAwaited   = "not awaited"  // its pods do not say that an acknowledgement will come
	OutcomeOpen         = "open"         // the drill was over before
)

// Step is something that happened.
type Step struct {
	// At is when it was seen, Seconds how long after the begin, and Left how many seconds before the release.
	At      time.Time `json:"at"`
	Seconds float64   `json:"seconds"`
	Left    float64   `json:"left"`
	Step    string    `json:"step"`
	Node    string    `json:"node,omitempty"`
	// Object is the job or the pod.
	Object string `json:"object,omitempty"`
	Text   string `json:"text"`
}

// Job is what a drill found out about a job.
type Job struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	// Awaited is true if one of its pods says that an acknowledgement will come.
	Awaited bool   `json:"awaited"`
	Outcome string `json:"outcome"`
	// TrainingStep is the last step that the job reported, CheckpointStep that of its last checkpoint, and StepsLost what lies between them: it
	// would be trained again. They are missing for jobs that do not report them.
	TrainingStep   *int64 `json:"trainingStep,omitempty"`
	CheckpointStep *int64 `json:"checkpointStep,omitempty"`
	StepsLost      *int64 `json:"stepsLost,omitempty"`
}

func (j Job) String() string { return fmt.Sprintf("%s %s/%s", j.Kind, j.Namespace, j.Name) }

// Node is how the drill of a Node has ended.
type Node struct {
	Name    string `json:"name"`
	Outcome string `json:"outcome"`
	Text    string `json:"text"`
	// Restored is true if the Node is as before.
	Restored bool `json:"restored"`
}

// Report is all of it.
type Report struct {
	Until notice.Until `json:"until"`
	Begin time.Time    `json:"begin"`
	End   time.Time    `json:"end"`
	// Completed is true if all Nodes came to what the drill was to go until.
	Completed bool   `json:"completed"`
	Nodes     []Node `json:"nodes"`
	Jobs      []Job  `json:"jobs"`
	Steps     []Step `json:"steps"`
}

// timeline has the steps, and prints each when it is entered.
type timeline struct {
	drill notice.Drill
	began time.Time
	now   func() time.Time
	live  io.Writer
	steps []Step
}

// aims are what is said at the beginning of a drill.
var aims = map[notice.Until]string{
	notice.UntilCheckpoint: "until the jobs have acknowledged their checkpoint. Nothing is evicted (that takes --until=drain).",
	notice.UntilDrain:      "until it is without pods.",
}

func (t *timeline) introduce(nodes []string) {
	fmt.Fprintf(t.live, "Drill of %s %s\nThe instance stays. It is over at %s at the latest; interrupt it to end it now.\n\n", strings.Join(nodes, ", "), aims[t.drill.Until],
		t.drill.End.UTC().Format(time.RFC3339))
}

func (t *timeline) add(step, node, object, text string) {
	at := t.now()
	s := Step{At: at.UTC(), Seconds: seconds(at.Sub(t.began)), Left: seconds(t.drill.End.Sub(at)), Step: step, Node: node, Object: object, Text: text}
	t.steps = append(t.steps, s)
	fmt.Fprintf(t.live, "%6.1fs  %-13s %s: %s, %.0fs left\n", s.Seconds, s.Step, strings.Join(strings.Fields(object+" "+nodeUnless(object, node)), " "), text, max(s.Left, 0))
}

// nodeUnless returns the Node, and nothing if there is an object to name.
func nodeUnless(object, node string) string {
	if object != "" {
		return ""
	}
	return "node " + node
}

func seconds(d time.Duration) float64 {
	return float64(d.Round(100*time.Millisecond)) / float64(time.Second)
}

// report returns what the drill has found out.
func (d *driller) report() Report {
	r := Report{Until: d.plan.Until, Begin: d.plan.Begin, End: d.plan.End, Completed: true, Nodes: []Node{}, Jobs: []Job{}, Steps: d.timeline.steps}
	for _, name := range d.nodes {
		node := d.observer.ending(name)
		r.Completed = r.Completed && node.Outcome == string(outcomes.Completed)
		r.Nodes = append(r.Nodes, node)
	}
	for _, j := range d.observer.jobs {
		switch {
		case j.Outcome != "":
		case j.Awaited:
			j.Outcome = OutcomeOpen
		default:
			j.Outcome = OutcomeNotAwaited
		}
		if j.TrainingStep != nil && j.CheckpointStep != nil {
			lost := max(*j.TrainingStep-*j.CheckpointStep, 0)
			j.StepsLost = &lost
		}
		r.Jobs = append(r.Jobs, j.Job)
	}
	slices.SortFunc(r.Jobs, func(a, b Job) int { return strings.Compare(a.String(), b.String()) })
	return r
}

// ending returns how the drill of the Node has ended.
func (o *observer) ending(name string) Node {
	state, text := o.states[name], o.endings[name]
	outcome, _, known := strings.Cut(text, ":")
	switch {
	case state.takenBy != "":
		outcome, text = string(outcomes.Overtaken), "a notice has come ("+state.takenBy+")"
	case !known:
		outcome, text = "unknown", "no Event says how it has ended"
	default:
		_, text, _ = strings.Cut(text, ": ")
	}
	return Node{Name: name, Outcome: outcome, Text: text, Restored: state.over && state.takenBy == ""}
}

func (r Report) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// writeText writes what is left to say after the steps.
func (r Report) writeText(w io.Writer) error {
	var b strings.Builder
	b.WriteString("\n")
	for _, node := range r.Nodes {
		fmt.Fprintf(&b, "node %s: %s: %s\n", node.Name, node.Outcome, node.Text)
	}
	for _, j := range r.Jobs {
		fmt.Fprintf(&b, "%s: %s\n", j, j.sentence())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (j Job) sentence() string {
	said := map[string]string{
		OutcomeAcknowledged: "its work was saved in time",
		OutcomeMissed:       "it did not say in time that its work is saved",
		OutcomeNotAwaited:   "nobody waits for it: none of its pods has the annotation " + api.AnnotationAwaitCheckpoint,
		OutcomeOpen:         "the drill was over before it said that its work is saved",
	}[j.Outcome]
	if j.StepsLost != nil {
		said += fmt.Sprintf("; %d steps of training would be lost (step %d, checkpoint of step %d)", *j.StepsLost, *j.TrainingStep, *j.CheckpointStep)
	}
	return said
}
