package deploy_test

import (
	"crypto/x509"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "golang.org/x/crypto/x509roots/fallback" // as the autoscaler has it
	"golang.org/x/crypto/x509roots/fallback/bundle"
	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	autoscaler = "gpu-spot-autoscaler/cmd/gpu-spot-autoscaler"
	nodeAgent  = "gpu-spot-autoscaler/cmd/node-agent"
)

// dependencies are the packages of which the programs consist.
func dependencies(t *testing.T, programs ...string) sets.Set[string] {
	t.Helper()
	list, err := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps"}, programs...)...).Output()
	require.NoError(t, err)
	return sets.New(strings.Fields(string(list))...)
}

func TestTheDockerfileCopiesAllThatTheProgramsConsistOf(t *testing.T) {
	dockerfile, err := os.ReadFile("Dockerfile")
	require.NoError(t, err)
	copied := sets.New[string]()
	for _, line := range regexp.MustCompile(`(?m)^COPY (\w+) (\w+)$`).FindAllStringSubmatch(string(dockerfile), -1) {
		assert.Equal(t, line[1], line[2])
		copied.Insert(line[1])
	}
	needed := sets.New[string]()
	for path := range dependencies(t, autoscaler, nodeAgent) {
		if below, ours := strings.CutPrefix(path, "gpu-spot-autoscaler/"); ours {
			directory, _, _ := strings.Cut(below, "/")
			needed.Insert(directory)
		}
	}
	assert.Equal(t, sets.List(needed), sets.List(copied))
}

// The image has no file but the program, so that the certificates of public authorities have to be in it: Alibaba Cloud is asked over TLS.
func TestTheAutoscalerHasTheCertificatesOfPublicAuthorities(t *testing.T) {
	assert.True(t, dependencies(t, autoscaler).Has("golang.org/x/crypto/x509roots/fallback"))
	if os.Getenv("SSL_CERT_FILE") != nowhere {
		again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		again.Env = append(os.Environ(), "SSL_CERT_FILE="+nowhere, "SSL_CERT_DIR="+nowhere)
		said, err := again.CombinedOutput()
		require.NoError(t, err, string(said))
		assert.Contains(t, string(said), "--- PASS: "+t.Name())
		return
	}
	trusted := 0
	for root := range bundle.Roots() {
		certificate, err := x509.ParseCertificate(root.Certificate)
		require.NoError(t, err)
		_, err = certificate.Verify(x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		if err == nil {
			trusted++
		}
	}
	assert.Greater(t, trusted, 100)
}

// nowhere is where no certificates of this machine are.
const nowhere = "/nowhere"
