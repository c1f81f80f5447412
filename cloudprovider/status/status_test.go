package status

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
)

// documented are the fields that a section of the manual names, from its heading to the next.
func documented(t *testing.T, text, heading string) sets.Set[string] {
	t.Helper()
	_, section, found := strings.Cut(text, heading+"\n\n| field")
	require.True(t, found, heading)
	section, _, _ = strings.Cut(section, "\n\n")
	fields := sets.New[string]()
	for _, row := range regexp.MustCompile(`(?m)^\| (`+"`"+`[^|]*) \|`).FindAllStringSubmatch(section, -1) {
		for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[1], -1) {
			fields.Insert(name[1])
		}
	}
	return fields
}

func TestTheManualExplainsEveryFieldAndNoOther(t *testing.T) {
	text, err := os.ReadFile("../../docs/status.md")
	require.NoError(t, err)
	for heading, of := range map[string]any{
		"are in `cloudprovider/status`.": Status{}, "A pool:": Pool{}, "An offering:": Offering{}, "A purchase:": Purchase{},
		"A reclaim:": Reclaim{}, "A job:": JobReclaim{}, "A pod that waits:": PendingPod{}, "What is spent:": Spend{}, "A problem:": Problem{},
		"A dry run:": DryRun{}, "A decision:": Decision{},
	} {
		fields := sets.New[string]()
		for i := range reflect.TypeOf(of).NumField() {
			name, _, _ := strings.Cut(reflect.TypeOf(of).Field(i).Tag.Get("json"), ",")
			require.NotEmpty(t, name, "%T", of)
			fields.Insert(name)
		}
		assert.Equal(t, sets.List(fields), sets.List(documented(t, string(text), heading)), heading)
	}
	for _, value := range []string{
		APIVersion, Kind, Path, BlockedOutOfOrder, BlockedRetired, BlockedPrice, BlockedSpend, BlockedStock, BlockedSize,
		PendingUnknownServed, PendingUnknownFailed, PhaseNoticed, PhaseDraining, PhaseDrained, JobPhaseWarning, JobPhaseWaiting, JobPhaseDeciding, JobPhaseLeaving,
	} {
		assert.Contains(t, string(text), "`"+value+"`")
	}
}

// Readers of every language have to understand them.
func TestFieldsAreOfPlainKinds(t *testing.T) {
	var look func(kind reflect.Type)
	look = func(kind reflect.Type) {
		switch {
		case kind == reflect.TypeFor[time.Time]():
		case kind.Kind() == reflect.Pointer, kind.Kind() == reflect.Slice:
			look(kind.Elem())
		case kind.Kind() == reflect.Struct:
			for i := range kind.NumField() {
				look(kind.Field(i).Type)
			}
		default:
			assert.Contains(t, []reflect.Kind{reflect.String, reflect.Int, reflect.Bool, reflect.Float64}, kind.Kind(), kind)
		}
	}
	look(reflect.TypeFor[Status]())
}
