package podlist

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	testingclock "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

// natives knows one gang, that of the pods with the label "native" in the namespace of testutil's pods.
type natives struct{ NativeGang }

func (n natives) Find(pod *apiv1.Pod) NativeGang {
	if n.NameOf(pod) == "" {
		return NativeGang{}
	}
	return n.NativeGang
}

func (n natives) NameOf(pod *apiv1.Pod) string {
	if pod.Labels["native"] == "" || pod.Namespace != "ml" {
		return ""
	}
	return n.Name
}

func native(pod *apiv1.Pod) { testutil.Labelled("native", "true")(pod) }

func TestPodsOfNativeGangsAreDeferredUntilTheseAreComplete(t *testing.T) {
	declared, assumed := natives{NativeGang{Name: "ml/podgroups/g", Size: 4}}, natives{NativeGang{Name: "ml/pytorchjob/g", Size: 4, IsAssumed: true}}
	unread := natives{NativeGang{Name: "ml/podgroups/g", Size: UnknownSize}}
	gangSize := func(size string) testutil.PodOption {
		return testutil.Annotated("gpu-spot.autoscaling/gang-size", size)
	}
	elsewhere := func(pod *apiv1.Pod) { pod.Namespace = "other" }
	const long = assumedTime + time.Second
	for name, test := range map[string]struct {
		natives  natives
		pending  []*apiv1.Pod
		running  []*apiv1.Pod
		after    time.Duration // for which they are pending
		released int
		missing  int
		event    string
	}{
		"complete":       {natives: declared, pending: testutil.NewPods(4, "g", native), released: 4, missing: 4},
		"incomplete":     {natives: declared, pending: testutil.NewPods(3, "g", native), after: long, released: 0},
		"yet to be read": {natives: unread, pending: testutil.NewPods(4, "g", native, gangSize("2")), after: long, released: 0},
		"completed by pods that run": {natives: declared, pending: testutil.NewPods(1, "g", native), running: testutil.NewPods(3, "r", native, testutil.OnNode("n")),
			released: 1, missing: 1},
		"not completed by pods of another namespace": {natives: declared, pending: testutil.NewPods(3, "g", native),
			running: testutil.NewPods(1, "r", native, testutil.OnNode("n"), elsewhere), released: 0},
		"assumed, and incomplete for less than a minute": {natives: assumed, pending: testutil.NewPods(3, "g", native), after: assumedTime - time.Second, released: 0},
		"assumed, and incomplete for a minute":           {natives: assumed, pending: testutil.NewPods(3, "g", native), after: assumedTime, released: 3},
		"of fewer pods by their own word":                {natives: declared, pending: testutil.NewPods(2, "g", native, gangSize("2")), released: 2, missing: 2},
		"of more pods by their own word":                 {natives: declared, pending: testutil.NewPods(4, "g", native, gangSize("5")), released: 0},
		"no gang by their own word":                      {natives: declared, pending: testutil.NewPods(3, "g", native, gangSize("1")), released: 3},
		"with a wish that is no number":                  {natives: declared, pending: testutil.NewPods(3, "g", native, gangSize("two")), released: 0, event: "SpotGangMalformed"},
		"of another gang by their own word":              {natives: declared, pending: testutil.NewPods(2, "g", native, testutil.InGang("own", 2)), released: 2, missing: 2},
	} {
		t.Run(name, func(t *testing.T) {
			clk := testingclock.NewFakePassiveClock(testutil.Epoch)
			deferral := NewDeferral(Config{Inner: &chain{}, Arrivals: NewArrivals(clk), Natives: test.natives, Clock: clk})
			ctx, _, recorder := testutil.NewContext(append(test.running, test.pending...), nil)
			released, err := deferral.Process(ctx, slices.Clone(test.pending))
			require.NoError(t, err)
			if test.after > 0 {
				assert.Empty(t, released, "at first")
				clk.SetTime(testutil.Epoch.Add(test.after))
				released, err = deferral.Process(ctx, slices.Clone(test.pending))
				require.NoError(t, err)
			}
			assert.Len(t, released, test.released)
			_, missing := deferral.Missing(test.pending[0])
			assert.Equal(t, test.missing, missing)
			if test.event == "" {
				assert.Empty(t, recorder.Events)
			} else {
				assert.Contains(t, <-recorder.Events, test.event)
			}
		})
	}
}

func TestADeclarationCannotNameAGangOfAnotherNamespace(t *testing.T) {
	clk := testingclock.NewFakePassiveClock(testutil.Epoch)
	gang := NativeGang{Name: "ml/podgroups/g", Size: 2}
	deferral := NewDeferral(Config{Inner: &chain{}, Arrivals: NewArrivals(clk), Natives: natives{gang}, Clock: clk})
	pods := testutil.NewPods(2, "g", native)
	for _, name := range []string{gang.Name, "podgroups/g", "../" + gang.Name} {
		pods = append(pods, testutil.NewPod("foreign", testutil.Annotated("gpu-spot.autoscaling/gang-name", name), testutil.Annotated("gpu-spot.autoscaling/gang-size", "99"),
			func(pod *apiv1.Pod) { pod.Namespace = "other" }))
	}
	ctx, _, _ := testutil.NewContext(pods, nil)
	released, err := deferral.Process(ctx, pods)
	require.NoError(t, err)
	assert.Equal(t, []string{"g-0", "g-1"}, testutil.Names(released))
}

// renamed knows a gang by another name each time that it is asked.
type renamed struct{ asked *int }

func (r renamed) Find(*apiv1.Pod) NativeGang {
	return NativeGang{Name: r.NameOf(nil), Size: UnknownSize}
}

func (r renamed) NameOf(*apiv1.Pod) string {
	*r.asked++
	return "ml/jobset/g/" + strconv.Itoa(*r.asked)
}

func TestAGangThatIsReadInTheMiddleOfALoopIsStillDeferredInIt(t *testing.T) {
	clk := testingclock.NewFakePassiveClock(testutil.Epoch)
	deferral := NewDeferral(Config{Inner: &chain{}, Arrivals: NewArrivals(clk), Natives: renamed{new(int)}, Clock: clk})
	pods := testutil.NewPods(2, "g")
	ctx, _, _ := testutil.NewContext(pods, nil)
	released, err := deferral.Process(ctx, pods)
	require.NoError(t, err)
	assert.Empty(t, released)
}
