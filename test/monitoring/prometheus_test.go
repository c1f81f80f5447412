package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"gpu-spot-autoscaler/test/rig"
)

// target is what a Prometheus scrapes, with the labels of the target.
type target struct {
	address string
	labels  map[string]string
}

// server is a Prometheus that runs.
type server struct {
	url   string
	files string
}

// startPrometheus runs a Prometheus until the test ends, which scrapes once a second what is added to it, and keeps the labels of metrics as
// the chart's ServiceMonitor has it do.
func startPrometheus(t *testing.T) *server {
	t.Helper()
	directory := t.TempDir()
	s := &server{files: filepath.Join(directory, "targets")}
	require.NoError(t, os.Mkdir(s.files, 0o700))
	config, err := yaml.Marshal(map[string]any{
		"global": map[string]any{"scrape_interval": "1s", "scrape_timeout": "1s"},
		"scrape_configs": []any{map[string]any{
			"job_name": "rig", "honor_labels": true,
			"file_sd_configs": []any{map[string]any{"files": []string{s.files + "/*.json"}, "refresh_interval": "1s"}},
		}},
	})
	require.NoError(t, err)
	path := filepath.Join(directory, "prometheus.yaml")
	require.NoError(t, os.WriteFile(path, config, 0o600))
	port, err := rig.FreePort(t.Context(), "127.0.0.1")
	require.NoError(t, err)
	address := net.JoinHostPort("127.0.0.1", port)
	s.url = "http://" + address
	log, err := os.Create(filepath.Join(directory, "log"))
	require.NoError(t, err)
	defer log.Close() // the child has its own
	command := exec.Command(binary(t, "prometheus"), "--config.file="+path, "--storage.tsdb.path="+filepath.Join(directory, "data"), "--web.listen-address="+address)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = command.Wait()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("Prometheus said:\n%s", text)
		}
	})
	rig.Eventually(t, time.Minute, "Prometheus is ready", func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/-/ready", nil)
		if err != nil {
			return false, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, err
		}
		return response.StatusCode == http.StatusOK, response.Body.Close()
	})
	return s
}

// scrape adds a target.
func (s *server) scrape(t *testing.T, name string, of target) {
	t.Helper()
	text, err := json.Marshal([]any{map[string]any{"targets": []string{of.address}, "labels": of.labels}})
	require.NoError(t, err)
	// Prometheus reads the file when it appears, and must not find half of it.
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, text, 0o600))
	require.NoError(t, os.Rename(path, filepath.Join(s.files, name+".json")))
}

// series is one line of an answer.
type series struct {
	Labels map[string]string `json:"metric"`
	Values [][2]any          `json:"values"`
}

// queryRange asks for every few seconds of a time.
func (s *server) queryRange(ctx context.Context, query string, from, to time.Time) ([]series, error) {
	seconds := func(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }
	parameters := url.Values{"query": {query}, "start": {seconds(from)}, "end": {seconds(to)}, "step": {"2s"}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/api/v1/query_range?"+parameters.Encode(), nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var answer struct {
		Status, Error string
		Warnings      []string
		Data          struct{ Result []series }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("%s: %w", response.Status, err)
	}
	if answer.Status != "success" || len(answer.Warnings) > 0 {
		return nil, fmt.Errorf("%s: %s %v", response.Status, answer.Error, answer.Warnings)
	}
	return answer.Data.Result, nil
}
