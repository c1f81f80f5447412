package e2e

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/test/rig"
)

// The training loops of deploy/examples run as the processes of two pods that a simulated kubelet only pretends to run, beside
// the real node-agent. A run of this with -v prints the figures of their README.
func TestTheTrainingLoopsOfTheExamplesSaveTheirWorkBeforeTheirPodsGo(t *testing.T) {
	interpreter, err := exec.LookPath("python3")
	require.NoError(t, err, "make test installs it")
	w := newWorld(spotPool("asg-1", 10))
	w.RequireIMDSv2 = true
	w.NoticePeriod = metav1.Duration{Duration: 4 * time.Minute} // longer than this test waits for anything
	s := newSuite(t, w)
	s.InstallNodeAgent(t)
	s.RunAutoscaler(t, "--reclaim-poll-interval=1s")

	var loops []*loop
	for _, script := range []string{"pytorch/train.py", "etjob/train.py"} {
		pod := rig.GPUPod(strings.ReplaceAll(strings.TrimSuffix(script, ".py"), "/", "-"), 1)
		pod.Annotations = map[string]string{api.AnnotationAwaitCheckpoint: "true"}
		s.Submit(t, pod)
		loops = append(loops, &loop{script: script, pod: pod})
	}
	for _, l := range loops {
		s.awaitRunning(l.pod)
		runTrainingLoop(s, interpreter, l)
	}
	for _, l := range loops {
		l.noticed = time.Now()
		require.NoError(t, s.Cloud.Reclaim(instanceOf(nodeOfPod(s, l.pod.Name))))
	}
	for _, l := range loops {
		s.eventually("pod "+l.pod.Name+" is told to end", func(ctx context.Context) (bool, error) {
			pod, err := s.pod(ctx, l.pod.Name)
			return pod == nil || pod.DeletionTimestamp != nil, err
		})
		gone := time.Since(l.noticed)
		select {
		case saved := <-l.saved:
			assert.FileExists(t, l.checkpoint)
			t.Logf("%s: asked and saved %.1f s after the notice, told to end %.1f s after it", l.script, saved.Sub(l.noticed).Seconds(), gone.Seconds())
		default:
			t.Errorf("%s was told to end before it had saved its work", l.script)
		}
	}
	s.awaitEvent("SpotCheckpointAcknowledged")
	missed, err := s.Events(t.Context(), "SpotCheckpointMissed")
	require.NoError(t, err)
	assert.Empty(t, missed)
}

// loop is a process that trains.
type loop struct {
	script, checkpoint string
	pod                *corev1.Pod
	noticed            time.Time
	saved              chan time.Time // when it said that it saved its work
}

// runTrainingLoop runs the script as the process of the pod, beside the agent of its node, and returns when it trains.
func runTrainingLoop(s *suite, interpreter string, l *loop) {
	s.t.Helper()
	node := nodeOfPod(s, l.pod.Name)
	agent := s.RunNodeAgent(s.t, node, instanceOf(node))
	s.GivePodAddress(s.t, l.pod, rig.PodAddress)
	podInfo := s.t.TempDir()
	updateDownwardAPIFiles(s, l.pod.Name, podInfo)
	l.checkpoint = filepath.Join(s.t.TempDir(), "model.json")

	examples := filepath.Join("..", "..", "deploy", "examples")
	cmd := exec.Command(interpreter, "-u", filepath.Join(examples, l.script), "--checkpoint="+l.checkpoint,
		"--steps=100000", "--step-time=0.05", "--save-every=1000000")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+examples, "PYTHONDONTWRITEBYTECODE=1",
		"GPU_SPOT_AGENT="+agent.URL, "GPU_SPOT_DIR="+podInfo, "POD_NAMESPACE="+l.pod.Namespace, "POD_NAME="+l.pod.Name)
	cmd.Stderr = s.t.Output()
	out, err := cmd.StdoutPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, cmd.Start())
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	trains := make(chan struct{})
	l.saved = make(chan time.Time, 100)
	go func() { // ends with the process
		lines := bufio.NewScanner(out)
		if lines.Scan() {
			close(trains)
		}
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "saved ") {
				l.saved <- time.Now()
			}
		}
	}()
	select {
	case <-trains:
	case <-time.After(soon):
		s.t.Fatalf("%s does not train", l.script)
	}
}

// updateDownwardAPIFiles keeps the files of the pod in line with its annotations, as its kubelet would, until the test ends. Which
// files those are is what the shipped manifest says.
func updateDownwardAPIFiles(s *suite, pod, directory string) {
	s.t.Helper()
	items := downwardAPIFiles(s, "pytorch/job.yaml")
	require.Len(s.t, items, 3)
	watcher, err := s.Client.CoreV1().Pods(metav1.NamespaceDefault).Watch(s.t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + pod})
	require.NoError(s.t, err)
	s.t.Cleanup(watcher.Stop)
	go func() { // ends with the watch
		for event := range watcher.ResultChan() {
			now, ok := event.Object.(*corev1.Pod)
			if !ok {
				return
			}
			for file, annotation := range items {
				path := filepath.Join(directory, file)
				if err := os.WriteFile(path+".tmp", []byte(now.Annotations[annotation]), 0o600); err == nil {
					_ = os.Rename(path+".tmp", path) // a file that is not there is seen by the loop, and the test fails
				}
			}
		}
	}()
}

// downwardAPIFiles is which annotation an example has in which file.
func downwardAPIFiles(s *suite, example string) map[string]string {
	s.t.Helper()
	items := map[string]string{}
	for _, object := range exampleObjects(s.t, example) {
		volumes, _, err := unstructured.NestedSlice(object.Object, "spec", "pytorchReplicaSpecs", "Worker", "template", "spec", "volumes")
		require.NoError(s.t, err)
		for _, volume := range volumes {
			files, _, err := unstructured.NestedSlice(volume.(map[string]any), "downwardAPI", "items")
			require.NoError(s.t, err)
			for _, file := range files {
				path, _, _ := unstructured.NestedString(file.(map[string]any), "path")
				field, _, _ := unstructured.NestedString(file.(map[string]any), "fieldRef", "fieldPath")
				items[path] = strings.TrimSuffix(strings.TrimPrefix(field, "metadata.annotations['"), "']")
			}
		}
	}
	return items
}
