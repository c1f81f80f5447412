package app

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// KiB. The second is the limit that the chart sets.
const maxRSS, memoryLimit = 20 << 10, 40 << 10

// TestRSSOfTheProcess runs the binary as it is shipped through a reclaim, with pods that ask and speak:
//
//	go test -tags externalgrpc -run RSS -v ./cmd/node-agent/app
func TestRSSOfTheProcess(t *testing.T) {
	imds := newFakeMetadata(t)
	apiServer := newFakeAPI(t, time.Now().Add(-time.Hour))
	apiServer.object.Annotations = awaitedFrom("request-49", api.CallerHost)
	address := freeAddress(t)
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	process := startBinary(t, "--node-name=self", "--port="+port, "--poll-interval=20ms", "--allow-from=127.0.0.0/8",
		"--metadata-endpoint="+imds.URL, "--kubeconfig="+apiServer.kubeconfig(t))

	require.Eventually(t, func() bool { return imds.asked.Load() > 100 }, 20*time.Second, 20*time.Millisecond)
	t.Logf("without a notice: %s", memory(t, process.Pid))
	imds.set(time.Now().Add(5 * time.Minute))
	require.Eventually(t, func() bool { return apiServer.annotation(api.AnnotationNoticeAgent) != "" }, 20*time.Second, 20*time.Millisecond)
	for i := range 200 {
		for range 10 {
			response, err := http.Get("http://" + address + "/v1/reclaim")
			require.NoError(t, err)
			drain(t, response)
		}
		response, err := http.Post("http://"+address+"/v1/checkpoint-acknowledged", "application/json",
			bytes.NewBufferString(fmt.Sprintf(`{"id": "request-%d"}`, i)))
		require.NoError(t, err)
		drain(t, response)
	}
	require.Contains(t, apiServer.annotation(api.AnnotationCheckpointAcknowledged), "request-49")
	t.Logf("after 2000 questions and 200 acknowledgements: %s", memory(t, process.Pid))
	require.Less(t, kibibytes(t, process.Pid, "VmHWM"), maxRSS, "KiB at most")

	idle := openIdle(t, address, 4000)
	t.Logf("with %d connections opened to it: %s", len(idle), memory(t, process.Pid))
	require.Less(t, kibibytes(t, process.Pid, "VmHWM"), memoryLimit, "KiB at most")
	status, err := exchange(dialFrom(t, "127.2.0.1", address), "/v1/reclaim")
	require.NoError(t, err)
	require.Equal(t, "200 OK", status, "another pod is answered all the same")
	status, err = exchange(dialFrom(t, "127.0.0.1", address), "/healthz")
	require.NoError(t, err)
	require.Equal(t, "200 OK", status, "and the kubelet")
}

// openIdle opens connections from as many addresses as a node may have pods, sends a request on each, and leaves it open.
func openIdle(t *testing.T, address string, many int) (idle []net.Conn) {
	t.Helper()
	for i := range many {
		conn := dialFrom(t, fmt.Sprintf("127.1.0.%d", 1+i%250), address)
		_, err := exchange(conn, "/v1/reclaim")
		require.NoError(t, err)
		idle = append(idle, conn)
	}
	return idle
}

// dialFrom connects from an address of the loopback network.
func dialFrom(t *testing.T, from, to string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}
	conn, err := dialer.DialContext(t.Context(), "tcp", to)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// exchange sends a request on the connection, and returns the status.
func exchange(conn net.Conn, path string) (string, error) {
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: node\r\n\r\n", path); err != nil {
		return "", err
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return response.Status, err
}

func drain(t *testing.T, response *http.Response) {
	t.Helper()
	_, err := io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
}

// startBinary builds it as deploy/Dockerfile does.
func startBinary(t *testing.T, args ...string) *os.Process {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "node-agent")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-tags=externalgrpc")
	text, err := build.CombinedOutput()
	require.NoError(t, err, string(text))
	command := exec.Command(binary, args...)
	command.Env = append(os.Environ(), "GOMEMLIMIT=16MiB") // as the chart has it
	command.Stdout, command.Stderr = t.Output(), t.Output()
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		require.NoError(t, command.Process.Signal(syscall.SIGTERM))
		require.NoError(t, command.Wait())
	})
	return command.Process
}

// memory is what the kernel says: now, at most, and of that what is the process's own.
func memory(t *testing.T, pid int) string {
	t.Helper()
	mebibytes := func(key string) float64 { return float64(kibibytes(t, pid, key)) / 1024 }
	return fmt.Sprintf("VmRSS %.1f MiB, VmHWM %.1f MiB, RssAnon %.1f MiB", mebibytes("VmRSS"), mebibytes("VmHWM"), mebibytes("RssAnon"))
}

func kibibytes(t *testing.T, pid int, key string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^` + key + `:\s+(\d+) kB$`).FindSubmatch(status)
	require.NotNil(t, line, key)
	value, err := strconv.Atoi(string(line[1]))
	require.NoError(t, err)
	return value
}

// freeAddress is one that was free a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}
