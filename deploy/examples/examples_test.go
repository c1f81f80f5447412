// Package examples_test runs the examples' code, which no compiler reads.
package examples_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	steps    = 400
	stepTime = 50 * time.Millisecond // of a run that is disturbed, so that there is something to disturb
)

// A run of this with -v prints the figures of README.md.
func TestATrainingLoopLosesNothingToAReclaim(t *testing.T) {
	for _, script := range []string{"pytorch/train.py", "etjob/train.py"} {
		for source, tell := range map[string]func(*podInfo, *nodeAgent){
			"downward-API file": func(p *podInfo, _ *nodeAgent) { p.request("1700000000-abc", time.Now().Add(5*time.Minute)) },
			"node-agent":        func(_ *podInfo, a *nodeAgent) { a.notice(time.Now().Add(5 * time.Minute)) },
		} {
			t.Run(script+" told by the "+source, func(t *testing.T) {
				t.Parallel()
				whole := losses(t, script)
				agent, info := newNodeAgent(t), newPodInfo(t)
				environment := []string{"GPU_SPOT_AGENT=" + agent.URL, "GPU_SPOT_DIR=" + info.directory}
				want := word{ID: "1700000000-abc"}
				if source == "node-agent" {
					environment[1] += "/none"
					want = word{Namespace: "team", Pod: "job-worker-0"}
				}
				checkpoint := filepath.Join(t.TempDir(), "model.json")

				run := train(t, script, checkpoint, environment, stepTime)
				run.until("step 5 ")
				noticed := time.Now()
				tell(info, agent)
				var saved int
				var took float64
				_, err := fmt.Sscanf(run.until("saved "), "step %d in %g s", &saved, &took)
				require.NoError(t, err)
				said := agent.next(t)
				latency := said.at.Sub(noticed)
				said.at = time.Time{}
				assert.Equal(t, want, said)
				assert.Equal(t, saved, stepOf(t, checkpoint), "the word comes when the checkpoint is there")
				run.until(fmt.Sprintf("step %d ", saved+3)) // the loop goes on until it is killed
				assert.Empty(t, agent.words, "one word is enough")
				run.kill()

				again := train(t, script, checkpoint, nil, 0)
				for step := saved + 1; step <= steps; step++ {
					assert.Equal(t, whole[step], again.until(fmt.Sprintf("step %d loss ", step)))
				}
				assert.Zero(t, again.ended())
				t.Logf("%s, told by the %s: word %.2f s after the notice, checkpoint in %.3f s, resumed at step %d with the losses of an undisturbed run",
					script, source, latency.Seconds(), took, saved+1)
			})
		}
	}
}

func train(t *testing.T, script, checkpoint string, environment []string, stepTime time.Duration) *process {
	t.Helper()
	return python(t, environment, script, "--checkpoint="+checkpoint, fmt.Sprintf("--steps=%d", steps), fmt.Sprintf("--step-time=%g", stepTime.Seconds()))
}

// losses are those of a run that nothing disturbs, by step.
func losses(t *testing.T, script string) map[int]string {
	t.Helper()
	run := train(t, script, filepath.Join(t.TempDir(), "model.json"), nil, 0)
	losses := map[int]string{}
	for step := 1; step <= steps; step++ {
		losses[step] = run.until(fmt.Sprintf("step %d loss ", step))
	}
	require.Zero(t, run.ended())
	return losses
}

func stepOf(t *testing.T, checkpoint string) int {
	t.Helper()
	text, err := os.ReadFile(checkpoint)
	require.NoError(t, err)
	var state struct{ Step int }
	require.NoError(t, json.Unmarshal(text, &state))
	return state.Step
}

// snippet is a script of the test's own; {} is the directory of the downward-API files.
func snippet(t *testing.T, agent *nodeAgent, info *podInfo, lines ...string) *process {
	t.Helper()
	return python(t, []string{"GPU_SPOT_AGENT=" + agent.URL, "GPU_SPOT_DIR=" + info.directory}, "-c", strings.Join(lines, "\n"))
}

func TestAPodLeavesWhenItsOwnNodeIsReclaimed(t *testing.T) {
	t.Parallel()
	const script = `
import gpu_spot, time
while True:
    print("leaving" if gpu_spot.leaving() else "staying")
    time.sleep(0.05)
`
	agent, info := newNodeAgent(t), newPodInfo(t)
	run := snippet(t, agent, info, script)
	run.until("staying")
	info.request("1-a", time.Now().Add(time.Minute))
	for range 40 { // four looks at the files
		require.Equal(t, "staying", <-run.lines)
	}
	info.leave("1-a", time.Now().Add(time.Minute))
	run.until("leaving")
	info.write("", "", "") // the notice is withdrawn
	run.until("staying")
	agent.notice(time.Now().Add(time.Minute))
	run.until("leaving")
}

const answerWhenAsked = `
import gpu_spot, time
while True:
    print("asked" if gpu_spot.should_checkpoint() else "left alone")
    if gpu_spot.should_checkpoint():
        print("taken" if gpu_spot.acknowledge() else "not taken")
    time.sleep(0.05)
`

func TestTheWordIsRepeatedUntilItIsTaken(t *testing.T) {
	t.Parallel()
	agent, info := newNodeAgent(t, http.StatusServiceUnavailable, http.StatusConflict, http.StatusTooManyRequests), newPodInfo(t)
	run := snippet(t, agent, info, answerWhenAsked)
	run.until("left alone")
	info.request("7-x", time.Now().Add(time.Minute))
	run.until("not taken")
	for range 4 {
		assert.Equal(t, "7-x", agent.next(t).ID)
	}
	run.leftAlone()
	assert.Empty(t, agent.words, "it was taken")
}

func TestTheWordWithoutAnIDIsNotRepeatedWhereNobodyWaits(t *testing.T) {
	t.Parallel()
	agent, info := newNodeAgent(t, http.StatusConflict), newPodInfo(t)
	agent.notice(time.Now().Add(time.Minute))
	info.directory += "/none"
	run := snippet(t, agent, info, answerWhenAsked)
	run.until("not taken")
	agent.next(t)
	run.leftAlone()
	assert.Empty(t, agent.words)
}

func TestEveryRequestIsAnsweredAndAFalseAlarmIsNone(t *testing.T) {
	t.Parallel()
	agent, info := newNodeAgent(t), newPodInfo(t)
	run := snippet(t, agent, info, answerWhenAsked)
	for _, id := range []string{"1-a", "2-b"} {
		info.request(id, time.Now().Add(time.Minute))
		assert.Equal(t, id, agent.next(t).ID)
	}
	info.write("", "", "")
	run.until("taken")
	run.until("taken")
	run.until("left alone")
	assert.Empty(t, agent.words)
}

// leftAlone waits as long as four tries to say a word would take, by the script's own clock.
func (p *process) leftAlone() {
	p.t.Helper()
	for range 40 {
		p.until("left alone")
	}
}

// The node-agent may know before the controller has asked. A checkpoint costs minutes with a large model, so that the
// request with its id is awaited for a while where one can come.
func TestTheIDIsWaitedForWhereItCanCome(t *testing.T) {
	t.Parallel()
	agent, info := newNodeAgent(t), newPodInfo(t)
	run := snippet(t, agent, info, answerWhenAsked)
	run.until("left alone")
	agent.notice(time.Now().Add(time.Minute))
	agent.answered(t)
	agent.answered(t) // the first may have been under way
	run.until("left alone")
	assert.Empty(t, agent.words)
	info.request("1-a", time.Now().Add(time.Minute))
	assert.Equal(t, "1-a", agent.next(t).ID)
}

func TestAWordWithoutAnIDIsRepeatedWithAnotherCheckpoint(t *testing.T) {
	t.Parallel()
	agent, info := newNodeAgent(t), newPodInfo(t)
	agent.notice(time.Now().Add(time.Minute))
	info.directory += "/none"
	run := snippet(t, agent, info, "import gpu_spot", "gpu_spot.REPEAT = 1.0", answerWhenAsked)
	first, second := agent.next(t), agent.next(t)
	assert.Equal(t, "job-worker-0", second.Pod)
	assert.GreaterOrEqual(t, second.at.Sub(first.at), 900*time.Millisecond)
	run.until("asked")
	run.until("left alone")
	run.until("asked")
}

func TestARankAsksItsOwnNodeAndNotTheLaunchers(t *testing.T) {
	t.Parallel()
	first := filepath.Join(t.TempDir(), "environ")
	require.NoError(t, os.WriteFile(first, []byte("PATH=/bin\x00NODE_IP=10.0.0.7\x00HOSTNAME=job-worker-3\x00"), 0o600))
	script := fmt.Sprintf("import gpu_spot; s = gpu_spot.Spot(pod_environment=%q); print(s.agent)", first)
	run := python(t, []string{"NODE_IP=10.0.0.1"}, "-c", script)
	assert.Equal(t, "10.0.0.7:8790", run.until("http://"))
}

func TestAskingCostsTheLoopNothing(t *testing.T) {
	agent, info := newNodeAgent(t), newPodInfo(t)
	run := snippet(t, agent, info, `
import gpu_spot, timeit
gpu_spot.should_checkpoint()
print("each", min(timeit.repeat(gpu_spot.should_checkpoint, number=20000, repeat=5)) / 20000)
`)
	seconds, err := strconv.ParseFloat(run.until("each "), 64)
	require.NoError(t, err)
	t.Logf("should_checkpoint takes %.1f µs", seconds*1e6)
	assert.Less(t, seconds, 100e-6)
}

// kubeaiScript is written for the KubeAI SDK, as far as its own calls go.
const kubeaiScript = `
import sys, time
from kubeai import elastic
elastic.PORT, elastic.HOLD = int(%q), 2.0
elastic.init()
step = 0
while True:
    step += 1
    time.sleep(0.02)
    print("step", step)
    if not elastic.check_alive():
        print("saved")
        sys.exit(-1)
`

func TestAScriptForKubeAIRunsUnchanged(t *testing.T) {
	tests := map[string]struct {
		environment []string
		stop        func(*testing.T, *process, *podInfo, string)
		word, held  bool
	}{
		"a reclaim of its node": {
			stop: func(_ *testing.T, _ *process, info *podInfo, _ string) {
				info.leave("9-z", time.Now().Add(time.Minute))
			},
			word: true, held: true,
		},
		"a word from Elastic-Job-Supervisor": {
			stop: func(t *testing.T, _ *process, _ *podInfo, port string) { stop(t, port) },
		},
		"a word from Elastic-Job-Supervisor after the reclaim of another node": {
			stop: func(t *testing.T, run *process, info *podInfo, port string) {
				info.request("9-z", time.Now().Add(time.Minute))
				run.steps(100)
				stop(t, port)
			},
			word: true,
		},
		"SIGTERM, on any rank": {
			environment: []string{"HOROVOD_RANK=1"},
			stop: func(t *testing.T, run *process, _ *podInfo, _ string) {
				require.NoError(t, run.cmd.Process.Signal(syscall.SIGTERM))
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			agent, info, number := newNodeAgent(t), newPodInfo(t), freePort(t)
			environment := append([]string{"GPU_SPOT_AGENT=" + agent.URL, "GPU_SPOT_DIR=" + info.directory}, test.environment...)
			run := python(t, environment, "-c", fmt.Sprintf(kubeaiScript, number))
			run.until("step 5")
			test.stop(t, run, info, number)
			run.until("saved")
			var said time.Time
			if test.word {
				last := agent.next(t)
				assert.Equal(t, "9-z", last.ID)
				said = last.at
			}
			assert.Equal(t, 255, run.ended())
			assert.Empty(t, agent.words)
			if test.held {
				assert.GreaterOrEqual(t, time.Since(said), 1900*time.Millisecond, "the rank stays for a while, so that the job is suspended first")
			}
		})
	}
}

// stop is what Elastic-Job-Supervisor sends.
func stop(t *testing.T, port string) {
	t.Helper()
	response, err := http.Get("http://127.0.0.1:" + port + "/stop")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
}

// steps waits until the script has trained so many steps more, each of 20 ms: 100 of them are four looks at the files.
func (p *process) steps(more int) {
	p.t.Helper()
	for range more {
		p.until("step ")
	}
}

// If rank 0 left whenever a node of the job is reclaimed, Horovod Elastic would blacklist its host, which nobody reclaims.
func TestARequestBecauseOfAnotherNodeLeavesRank0AliveAndItsWorkSaved(t *testing.T) {
	t.Parallel()
	agent, info, number := newNodeAgent(t), newPodInfo(t), freePort(t)
	script := strings.Replace(fmt.Sprintf(kubeaiScript, number), "elastic.init()", "elastic.init()\n"+
		`elastic.on_request(lambda: print("saved and training on"))`, 1)
	run := python(t, []string{"GPU_SPOT_AGENT=" + agent.URL, "GPU_SPOT_DIR=" + info.directory}, "-c", script)
	run.until("step 5")
	for _, id := range []string{"9-y", "9-z"} { // a job is asked again before the pods of the other node leave
		info.request(id, time.Now().Add(time.Minute))
		run.until("saved and training on")
		assert.Equal(t, id, agent.next(t).ID)
		run.steps(100)
	}
	assert.Empty(t, agent.words, "one checkpoint for each request")
	info.leave("9-z2", time.Now().Add(time.Minute))
	run.until("saved")
	assert.Equal(t, "9-z2", agent.next(t).ID)
	assert.Equal(t, 255, run.ended())
}

func TestAScriptThatCannotSaveWithoutEndingAcknowledgesNothingForAnotherNode(t *testing.T) {
	t.Parallel()
	agent, info, number := newNodeAgent(t), newPodInfo(t), freePort(t)
	run := python(t, []string{"GPU_SPOT_AGENT=" + agent.URL, "GPU_SPOT_DIR=" + info.directory}, "-c", fmt.Sprintf(kubeaiScript, number))
	run.until("step 5")
	info.request("9-z", time.Now().Add(time.Minute))
	run.steps(100)
	assert.Empty(t, agent.words)
}

func TestACheckpointThatFailsIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	agent, info, number := newNodeAgent(t), newPodInfo(t), freePort(t)
	script := strings.Replace(fmt.Sprintf(kubeaiScript, number), `print("saved")`, `raise OSError("no space left on device")`, 1)
	run := python(t, []string{"GPU_SPOT_AGENT=" + agent.URL, "GPU_SPOT_DIR=" + info.directory}, "-c", script)
	run.until("step 5")
	info.leave("9-z", time.Now().Add(time.Minute))
	assert.Equal(t, 1, run.ended())
	assert.Empty(t, agent.words)
}

// freePort is one that was free a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	return port
}

func TestOtherRanksAreNotToldOfARequest(t *testing.T) {
	t.Parallel()
	agent, info := newNodeAgent(t), newPodInfo(t)
	info.request("9-z", time.Now().Add(time.Minute))
	run := python(t, []string{"GPU_SPOT_AGENT=" + agent.URL, "GPU_SPOT_DIR=" + info.directory, "HOROVOD_RANK=1"},
		"-c", "from kubeai import elastic; print('alive' if elastic.check_alive() else 'not alive')")
	run.until("alive")
	assert.Zero(t, run.ended())
}
