package doctor

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/exit"
	"gpu-spot-autoscaler/test/alisim"
)

// executed runs the command, and returns what it prints.
func executed(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	command := NewCommand()
	command.SetOut(&out)
	command.SetArgs(args)
	command.SetContext(t.Context())
	err := command.Execute()
	return out.String(), err
}

// cloudFlags are the flags with which the command examines the cloud of the set-up, and nothing else.
func cloudFlags(t *testing.T, s *setup) []string {
	t.Helper()
	cloud, err := alisim.Start(t.Context(), s.world, alisim.Options{})
	require.NoError(t, err)
	t.Cleanup(cloud.Stop)
	directory := t.TempDir()
	key := cloud.AccessKey()
	for name, text := range map[string]string{"ALIBABA_CLOUD_ACCESS_KEY_ID": key.ID, "ALIBABA_CLOUD_ACCESS_KEY_SECRET": key.Secret} {
		require.NoError(t, os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600))
	}
	return []string{
		"--region=" + region, "--cluster-name=" + clusterName, "--skip=cluster", "--credentials-dir=" + directory, "--cloud-scheme=http",
		"--ess-endpoint=" + cloud.Endpoint(), "--ecs-endpoint=" + cloud.Endpoint(), "--vpc-endpoint=" + cloud.Endpoint(),
	}
}

func TestTheExitCodeTellsWhetherAnythingIsFound(t *testing.T) {
	out, err := executed(t, cloudFlags(t, soundSetup(t))...)
	require.NoError(t, err, out)
	assert.Regexp(t, `^nothing found\nnot proven: ess:ScaleWithAdjustment: .*\n$`, out)

	s := soundSetup(t)
	s.world.Pools[0].SuspendedProcesses = []string{"ScaleIn"}
	flags := cloudFlags(t, s)
	out, err = executed(t, flags...)
	assert.ErrorIs(t, err, exit.Faults)
	assert.Contains(t, out, "error scale_in_suspended asg-1: its process ScaleIn is suspended, so that nothing can be given back. Resume the process ScaleIn.\n")

	out, err = executed(t, append(flags, "-o", "json")...)
	assert.ErrorIs(t, err, exit.Faults)
	var report Report
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	require.Len(t, report.Findings, 1)
	assert.Equal(t, Finding{ScaleInSuspended, Error, "asg-1", "its process ScaleIn is suspended, so that nothing can be given back", "Resume the process ScaleIn"}, report.Findings[0])
	assert.Len(t, report.NotProven, 1)

	out, err = executed(t, append(flags, "--ignore=scale_in_suspended")...)
	assert.NoError(t, err)
	assert.Contains(t, out, "nothing found")
}

func TestFlagsThatMakeNoSense(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no region":       {[]string{"--cluster-name=c", "--region="}, "--region"},
		"no cluster":      {[]string{"--region=r"}, "--cluster-name"},
		"another form":    {[]string{"--region=r", "--cluster-name=c", "-o", "yaml"}, "-o yaml"},
		"nothing to skip": {[]string{"--region=r", "--cluster-name=c", "--skip=all"}, "--skip=all"},
		"no such code":    {[]string{"--region=r", "--cluster-name=c", "--ignore=tag"}, "--ignore=tag"},
		"no bounds":       {[]string{"--region=r", "--nodes=asg-1", "--skip=cluster"}, "asg-1"},
		"no kubeconfig":   {[]string{"--region=r", "--cluster-name=c", "--kubeconfig=/nowhere"}, "--skip=cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := executed(t, test.args...)
			require.Error(t, err)
			assert.NotErrorIs(t, err, exit.Faults)
			assert.ErrorContains(t, err, test.want)
		})
	}
}

func TestWithoutAnAPIServerTheCloudIsCheckedAllTheSame(t *testing.T) {
	s := soundSetup(t)
	s.world.Pools[0].SuspendedProcesses = []string{"ScaleIn"}
	flags := slices.DeleteFunc(cloudFlags(t, s), func(flag string) bool { return flag == "--skip=cluster" })
	kubeconfig := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
		"contexts": [{"name": "c", "context": {"cluster": "c"}}], "current-context": "c"}`), 0o600))
	out, err := executed(t, append(flags, "--kubeconfig="+kubeconfig)...)
	assert.ErrorIs(t, err, exit.Faults)
	assert.Contains(t, out, "error cluster_unreachable: the API server does not say its version")
	assert.Contains(t, out, "error scale_in_suspended asg-1")
}

func TestTheEndpointForNoticesIsReachedIfItAnswersAsTheAutoscalerDoes(t *testing.T) {
	for name, test := range map[string]struct {
		status  int
		trusted bool
		want    []Code
	}{
		"the autoscaler":             {http.StatusMethodNotAllowed, true, []Code{}},
		"somebody else":              {http.StatusNotFound, true, []Code{PushUnreachable}},
		"a certificate of one's own": {http.StatusMethodNotAllowed, false, []Code{PushUnreachable}},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(test.status) }))
			defer server.Close()
			roots := x509.NewCertPool()
			if test.trusted {
				roots.AddCert(server.Certificate())
			}
			report := Report{}
			checkPushURL(t.Context(), &report, server.URL, &tls.Config{RootCAs: roots})
			assert.Equal(t, test.want, codesOf(report))
		})
	}
	report := Report{}
	report.add(NoReserve, Warning, "asg-1", "it is small", "Make it larger")
	checkPushURL(t.Context(), &report, "https://127.0.0.1:1/notices?token=secret", nil)
	assert.Equal(t, []Code{PushUnreachable, NoReserve}, codesOf(report), "errors stand before warnings")
	assert.Equal(t, "https://127.0.0.1:1/notices", report.Findings[0].Object)
	for _, malformed := range []string{"https://127.0.0.1:1?token=secret", "https://127.0.0.1:x?token=secret", ":?token=secret", "https://127.0.0.1:1/%zz?token=secret"} {
		report := Report{}
		checkPushURL(t.Context(), &report, malformed, nil)
		assert.NotContains(t, fmt.Sprint(report.Findings), "secret")
	}
}
