package drill

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

func TestFlagsThatMakeNoSenseAreRefused(t *testing.T) {
	for want, f := range map[string]flags{
		"-o xml: want text or json":       {nodes: []string{"a"}, output: "xml"},
		"--node: name the Node":           {output: outputText},
		"2 Nodes would be drilled at onc": {nodes: []string{"a", "b"}, output: outputText},
		"not until \"drained\"":           {nodes: []string{"a"}, output: outputText, until: "drained", notice: time.Minute},
		"takes from 10s to 1h0":           {nodes: []string{"a"}, output: outputText, until: "drain", notice: 2 * time.Hour},
	} {
		_, err := f.check()
		assert.ErrorContains(t, err, want)
	}
	nodes, err := flags{nodes: []string{"a", "a"}, output: outputJSON, until: "drain", notice: time.Minute}.check()
	assert.NoError(t, err)
	assert.Equal(t, []string{"a"}, nodes, "one Node twice is one")
	clk := testclock.NewFakeClock(time.Now())
	for want, f := range map[string]flags{
		"not until \"reboot\"":  {until: "reboot", notice: time.Minute},
		"takes from 10s to 1h0": {until: "drain", notice: time.Second},
	} {
		assert.ErrorContains(t, drill(t.Context(), f, []string{"a"}, fake.NewClientset(), clk, io.Discard), want)
	}
}

func TestNodesThatCannotBeDrilledAreLeftAlone(t *testing.T) {
	for want, change := range map[string]func(*corev1.Node){
		"no instance of Alibaba Cloud": func(node *corev1.Node) { node.Spec.ProviderID = "aws:///a/i-1" },
		"is on-demand":                 func(node *corev1.Node) { node.Labels = map[string]string{api.LabelSpotStrategy: "NoSpot"} },
		"there is a drill already":     func(node *corev1.Node) { node.Annotations = map[string]string{api.AnnotationDrill: "x"} },
		"it is reclaiming": func(node *corev1.Node) {
			node.Annotations = map[string]string{api.AnnotationReclaimDeadline: "2026-01-01T00:00:00Z"}
		},
		"is being given back": func(node *corev1.Node) { node.Annotations = map[string]string{api.AnnotationRemoved: "x"} },
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{ProviderID: "cn-hangzhou.i-a"}}
		assert.NoError(t, whyNot(node))
		change(node)
		client := fake.NewClientset(node)
		f := flags{until: "drain", notice: time.Minute}
		assert.ErrorContains(t, drill(t.Context(), f, []string{"a"}, client, testclock.NewFakeClock(time.Now()), io.Discard), want)
		for _, action := range client.Actions() {
			assert.Equal(t, "get", action.GetVerb(), want)
		}
	}
}

// No tick of the clock comes: the job has saved its work, and its Node is restored, before the next look.
func TestWhatHappensBetweenTwoLooksIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{ProviderID: "cn-hangzhou.i-a"}}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "train"}, Spec: corev1.PodSpec{NodeName: "a"}}
		client := fake.NewClientset(node, pod)
		update := func(annotations map[string]string) {
			pod.Annotations = map[string]string{api.AnnotationCheckpointRequest: "1-x-drill", api.AnnotationCheckpointAcknowledged: "1-x-drill"}
			_, err := client.CoreV1().Pods("n").Update(t.Context(), pod, metav1.UpdateOptions{})
			require.NoError(t, err)
			node.Annotations = annotations
			_, err = client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
			require.NoError(t, err)
			synctest.Wait()
		}
		var out bytes.Buffer
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = drill(t.Context(), flags{until: "checkpoint", notice: time.Minute, output: outputText}, []string{"a"}, client, testclock.NewFakeClock(time.Now()), &out)
		}()
		time.Sleep(time.Second) // the informers list; the clock of the drill stands still
		update(map[string]string{api.AnnotationDrill: "x", api.AnnotationReclaimDeadline: "2030-01-01T00:00:00Z", api.AnnotationReclaimSource: string(notice.SourceDrill)})
		update(nil)
		<-ended
		for _, step := range []string{"notice ", "mark ", "asked ", "acknowledged ", "restored "} {
			assert.Contains(t, out.String(), step)
		}
	})
}

func TestTheReportSaysWhatAJobWouldLose(t *testing.T) {
	var live, out bytes.Buffer
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	plan, err := notice.NewDrill(notice.UntilCheckpoint, now, time.Minute)
	require.NoError(t, err)
	tl := &timeline{drill: plan, began: now, now: func() time.Time { return now.Add(1500 * time.Millisecond) }, live: &live}
	d := &driller{plan: plan, nodes: []string{"a"}, timeline: tl, observer: newObserver(nil, testclock.NewFakeClock(now), plan, []string{"a"}, tl)}
	tl.add(stepMark, "a", "", "tainted and cordoned")
	d.observer.states["a"].over = true
	d.observer.endings["a"] = "missed: an acknowledgement did not come in time, 5s before its end."
	d.observer.jobs["1-x-drill"] = &job{Job{Namespace: "n", Kind: "PyTorchJob", Name: "late", Awaited: true, Outcome: OutcomeMissed,
		TrainingStep: ptr.To[int64](120), CheckpointStep: ptr.To[int64](100)}}
	d.observer.jobs["2-x-drill"] = &job{Job{Namespace: "n", Kind: "Pod", Name: "alone"}}
	report := d.report()
	assert.False(t, report.Completed)
	require.NoError(t, report.writeText(&out))
	assert.Equal(t, "   1.5s  mark          node a: tainted and cordoned, 58s left\n", live.String())
	assert.Equal(t, `
node a: missed: an acknowledgement did not come in time, 5s before its end.
Pod n/alone: nobody waits for it: none of its pods has the annotation gpu-spot.autoscaling/await-checkpoint
PyTorchJob n/late: it did not say in time that its work is saved; 20 steps of training would be lost (step 120, checkpoint of step 100)
`, out.String())
	out.Reset()
	require.NoError(t, report.writeJSON(&out))
	assert.NotContains(t, out.String(), "x-drill", "the id of a request is secret")
	var read Report
	require.NoError(t, json.Unmarshal(out.Bytes(), &read))
	assert.Equal(t, report, read)
}

func TestStepsAreNumbersThatOnlyGrow(t *testing.T) {
	var step *int64
	for _, text := range []string{"", "seven", "5", "3", "9"} {
		step = later(step, text)
	}
	assert.EqualValues(t, 9, *step)
}
