package fault

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

const (
	// DefaultPeriod is how long a faulty Node is given at most, if its condition has no period of its own. It is twice that of a
	// reclaim: nobody takes the instance away meanwhile, and what runs on the GPUs that are left may save its work.
	DefaultPeriod = 10 * time.Minute

	// minPeriod and maxPeriod bound the periods. Deadlines of notices are an hour ahead at most.
	minPeriod, maxPeriod = time.Minute, time.Hour
)

// DefaultConditions are those that ACK's node-problem-detector sets for faults of a GPU that no restart mends: its documentation
// lists them as the conditions that lead to a hardware repair. Nobody repairs an instance that can be exchanged within minutes.
//
// Source: "Conditions that trigger auto repair (GPU-related)", Enable node auto repair, ACK documentation
// (https://www.alibabacloud.com/help/en/ack/ack-managed-and-ack-dedicated/user-guide/auto-repair).
var DefaultConditions = []string{
	"NvidiaDeviceLost", "NvidiaInfoRomCorrupted", "NvidiaPowerCableErr", "NvidiaRemappingRowsFailed", "NvidiaXID74Error", "NvidiaXID79Error",
}

// programXids are the Xids that a program causes, with a GPU that is well: 13 and 31 are accesses to memory that is not its own, 43 is a
// program that had to be ended, and 45 is what the driver logs whenever it cleans up after a program that was ended.
//
// Source: Xid Errors, NVIDIA (https://docs.nvidia.com/deploy/xid-errors/index.html): "XID 13: GR: SW Notify Error", "XID 31: Fifo: MMU
// Error", "XID 43: Reset Channel Verif Error" and "XID 45: OS: Preemptive Channel Removal". Its catalog has the application restarted for
// each of them.
var programXids = sets.New(13, 31, 43, 45)

// Conditions are the types of the conditions that are faults when they are True, with how long such a Node is given at most.
type Conditions map[corev1.NodeConditionType]time.Duration

// ParseConditions reads the elements of --node-fault-conditions, each <type> or <type>=<period>. The error names every element that makes
// no sense.
func ParseConditions(elements []string) (Conditions, error) {
	conditions := Conditions{}
	var errs []error
	for _, element := range elements {
		kind, period, err := parseCondition(strings.TrimSpace(element))
		if _, twice := conditions[kind]; err == nil && twice {
			err = errors.New("the condition is given twice")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%q: %w", element, err))
			continue
		}
		conditions[kind] = period
	}
	return conditions, errors.Join(errs...)
}

func parseCondition(element string) (corev1.NodeConditionType, time.Duration, error) {
	name, text, timed := strings.Cut(element, "=")
	kind, period := corev1.NodeConditionType(name), DefaultPeriod
	if problems := validation.IsQualifiedName(name); len(problems) > 0 {
		return "", 0, fmt.Errorf("the type of a condition %s", strings.Join(problems, ", "))
	}
	switch {
	case kind == corev1.NodeReady:
		return "", 0, fmt.Errorf("%s cannot be a fault: it is True on Nodes that are well", name)
	case notice.IsNotice(kind):
		return "", 0, fmt.Errorf("%s cannot be a fault: it is a reclaim notice already", name)
	case isOfProgram(name):
		return "", 0, fmt.Errorf("%s cannot be a fault: that Xid is an error of a program, not of the GPU", name)
	}
	if timed {
		var err error
		if period, err = time.ParseDuration(text); err != nil || period < minPeriod || period > maxPeriod {
			return "", 0, fmt.Errorf("the period must be a duration from %v to %v, such as %s=%v", minPeriod, maxPeriod, name, DefaultPeriod)
		}
	}
	return kind, period, nil
}

// Fault is what a condition says of a Node.
type Fault struct {
	Condition corev1.NodeCondition
	// Period is how long the Node is given at most.
	Period time.Duration
}

// Of returns the fault of the Node, and false if it has none. Of several the one with the shortest period counts.
func (c Conditions) Of(node *corev1.Node) (found Fault, faulty bool) {
	for _, condition := range node.Status.Conditions {
		period, listed := c[condition.Type]
		if !listed || condition.Status != corev1.ConditionTrue || isOfProgram(string(condition.Type), condition.Reason, condition.Message) {
			continue
		}
		if !faulty || period < found.Period {
			found, faulty = Fault{Condition: condition, Period: period}, true
		}
	}
	return found, faulty
}

// xid finds the number of an Xid in the names of conditions (NvidiaXID79Error, HasXid79) and in messages of the driver, which have the address
// of the device before it: "NVRM: Xid (PCI:0000:03:00): 79, pid=1". The SXids of NVSwitches have other numbers and are left out.
// Source: "Viewing Xid Error Messages" of the same document.
var xid = regexp.MustCompile(`(?:(?:^|[^sS])[xX]|sX)[iI][dD](?:\s+(?i:errors?))?(?:\s*\([^)]*\))?[\s:=#-]*(\d+)`)

// isOfProgram returns whether the texts name Xids, and none but those of a program.
func isOfProgram(texts ...string) bool {
	found := xid.FindAllStringSubmatch(strings.Join(texts, "\n"), -1)
	return len(found) > 0 && !slices.ContainsFunc(found, func(match []string) bool {
		number, err := strconv.Atoi(match[1])
		return err != nil || !programXids.Has(number)
	})
}
