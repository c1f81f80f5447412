package walkthrough

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/test/rig"
)

const (
	ownCommand = "gpu-spot-autoscaler"
	// noteCall is what stands in for every command while bash reads a block: it only notes how it was called.
	// It is one write, since the commands of a pipe are called at once.
	noteCall = "#!/bin/bash\nprintf '%s\\0' \"${0##*/}\" \"$@\" $'\\n' >> \"$" + callsVariable + "\"\n"
)

// noted are the commands that a block may call. Of those that are not ours, kubectl and helm are checked.
var noted = []string{"kubectl", "helm", ownCommand, "make", "docker", "go", "curl", "jq", "python3", "aliyun"}

// checker checks the commands of blocks without running them: bash reads the block, so that what is checked is what a shell makes of it.
type checker struct {
	// tools are where the real commands are, by name.
	tools map[string]string
	note  string
	// chart is what the chart renders, known the objects that there may be, as kind/name, and events the page that has all Events.
	chart, events string
	known         []string
	// helped are calls that were checked, with what came of them.
	helped map[string]error
	// sdk is the source of Alibaba Cloud's SDK.
	sdk string
}

func newChecker(t *testing.T) *checker {
	t.Helper()
	kubectl, helm := tools(t)
	binary, err := rig.Build()
	require.NoError(t, err)
	events, err := os.ReadFile(filepath.Join(root, "docs/operations.md")) // which another test holds to the code
	require.NoError(t, err)
	c := &checker{
		tools: map[string]string{"kubectl": kubectl, "helm": helm, ownCommand: binary}, note: filepath.Join(t.TempDir(), "note"),
		chart: rendered(t, helm), events: string(events), known: slices.Clone(saved), helped: map[string]error{}, sdk: sourceOfSDK(t),
	}
	require.NoError(t, os.WriteFile(c.note, []byte(noteCall), 0o755))
	for _, found := range renderedAs.FindAllStringSubmatch(c.chart, -1) {
		c.known = append(c.known, strings.ToLower(found[1])+"/"+found[2])
	}
	require.Greater(t, len(c.known), 30, "the chart is read")
	return c
}

// valuesOfAll turn on all that the chart has.
var valuesOfAll = []string{
	"region=cn-hangzhou", "clusterName=my-cluster", "nodeAgent.enabled=true", "secureServing.enabled=true", "provisioningRequests.enabled=true",
	"serviceMonitor.enabled=true", "alerts.enabled=true", "dashboards.enabled=true", "networkPolicy.enabled=true",
	"admission.keepOffReclaiming.enabled=true", "push.enabled=true", "push.tlsSecretName=tls", "push.tokenSecretName=token",
}

// rendered returns what the chart makes of all values, and for a dry run.
func rendered(t *testing.T, helm string) (all string) {
	t.Helper()
	for release, values := range map[string]string{
		"gpu-spot-autoscaler": strings.Join(valuesOfAll, ","),
		"gpu-spot-dry-run":    "region=cn-hangzhou,clusterName=my-cluster,dryRun.enabled=true,secureServing.enabled=true",
	} {
		out, err := exec.Command(helm, "template", release, filepath.Join(root, "deploy/chart/gpu-spot-autoscaler"), "--namespace=kube-system", kubeVersion, "--set="+values).Output()
		require.NoError(t, err)
		all += string(out) + "\n---\n"
	}
	return all
}

// placeholder is what a reader replaces, which a shell would take for a redirection or for an argument too many.
var placeholder = regexp.MustCompile(`<([a-z-]+)>|…`)

// check has bash read the blocks, and checks what they call.
func (c *checker) check(t *testing.T, blocks []block) {
	stubs := map[string]string{}
	for _, name := range noted {
		stubs[name] = c.note
	}
	s := newShell(context.WithoutCancel(t.Context()), t, "", stubs)
	calls := filepath.Join(t.TempDir(), "calls")
	s.environment = append(s.environment, callsVariable+"="+calls, "REGION=cn-hangzhou", "CLUSTER=my-cluster", "NODE_IP=192.0.2.1")
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "values.yaml"), []byte("region: cn-hangzhou\nclusterName: my-cluster\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "job.yaml"), nil, 0o644)) // which blocks redirect
	for _, b := range blocks {
		require.NoError(t, os.WriteFile(calls, nil, 0o644))
		printed, _, _ := s.execute(placeholder.ReplaceAllStringFunc(b.text, func(found string) string {
			if found == "…" {
				return "deploy/chart/gpu-spot-autoscaler"
			}
			return found[1 : len(found)-1]
		}))
		text, err := os.ReadFile(calls)
		require.NoError(t, err)
		made := strings.Split(string(text), "\x00\n\x00")
		assert.Greater(t, len(made), 1, "line %d: nothing is called: %s", b.line, printed)
		for _, each := range made[:len(made)-1] {
			call := strings.Split(each, "\x00")
			assert.NoError(t, c.wrong(s.dir, call[0], call[1:]), "line %d: %s", b.line, strings.Join(call, " "))
		}
	}
}

// wrong returns what is wrong with a call.
func (c *checker) wrong(dir, name string, arguments []string) error {
	switch name {
	case ownCommand:
		return c.own(arguments)
	case "helm":
		return c.helm(dir, arguments)
	case "kubectl":
		return c.kubectl(arguments)
	case "make":
		return checkTargets(root, arguments)
	case "go":
		return checkGo(root, arguments)
	case "docker":
		return checkDocker(root, arguments)
	case "aliyun":
		_, err := (&call{Arguments: arguments}).parse(c.sdk)
		return err
	case "jq", "curl":
		return refused(name, arguments)
	}
	return nil // python3, which a station runs
}

// help has the real command read the arguments, and print its help instead of doing anything: it refuses a flag that it does not have before it
// comes to --help. What comes after -- is for somebody else. The first lines of the help have to name the command.
func (c *checker) help(name string, arguments []string, usage string) error {
	if end := slices.Index(arguments, "--"); end >= 0 {
		arguments = arguments[:end]
	}
	key := name + " " + strings.Join(arguments, "\x00")
	if err, asked := c.helped[key]; asked {
		return err
	}
	command := exec.Command(c.tools[name], append(slices.Clone(arguments), "--help")...)
	command.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	out, err := command.CombinedOutput()
	switch {
	case err != nil:
		first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		err = fmt.Errorf("%w: %s", err, first)
	case !strings.Contains(string(out), usage):
		err = fmt.Errorf("its help does not say %q", usage)
	}
	c.helped[key] = err
	return err
}

// own refuses subcommands and flags that the binary does not have.
func (c *checker) own(arguments []string) error {
	if len(arguments) == 0 {
		return errors.New("want a subcommand")
	}
	usage := "Usage:\n  " + ownCommand
	if !strings.HasPrefix(arguments[0], "-") {
		usage += " " + arguments[0]
	}
	return c.help(ownCommand, arguments, usage)
}

// kubeVersion is what helm takes for the version of the cluster: there is none.
const kubeVersion = "--kube-version=1.36.1"

// helm refuses what helm does, and values that the chart does not have.
func (c *checker) helm(dir string, arguments []string) error {
	if err := c.help("helm", arguments, "helm "+arguments[0]); err != nil || !slices.Contains([]string{"install", "upgrade"}, arguments[0]) {
		return err
	}
	template := []string{"template", kubeVersion}
	for _, argument := range arguments[1:] {
		if !slices.Contains([]string{"--install", "--wait"}, argument) {
			template = append(template, argument)
		}
	}
	if !strings.Contains(strings.Join(arguments, " "), "region=") && !slices.Contains(arguments, "--values") {
		template = append(template, "--values=values.yaml") // those of the release
	}
	command := exec.Command(c.tools["helm"], template...)
	command.Dir = dir
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// saved are the objects of the autoscaler that the chart does not make.
var saved = []string{
	"configmap/gpu-spot-autoscaler-status", "configmap/gpu-spot-autoscaler-ledger", "configmap/gpu-spot-autoscaler-market",
	"lease/gpu-spot-autoscaler", "lease/gpu-spot-dry-run-dry-run",
}

var (
	ours       = regexp.MustCompile(`^(?:([a-z]+)/)?(gpu-spot-(?:autoscaler|dry-run|node-agent|release-all)[a-z-]*)$`)
	renderedAs = regexp.MustCompile(`(?m)^kind: (\w+)\nmetadata:\n(?:  .*\n)*?  name: "?([\w.-]+)`)
	reasonOf   = regexp.MustCompile(`^(?:--field-selector=)?(?:.*,)?reason=(\w+)`)
	labelOf    = regexp.MustCompile(`^(app\.kubernetes\.io/[a-z-]+)=([a-z-]+)$`)
	// kinds are the short names of kinds, and their plurals.
	kinds = map[string]string{
		"deploy": "deployment", "cm": "configmap", "svc": "service", "ds": "daemonset", "sa": "serviceaccount", "validatingadmissionpolicies": "validatingadmissionpolicy",
	}
)

// kubectl refuses what kubectl refuses before it asks a server, and objects, labels and reasons of Events of this project that do not exist.
// What exec runs in the pod is checked, too.
func (c *checker) kubectl(arguments []string) error {
	if err := c.help("kubectl", arguments, "kubectl "+firstWord(arguments)); err != nil {
		return err
	}
	for i, argument := range arguments {
		if argument == "--" {
			return c.own(arguments[i+2:])
		}
		if match := ours.FindStringSubmatch(argument); match != nil {
			kind := match[1]
			if kind == "" {
				kind = arguments[i-1]
			}
			if !c.exists(kind, match[2]) {
				return fmt.Errorf("there is no %s %s", kind, match[2])
			}
		}
		if match := reasonOf.FindStringSubmatch(argument); match != nil && !strings.Contains(c.events, match[1]) {
			return fmt.Errorf("there is no Event %s", match[1])
		}
		if match := labelOf.FindStringSubmatch(argument); match != nil && !strings.Contains(c.chart, match[1]+": "+match[2]) {
			return fmt.Errorf("nothing of the chart has the label %s", argument)
		}
	}
	return nil
}

// firstWord returns the subcommand: what is neither a flag nor the namespace.
func firstWord(arguments []string) string {
	for i, argument := range arguments {
		if !strings.HasPrefix(argument, "-") && (i == 0 || arguments[i-1] != "-n") {
			return argument
		}
	}
	return ""
}

// exists returns whether there may be an object of the name. Where the argument before it is no kind, as in "create token", any kind will do.
func (c *checker) exists(kind, name string) bool {
	if full, short := kinds[kind]; short {
		kind = full
	}
	kind = strings.TrimSuffix(kind, "s")
	isKind := slices.ContainsFunc(c.known, func(one string) bool { return strings.HasPrefix(one, kind+"/") })
	return slices.ContainsFunc(c.known, func(one string) bool {
		of, named, _ := strings.Cut(one, "/")
		return named == name && (of == kind || !isKind)
	})
}

func TestACommandThatDoesNotExistIsFound(t *testing.T) {
	c := newChecker(t)
	for text, want := range map[string]string{
		"gpu-spot-autoscaler explain pod default/train":                                        "",
		"gpu-spot-autoscaler explian pod default/train":                                        "its help does not say",
		"gpu-spot-autoscaler top --ouput=text":                                                 "unknown flag: --ouput",
		"kubectl -n kube-system get lease gpu-spot-autoscaler":                                 "",
		"kubectl -n kube-system get lease gpu-spot-autoscaler-leader":                          "there is no lease gpu-spot-autoscaler-leader",
		"kubectl -n kube-system logs deploy/gpu-spot":                                          "",
		"kubectl -n kube-system logs deploy/gpu-spot-autoscalers":                              "there is no deploy gpu-spot-autoscalers",
		"kubectl get nodes --selektor=x":                                                       "unknown flag: --selektor",
		"kubectl get events -A --field-selector reason=SpotReclaimNotices":                     "there is no Event SpotReclaimNotices",
		"kubectl get pods -A -l app.kubernetes.io/name=autoscaler":                             "nothing of the chart has the label",
		"kubectl -n kube-system exec deploy/gpu-spot-autoscaler -- /gpu-spot-autoscaler doctr": "its help does not say",
		"helm upgrade gpu-spot-autoscaler deploy/chart/gpu-spot-autoscaler --set logLevel=4":   "",
		"helm upgrade gpu-spot-autoscaler deploy/chart/gpu-spot-autoscaler --set loglevel=4":   "Additional property loglevel is not allowed|additional properties 'loglevel' not allowed",
		"helm rollback gpu-spot-autoscaler --namespace kube-system --revision 3":               "unknown flag: --revision",
		"make demo":  "",
		"make demos": "no rule to make target",
		"go test -race -vet=off -run TestHandshake ./test/e2e":             "",
		"go test -race -run TestHandshakes ./test/e2e":                     "no test matches TestHandshakes",
		"go test ./test/end":                                               "no such file or directory",
		"go run ./test/chaos -kills 5":                                     "",
		"go run ./test/chaos -kill 5":                                      "./test/chaos has no flag -kill",
		"docker build -f deploy/Dockerfile --target node-agent -t a:1 .":   "",
		"docker build -f deploy/Dockerfile --target agent -t a:1 .":        "deploy/Dockerfile has no stage agent",
		"docker build -f deploy/Dockerfile --build-arg VERSION=1 -t a:1 .": "deploy/Dockerfile has no argument VERSION",
		"aliyun ecs DescribeInstances --LockReason recycling":              "",
		"aliyun ecs DescribeInstances --LockedReason recycling":            "not a valid parameter",
		"aliyun ess RemoveInstance":                                        "not a valid api of ess",
		"jq -r .items":                                                     "",
		"jq -r .items[":                                                    "exit status 3",
		"curl -k https://127.0.0.1:1/gpu-spot":                             "",
		"curl --insecurely https://127.0.0.1:1/gpu-spot":                   "exit status 2",
	} {
		arguments := strings.Fields(text)
		repository, err := filepath.Abs(root)
		require.NoError(t, err)
		dir := t.TempDir()
		require.NoError(t, os.Symlink(filepath.Join(repository, "deploy"), filepath.Join(dir, "deploy")))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "values.yaml"), []byte("region: cn-hangzhou\nclusterName: my-cluster\n"), 0o644))
		err = c.wrong(dir, arguments[0], arguments[1:])
		if want == "" {
			assert.NoError(t, err, text)
			continue
		}
		if assert.Error(t, err, text) {
			assert.Regexp(t, want, err.Error(), text)
		}
	}
}
