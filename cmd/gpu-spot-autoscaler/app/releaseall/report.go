package releaseall

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/pricing"
)

const timeFormat = time.RFC3339

// Report is what the command has done, or would do.
type Report struct {
	DryRun    bool   `json:"dryRun,omitempty"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// ScaledFrom is how many replicas the Deployment had, zero if it had none already.
	ScaledFrom int32 `json:"scaledFrom,omitempty"`
	// Lease is what became of the leader's lease, empty if the command did not come so far.
	Lease string `json:"lease,omitempty"`
	Jobs  []Job  `json:"jobs"`
	Nodes []Node `json:"nodes"`
	// Pods is how many pods had a warning.
	Pods       int      `json:"pods"`
	ConfigMaps []string `json:"configMaps"`
	// Instances are those that stay, missing if they are not known.
	Instances *Instances `json:"instances,omitempty"`
	// Faults say what could not be released, beside the errors of jobs and Nodes.
	Faults []string `json:"faults"`
	// Notes say what else the operator has to know.
	Notes []string `json:"notes"`
}

// Job is a job that was held.
type Job struct {
	// Job is "<system>/<namespace>/<name>".
	Job string `json:"job"`
	// Held is suspended or shrunk, and Reason why it was.
	Held   string `json:"held"`
	Reason string `json:"reason,omitempty"`
	// Outcome is resumed, grows, has ended or stays suspended. The last is for jobs whose maximum wait was over.
	Outcome string `json:"outcome,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Node is a Node that something was removed from.
type Node struct {
	Name string `json:"name"`
	// Marks are what it had: reclaim, give-back, removal, scale-down or notes.
	Marks []string `json:"marks"`
	// Leaving is true if its instance is about to be released. Then it keeps its marks.
	Leaving bool `json:"leaving,omitempty"`
	// Faulty is true if its instance was to be given back because it is faulty. Then it stays cordoned.
	Faulty bool   `json:"faulty,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Instances are those of all pools, as the cost ledger had them last.
type Instances struct {
	Count int       `json:"count"`
	AsOf  time.Time `json:"asOf"`
	// PerHour is what they cost per hour, without those whose price is not known.
	PerHour  float64 `json:"perHour"`
	Currency string  `json:"currency,omitempty"`
	// Pools are the ids of the instances by scaling group.
	Pools map[string][]string `json:"pools"`
}

// failed returns whether anything could not be released.
func (r *Report) failed() bool {
	return len(r.Faults) > 0 || slices.ContainsFunc(r.Jobs, func(j Job) bool { return j.Error != "" }) ||
		slices.ContainsFunc(r.Nodes, func(n Node) bool { return n.Error != "" })
}

// write writes the report in the form.
func (r *Report) write(out io.Writer, form string) error {
	slices.SortFunc(r.Jobs, func(a, b Job) int { return cmp.Compare(a.Job, b.Job) })
	slices.SortFunc(r.Nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	if form == outputJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	}
	_, err := io.WriteString(out, r.text())
	return err
}

func (r *Report) text() string {
	var text strings.Builder
	line := func(head, format string, args ...any) {
		fmt.Fprintf(&text, "%-12s %s\n", head, fmt.Sprintf(format, args...))
	}
	if r.DryRun {
		line("Dry run:", "nothing was changed; this is what would be done.")
	}
	line("Autoscaler:", "%s/%s%s", r.Namespace, r.Name, r.scaled())
	r.jobLines(line)
	r.nodeLines(line)
	line("Pods:", "%d had the warning of a reclaim", r.Pods)
	line("State:", "%s", cmp.Or(strings.Join(r.ConfigMaps, ", "), "no ConfigMap")+" removed")
	if r.Lease != "" {
		line("Lease:", "%s", r.Lease)
	}
	r.instanceLines(line)
	for _, note := range r.Notes {
		line("Note:", "%s.", note)
	}
	for _, fault := range r.Faults {
		line("FAILED:", "%s.", fault)
	}
	return text.String()
}

func (r *Report) scaled() string {
	if r.ScaledFrom == 0 {
		return ""
	}
	return fmt.Sprintf(", scaled from %d replicas to 0", r.ScaledFrom)
}

func (r *Report) jobLines(line func(head, format string, args ...any)) {
	line("Jobs:", "%d were held", len(r.Jobs))
	for _, job := range r.Jobs {
		if job.Error != "" {
			line("", "%s FAILED, and stays %s: %s", job.Job, job.Held, job.Error)
			continue
		}
		line("", "%s %s", job.Job, job.Outcome+map[string]string{
			outcomeSuspended: ", because its maximum wait was over: only its owner resumes it", outcomeGrows: " to what it was",
		}[job.Outcome])
	}
}

func (r *Report) nodeLines(line func(head, format string, args ...any)) {
	line("Nodes:", "%d had marks", len(r.Nodes))
	for _, node := range r.Nodes {
		switch {
		case node.Error != "":
			line("", "%s FAILED, and keeps its marks (%s): %s", node.Name, strings.Join(node.Marks, ", "), node.Error)
		case node.Leaving:
			line("", "%s (%s) keeps them, because its instance is about to be released. If it is still there in twenty minutes, run this command again",
				node.Name, strings.Join(node.Marks, ", "))
		case node.Faulty:
			line("", "%s (%s) is faulty, and stays cordoned. Nobody gives its instance back any more: remove it yourself, or mend the Node and uncordon it: kubectl uncordon %s",
				node.Name, strings.Join(node.Marks, ", "), node.Name)
		default:
			line("", "%s (%s)", node.Name, strings.Join(node.Marks, ", "))
		}
	}
}

func (r *Report) instanceLines(line func(head, format string, args ...any)) {
	const pending = "A purchase that Alibaba Cloud has accepted is still delivered: see the scaling activities of the scaling groups"
	switch {
	case r.Instances == nil:
		line("Instances:", "those that were bought stay, and are paid for. It is not known which, because there is no cost ledger, or it could not be read. %s.", pending)
	case r.Instances.Count == 0:
		line("Instances:", "none, as of %s. %s.", r.Instances.AsOf.Format(timeFormat), pending)
	default:
		line("Instances:", "%d stay, and cost %s per hour, as of %s. %s. To remove what you do not need (with --region, if the CLI has another one):", r.Instances.Count,
			pricing.Amount(r.Instances.PerHour, r.Instances.Currency), r.Instances.AsOf.Format(timeFormat), pending)
		for _, pool := range slices.Sorted(maps.Keys(r.Instances.Pools)) {
			for batch := range slices.Chunk(r.Instances.Pools[pool], alicloud.MaxRemoveBatch) {
				line("", "%s", removal(pool, batch))
			}
		}
	}
}

// removal returns the command of Alibaba Cloud's CLI that removes the instances.
func removal(pool string, instances []string) string {
	command := "aliyun ess RemoveInstances --ScalingGroupId " + pool + " --RemovePolicy release"
	for i, id := range instances {
		command += fmt.Sprintf(" --InstanceId.%d %s", i+1, id)
	}
	return command
}
