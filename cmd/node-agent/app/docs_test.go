package app

import (
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/wire"
)

const manual = "../../../docs/node-agent.md"

func TestManualExplainsEveryFlag(t *testing.T) {
	text, err := os.ReadFile(manual)
	require.NoError(t, err)
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(options).addTo(flags)
	obvious := map[string]bool{"node-name": true, "address": true, "kubeconfig": true}
	flags.VisitAll(func(f *pflag.Flag) {
		assert.True(t, obvious[f.Name] || strings.Contains(string(text), "`--"+f.Name+"`"), f.Name)
	})
}

// Each console in the manual is a shell: the first before there is a notice, the second after.
func TestCommandsInTheManualPrintWhatItSays(t *testing.T) {
	_, err := exec.LookPath("curl")
	require.NoError(t, err, "make test installs it")
	text, err := os.ReadFile(manual)
	require.NoError(t, err)
	consoles := regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	require.Len(t, consoles, 2)

	asked := map[string]string{api.AnnotationAwaitedAcknowledgements: "127.0.0.1=" + wire.Digest("1767603601-x7k2m9qd") + ",127.0.0.1=" + wire.Digest("team-a/train-worker-0")}
	a := newAgent(&instance{}, newMemoryNode(time.Hour, asked), clock.RealClock{}, usualPace)
	server := httptest.NewUnstartedServer(a.handler(a.podOfThisNode))
	server.Listener.Close()
	server.Listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.2:0") // another address than the caller's
	require.NoError(t, err)
	server.Start()
	t.Cleanup(server.Close)
	for i, console := range consoles {
		if i == 1 {
			a.learn(t.Context(), time.Now().Add(5*time.Minute).Truncate(time.Second))
		}
		for _, step := range regexp.MustCompile(`(?m)^\$ (.*)\n(.*)$`).FindAllStringSubmatch(console[1], -1) {
			command := strings.ReplaceAll(step[1], "http://$NODE_IP:8790", server.URL)
			printed, err := exec.CommandContext(t.Context(), "sh", "-c", command).Output()
			require.NoError(t, err, command)
			assert.Equal(t, blur(step[2]), blur(string(printed)), command)
		}
	}
}

// blur takes out what passes.
func blur(line string) string {
	line = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`).ReplaceAllString(strings.TrimSpace(line), "TIME")
	return regexp.MustCompile(`"seconds_left":\d+`).ReplaceAllString(line, `"seconds_left":N`)
}
