package walkthrough

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The commands of the documentation that are not run, because they need what is not here. Their stand-ins only note the call.
var notRun = map[string]string{
	"make":   "it would compile what the test has compiled already; make build puts the binary where the documentation says, and other targets have to be in the Makefile",
	"skopeo": "there is no registry to push to",
	"crane":  "there is no registry to push to",
}

// Variables by which stand-ins learn from the test what they need. The test's own binary is all of them, by the name under which it is called.
const (
	callsVariable    = "WALKTHROUGH_CALLS"    // the file in which calls are noted
	binaryVariable   = "WALKTHROUGH_BINARY"   // what make build builds
	rootVariable     = "WALKTHROUGH_ROOT"     // of the repository
	cloudVariable    = "WALKTHROUGH_CLOUD"    // host and port of the simulated cloud
	keyVariable      = "WALKTHROUGH_KEY"      // id and secret of an administrator, with a colon between
	sdkVariable      = "WALKTHROUGH_SDK"      // the source of Alibaba Cloud's SDK
	groupVariable    = "WALKTHROUGH_GROUP"    // the scaling group of the node pool
	nodePoolVariable = "WALKTHROUGH_NODEPOOL" // the node pool
	issuerVariable   = "WALKTHROUGH_ISSUER"   // the issuer of the control plane
)

// call is a call of a stand-in.
type call struct {
	Command   string
	Arguments []string
	// Parameters are those of aliyun, by name.
	Parameters map[string]string `json:",omitempty"`
	Error      string            `json:",omitempty"`
}

func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	standIn := map[string]func(*call) error{"aliyun": aliyun, "make": makeTarget, "skopeo": ignore, "crane": ignore}[name]
	if standIn == nil {
		os.Exit(m.Run())
	}
	c := &call{Command: name, Arguments: os.Args[1:]}
	err := standIn(c)
	if err != nil {
		c.Error = err.Error()
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	}
	if err := errors.Join(err, c.note(os.Getenv(callsVariable))); err != nil {
		os.Exit(1)
	}
}

func (c *call) note(file string) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = log.Write(append(text, '\n'))
	return errors.Join(err, log.Close())
}

// readCalls returns the calls that were noted.
func readCalls(t *testing.T, file string) (calls []call) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		var c call
		require.NoError(t, json.Unmarshal([]byte(line), &c))
		calls = append(calls, c)
	}
	return calls
}

func ignore(*call) error { return nil }

// makeTarget refuses targets that the Makefile does not have, and puts the binary into out/bin for make build.
func makeTarget(c *call) error {
	if err := checkTargets(os.Getenv(rootVariable), c.Arguments); err != nil {
		return err
	}
	if !slices.Contains(c.Arguments, "build") {
		return nil
	}
	if err := os.MkdirAll("out/bin", 0o755); err != nil {
		return err
	}
	// Alibaba Cloud is not at its usual address here.
	script := pointed(os.Getenv(binaryVariable), cloudFlags(os.Getenv(cloudVariable)))
	return os.WriteFile("out/bin/gpu-spot-autoscaler", []byte(script), 0o755)
}

// checkTargets refuses targets that the Makefile of the repository does not have.
func checkTargets(repository string, arguments []string) error {
	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	if err != nil {
		return err
	}
	for _, target := range arguments {
		isVariable := strings.Contains(target, "=")
		if !isVariable && !regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(target)+`:`).Match(makefile) {
			return fmt.Errorf("no rule to make target %q", target)
		}
	}
	return nil
}
