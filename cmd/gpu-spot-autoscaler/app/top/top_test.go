package top

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/kubeconfig/kubeconfigtest"
)

// answers are what the leader says to one request after the other.
type answers struct {
	mu    sync.Mutex
	said  []string
	asked []string
}

func (a *answers) Get(_ context.Context, path string, _ map[string]string) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, path)
	said := a.said[min(len(a.asked), len(a.said))-1]
	if reason, failed := strings.CutPrefix(said, "error: "); failed {
		return nil, errors.New(reason)
	}
	return []byte(said), nil
}

// screen is a terminal that a test may read meanwhile.
type screen struct {
	mu    sync.Mutex
	drawn bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drawn.Write(p)
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drawn.String()
}

func TestALiveViewOutlivesAChangeOfTheLeader(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	leader := &answers{said: []string{`{"replica": "a", "leader": "a"}`, "error: no replica leads", `{"replica": "b", "leader": "b"}`}}
	clk, shown, done := clocktesting.NewFakeClock(time.Now()), &screen{}, make(chan error)
	go func() { done <- live(ctx, leader, time.Second, clk, shown) }()
	for _, want := range []string{"a leads", "no replica leads", "b leads"} {
		require.Eventually(t, func() bool { return strings.Contains(shown.text(), want) && clk.HasWaiters() }, 10*time.Second, time.Millisecond)
		clk.Step(time.Second)
	}
	cancel()
	require.NoError(t, <-done)
	assert.True(t, strings.HasPrefix(shown.text(), hideCursor+clearScreen))
	assert.True(t, strings.HasSuffix(shown.text(), appearCursor), "the terminal is left as it was")
}

func TestAnInterruptedLiveViewLeavesTheTerminalAsItWas(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "") // nor is this a pod
	for _, sent := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, sent) // so that the test outlives it in any case
		cluster := httptest.NewServer(http.NotFoundHandler())
		command, shown, done := NewCommand(), &screen{}, make(chan error, 1)
		command.SetOut(shown)
		command.SetArgs([]string{"-o", "live", "--kubeconfig=" + kubeconfigtest.File(t, cluster.URL)})
		go func() { done <- command.ExecuteContext(t.Context()) }()
		require.Eventually(t, func() bool { return strings.Contains(shown.text(), clearScreen) }, 10*time.Second, time.Millisecond)
		require.NoError(t, syscall.Kill(os.Getpid(), sent))
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(10 * time.Second):
			t.Fatal("the view does not end")
		}
		assert.True(t, strings.HasSuffix(shown.text(), appearCursor))
		signal.Stop(signals)
		cluster.Close()
	}
}

func TestTheAnswerOfAnotherVersionIsNamed(t *testing.T) {
	assert.ErrorContains(t, writeText(t.Context(), &answers{said: []string{"<html>"}}, &bytes.Buffer{}), "is it of another version?")
}

func TestThePageIsThatOfTheLeader(t *testing.T) {
	leader, out := &answers{said: []string{"<!doctype html>"}}, &bytes.Buffer{}
	require.NoError(t, copyOf(t.Context(), leader, "/statusz", out))
	assert.Equal(t, "<!doctype html>", out.String())
	assert.Equal(t, []string{"/statusz"}, leader.asked)
}

func TestFlagsThatAreNoneAreRefused(t *testing.T) {
	command := NewCommand()
	command.SetArgs([]string{"--interval=0s", "-o", "text"})
	assert.ErrorContains(t, command.ExecuteContext(t.Context()), "--interval")
	command = NewCommand()
	command.SetArgs([]string{"-o", "yaml", "--kubeconfig=no-such-file"})
	assert.ErrorContains(t, command.ExecuteContext(t.Context()), "want live, text, json or html", "before the cluster is looked for")
}
