package app

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/commands"
)

// newCommandOnce: the flags of Cluster Autoscaler are the process's.
var newCommandOnce = sync.OnceValue(NewCommand)

// output runs the command and returns what it prints, and its exit code.
func output(t *testing.T, args ...string) (string, int) {
	t.Helper()
	command := newCommandOnce()
	var printed bytes.Buffer
	redirect(command, &printed)
	code := commands.Execute(command, args)
	for _, name := range []string{"version", "help-all", "help"} { // cobra keeps flags from run to run
		assert.NoError(t, command.Flags().Set(name, "false"))
	}
	return printed.String(), code
}

func redirect(command *cobra.Command, w *bytes.Buffer) {
	command.SetOut(w)
	command.SetErr(w)
}

func TestHelpShowsOurFlagsAndHelpAllTheOthersToo(t *testing.T) {
	help, code := output(t, "--help")
	assert.Zero(t, code)
	assert.Regexp(t, `(?s)Commands:.*version.*Pools and cloud flags:.*--region.*Purchases flags:.*--settle-window.*Reclaims flags:.*--help-all`, help)
	for _, flag := range []string{"--scan-interval", "--leader-elect", "--feature-gates", "--vmodule"} {
		assert.NotContains(t, help, flag)
	}
	all, code := output(t, "--help-all")
	assert.Zero(t, code)
	assert.Regexp(t, `(?s)Pools and cloud flags:.*Leader election flags:.*Cluster-autoscaler flags:.*--scan-interval`, all)
}

func TestTheVersionIsAFlagAndASubcommand(t *testing.T) {
	flag, code := output(t, "--version")
	assert.Zero(t, code)
	assert.Contains(t, flag, "cluster-autoscaler    1.33.0\n")
	subcommand, code := output(t, "version")
	assert.Zero(t, code)
	assert.Equal(t, flag, subcommand)
}

func TestACommandThatIsNoneIsAnsweredWithTheOneThatWasMeant(t *testing.T) {
	for _, test := range []struct{ typed, want string }{
		{"plann", "did you mean plan?"},
		{"status", "did you mean top?"},
		{"costs", "did you mean savings?"},
		{"uninstall", "did you mean release-all?"},
		{"no-such-command", "--help lists the commands"},
	} {
		command := newCommandOnce()
		assert.ErrorContains(t, command.Args(command, []string{test.typed}), test.want, "cli.Run prints it to the process's own standard error")
	}
}

func TestLintKnowsTheFlagsThatValuesMayName(t *testing.T) {
	file := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(file, []byte("extraArgs: {expander: least-price, scan-interval: 10s, scan-intervall: 10s}\n"), 0o600))
	said, code := output(t, "lint", file)
	assert.Equal(t, 1, code)
	assert.Equal(t, 1, strings.Count(said, "no such flag"), said)
	assert.Contains(t, said, "extraArgs.scan-intervall: the autoscaler has no such flag")
}

func TestExplainSaysWhatItExplains(t *testing.T) {
	for _, args := range [][]string{{"explain"}, {"explain", "default/train-0"}, {"explain", "node", "a"}, {"explain", "pod"}, {"explain", "pod", "default", "train-0"}} {
		said, code := output(t, args...)
		assert.Equal(t, 2, code, "%q", args)
		assert.Contains(t, said, "NAMESPACE/NAME", "%q", args)
	}
	help, code := output(t, "explain", "--help")
	assert.Zero(t, code)
	assert.Contains(t, help, "explain pod NAMESPACE/NAME")
	assert.Contains(t, help, "--context")
}

func TestANodeWithoutItsFlagIsRefused(t *testing.T) {
	said, code := output(t, "drill", "cn-hangzhou.192.168.0.12")
	assert.Equal(t, 2, code)
	assert.Contains(t, said, "name the Node with --node")
}

func TestASubcommandThatCannotRunSaysWhy(t *testing.T) {
	said, code := output(t, "version", "-o", "xml")
	assert.Equal(t, 2, code)
	assert.Equal(t, "Error: --output=xml is neither text nor json\n", said)
	help, code := output(t, "version", "--help")
	assert.Zero(t, code)
	assert.Contains(t, help, "--output")
	assert.NotContains(t, help, "--scan-interval", "flags of the process")
}
