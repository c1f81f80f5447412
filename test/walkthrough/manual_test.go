package walkthrough

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/test/rig"
)

// walked are the pages that are run from the first block to the last, in a world of their own.
var walked = []string{guide}

// stations are the pages that are run in the world of the guide for ACK, by the section before which they are. There is a pod that runs, and its
// first node is reclaiming. A page may go on with what those before it have exported and started.
var stations = map[string][]string{
	"8.": {
		"docs/troubleshooting.md", "docs/faq.md", "docs/security.md", "docs/operations.md", "docs/runbooks", "docs/status.md", "docs/doctor.md",
		"docs/plan.md", "docs/pricing.md", "docs/reclaim.md", "docs/settings.md", "docs/drill.md", "docs/dry-run.md", "docs/costs.md",
		"deploy/examples/README.md",
	},
	"9.": {"docs/upgrade.md", "docs/node-agent.md"},
	// In a cluster with nothing of the autoscaler, see releases_test.go.
	"install": {"docs/install.md"},
}

// apart are the commands that are run by none of these tests, by how they begin, and why. What can be checked of them without is checked.
var apart = []struct{ begins, why string }{
	{"make ", "it builds, tests or measures all of this, or asks a real account: the target has to be in the Makefile"},
	{"CONTRACT_SPEND=yes make ", "it buys in a real account"},
	{"export ALIBABA_CLOUD_ACCESS_KEY_ID=…", "it is for a real account"},
	{"docker build ", "there is no container engine: the file, its arguments and its stages have to exist"},
	{"go test ", "it is a test itself: the packages and a test of that name have to exist"},
	{"go run ", "it measures for minutes, or does not end: the program and its flags have to exist"},
	{"export GOFLAGS=", "it is for the commands of go, which are not run"},
	{"curl -s http://$NODE_IP:8790/", "cmd/node-agent/app runs it against a node-agent"},
	{"curl -s -w '%{http_code}\\n' http://$NODE_IP:8790/", "cmd/node-agent/app runs it against a node-agent"},
	{"kubectl -n kube-system exec POD -- /gpu-spot-autoscaler explain ", "it reads the token of the pod in /var/run/secrets, where the processes of this kubelet have none"},
	{"kubectl get trainingjobs,", "no cluster of the tests has the definitions of all job systems: test/e2e reads the label of each"},
	{"kubectl apply -f pytorch/job.yaml", "this cluster has no definition of a PyTorchJob: deploy/examples compares the manifest with it"},
	{"kubectl -n arena-system scale deployment elastic-job-supervisor ", "this cluster has no Arena, whose deployment it is"},
	{"kubectl apply -f etjob/job.yaml", "this cluster has no definition of a TrainingJob: deploy/examples compares the manifest with it"},
}

// asideOf returns why a command is not run, and "" if it has to be.
func asideOf(text string) string {
	for _, one := range apart {
		if strings.HasPrefix(text, one.begins) {
			return one.why
		}
	}
	return ""
}

// manual returns the pages that are looked at: all that a reader may take commands from.
func manual(t *testing.T) []string {
	t.Helper()
	return append(pagesIn(t, ".", "docs", "docs/runbooks"), "deploy/examples/README.md", "test/README.md")
}

// pagesOf returns the pages of a station.
func pagesOf(t *testing.T, station string) (pages []string) {
	t.Helper()
	for _, page := range stations[station] {
		if strings.HasSuffix(page, ".md") {
			pages = append(pages, page)
			continue
		}
		pages = append(pages, pagesIn(t, page)...)
	}
	return pages
}

func TestCommandsOfTheManualAreThoseThatExist(t *testing.T) {
	checked := newChecker(t)
	for _, page := range manual(t) {
		d := readDocument(t, page)
		blocks := inlineCommandsOf(d)
		if !slices.Contains(walked, page) { // with what else its world has
			blocks = append(blocks, commandsOf(d)...)
		}
		if len(blocks) > 0 {
			t.Run(page, func(t *testing.T) { checked.check(t, blocks) })
		}
	}
}

func TestEachCommandOfTheManualIsRunOrItIsSaidWhyNot(t *testing.T) {
	run := slices.Clone(walked)
	for station := range stations {
		run = append(run, pagesOf(t, station)...)
	}
	used := map[string]bool{}
	for _, page := range manual(t) {
		for _, b := range commandsOf(readDocument(t, page)) {
			for _, text := range commandLines(b) {
				why := asideOf(text)
				used[why] = true
				if why == "" {
					assert.Contains(t, run, page, "%s:%d: run the page in one of the stations, or say in apart why this is not run: %s", page, b.line, text)
				}
			}
		}
	}
	for _, one := range apart {
		assert.True(t, used[one.why], "no page has %q any more", one.begins)
	}
}

var (
	// command is how a line begins that is for a shell.
	command = regexp.MustCompile(`^(\$ )?((kubectl|helm|gpu-spot-autoscaler|aliyun|docker|make|go|curl|cat|export)\b|[A-Za-z_]+=\S)`)
	prompt  = regexp.MustCompile(`^\$ `)
)

// commandsOf returns the blocks that are for a shell, without what they print: those of sh, and those that begin like a command.
func commandsOf(d document) (blocks []block) {
	for _, b := range d.blocks {
		switch {
		case b.language == "sh":
			blocks = append(blocks, b)
		case (b.language == "" || b.language == "console") && command.MatchString(b.text):
			if prompt.MatchString(b.text) {
				b.text = entered(b.text)
			}
			blocks = append(blocks, b)
		}
	}
	return blocks
}

// entered returns the lines with a prompt, and those that continue one.
func entered(text string) string {
	var lines []string
	continued := false
	for _, line := range strings.Split(text, "\n") {
		if continued || prompt.MatchString(line) {
			lines = append(lines, prompt.ReplaceAllString(line, ""))
			continued = strings.HasSuffix(line, `\`)
		}
	}
	return strings.Join(lines, "\n")
}

// commandLines returns the commands of a block, each with the lines that continue it, and without comments.
func commandLines(b block) (commands []string) {
	continued := false
	for _, line := range strings.Split(b.code(), "\n") {
		switch {
		case continued:
			commands[len(commands)-1] += "\n" + line
		case strings.TrimSpace(line) != "":
			commands = append(commands, line)
		}
		continued = strings.HasSuffix(line, `\`)
	}
	return commands
}

// inline is how a piece of code in the prose begins that is a command and not only the name of one.
var inline = regexp.MustCompile(`^(kubectl|helm|gpu-spot-autoscaler|aliyun|docker|make|go|curl|jq) \S`)

// unfinished are pieces of code that are no whole commands.
var unfinished = []string{"kubectl get --raw"}

// inlineCommandsOf returns the commands in the prose and the tables. What "…" stands for in them is left out.
func inlineCommandsOf(d document) (blocks []block) {
	for _, name := range slices.Compact(slices.Clone(d.names)) {
		if text := strings.Trim(name, "`"); inline.MatchString(text) && !slices.Contains(unfinished, text) {
			blocks = append(blocks, block{text: strings.TrimSuffix(text, " …"), section: "(in the prose)"})
		}
	}
	return blocks
}

// says is what a command prints in the world of the guide, by what is in it.
var says = map[string]string{
	"explain pod":                     `(?m)^Summary: |"code"`,
	" top ":                           `(?i)asg-bp1`,
	" savings":                        `(?m)^total `,
	" doctor ":                        `(?m)^(nothing found|error |warning )`,
	"gpu-spot-autoscaler-status":      `ready: true`,
	"get lease gpu-spot-autoscaler":   `gpu-spot-autoscaler`,
	"DescribeScalingActivities":       `ScalingActivityId`,
	"reason=SpotReclaimNotice":        `SpotReclaimNotice`,
	"release-all --dry-run":           `nothing was changed`,
	"rollout status":                  `successfully rolled out`,
	"get validatingadmissionpolicies": `gpu-spot-autoscaler`,
	" plan -f":                        `(?m)^Buys: .* × ecs\.`,
	" drill ":                         `completed: all work is saved`,
	"proxy/gpu-spot/v1/status":        `"pools"`,
	"$FORWARDED/gpu-spot/v1/status":   `"(pools|leader)"`,
	"$base/ledger":                    group,
	"html > status.html":              `(?i)<!doctype html`,
}

// tries is how often a command is given whose answer may be another's, or too early.
const tries = 40

// reader stands for the reader of a page, who puts in what is the reader's own.
var reader = strings.NewReplacer(
	"ap-southeast-1.10.149.23.128", "$NODE",
	"default/train", "default/$POD",
	"--port=8001", "--port=$PROXIED",
	"127.0.0.1:8001", "127.0.0.1:$PROXIED",
	"gpu-spot-autoscaler 8444", "gpu-spot-autoscaler $FORWARDED:8444",
	"127.0.0.1:8444", "127.0.0.1:$FORWARDED",
	"/tmp/model.json", "model.json",
	"helm upgrade gpu-spot-autoscaler …", "helm upgrade gpu-spot-autoscaler deploy/chart/gpu-spot-autoscaler --namespace kube-system --reuse-values",
	"<registry>", public,
	"<cluster-name>", clusterName,
	"<account>", account,
	"<role>", "gpu-spot-autoscaler",
	"<provider>", "ack-rrsa-c1",
)

// preparation makes what has to be there when a command is given. What it returns is called after the command.
type preparation func(w *walk) (after func())

// preparations returns what is made before a command and after it, by how the command begins.
func preparations() map[string]preparation {
	return map[string]preparation{
		"gpu-spot-autoscaler drill ": (*walk).saveWhenAsked,
		"gpu-spot-autoscaler lint pool.yaml": func(w *walk) func() {
			w.shell.ask("cat > pool.yaml <<'END'\n" + poolOfSettings(w.t) + "END\n")
			return func() {}
		},
		"helm install gpu-spot-dry-run ": func(w *walk) func() {
			return func() { w.awaitRollout("gpu-spot-dry-run") }
		},
		"gpu-spot-autoscaler top --autoscaler-name=gpu-spot-dry-run": func(w *walk) func() {
			return func() { w.shell.ask("helm uninstall gpu-spot-dry-run --namespace kube-system") }
		},
		"kubectl -n kube-system scale deployment gpu-spot-autoscaler --replicas=2": func(w *walk) func() {
			return func() { w.awaitRollout("gpu-spot-autoscaler") }
		},
		// docs/install.md
		"helm install gpu-spot-autoscaler ": func(w *walk) func() {
			return func() { releases{w}.awaitReady(rig.Namespace, "gpu-spot-autoscaler") }
		},
		"helm install gpu-spot-b ": func(w *walk) func() {
			return func() {
				releases{w}.awaitReady(secondNamespace, secondName)
				w.shell.ask("helm uninstall gpu-spot-b --namespace " + secondNamespace)
			}
		},
		"gpu-spot-autoscaler release-all\n":                                     (*walk).applyManifests,
		"helm uninstall gpu-spot-autoscaler --namespace kube-system --no-hooks": (*walk).installAgain,
		// deploy/examples/README.md
		"PYTHONPATH=. python3 pytorch/train.py ": (*walk).inExamples,
		"kubectl create configmap elastic-":      (*walk).inExamples,
	}
}

// awaitRollout waits until the release runs, and has its Service lead there.
func (w *walk) awaitRollout(name string) {
	w.shell.ask("kubectl -n kube-system rollout status deployment/" + name + " --timeout=3m")
	w.openService(rig.Namespace, name)
}

// applyManifests installs the manifests as they are shipped, but without pods: their image is not in a registry.
func (w *walk) applyManifests() func() {
	w.shell.ask("mkdir manifests && cp deploy/manifests/*.yaml manifests/ && sed -i 's/replicas: 2/replicas: 0/' manifests/deployment.yaml && kubectl apply -f manifests")
	return func() {}
}

// installAgain installs the release with the command of the page.
func (w *walk) installAgain() func() {
	for _, b := range commandsOf(readDocument(w.t, "docs/install.md")) {
		if strings.HasPrefix(b.text, "helm install gpu-spot-autoscaler ") {
			w.give("docs/install.md", b, reader.Replace(b.code()))
		}
	}
	return func() {}
}

// inExamples has the next commands run in deploy/examples.
func (w *walk) inExamples() func() {
	dir := w.shell.dir
	w.shell.dir = w.t.TempDir()
	examples, err := filepath.Abs(filepath.Join(root, "deploy/examples"))
	require.NoError(w.t, err)
	require.NoError(w.t, os.CopyFS(w.shell.dir, os.DirFS(examples)))
	return func() { w.shell.dir = dir }
}

// poolOfSettings returns the settings of a pool that docs/settings.md has as an example.
func poolOfSettings(t *testing.T) string {
	t.Helper()
	for _, b := range readDocument(t, "docs/settings.md").blocks {
		if strings.Contains(b.text, "kind: ConfigMap") {
			return b.text
		}
	}
	require.Fail(t, "docs/settings.md has no ConfigMap")
	return ""
}

// saveWhenAsked has the pod of the guide acknowledge its checkpoint, as its training code would, until it is stopped.
func (w *walk) saveWhenAsked() func() {
	w.shell.ask(`kubectl annotate pod "$POD" --overwrite gpu-spot.autoscaling/await-checkpoint=true`)
	pod := w.shell.ask(`printf %s "$POD"`)
	ctx, cancel := context.WithCancel(w.t.Context())
	var saving sync.WaitGroup
	saving.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(kubeletPeriod)
			now, err := w.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, pod, metav1.GetOptions{})
			if err != nil || now.Annotations[api.AnnotationCheckpointRequest] == "" {
				continue
			}
			patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, api.AnnotationCheckpointAcknowledged, now.Annotations[api.AnnotationCheckpointRequest])
			_, _ = w.Client.CoreV1().Pods(now.Namespace).Patch(ctx, pod, types.MergePatchType, []byte(patch), metav1.PatchOptions{}) // it tries again
		}
	})
	return func() {
		cancel()
		saving.Wait()
	}
}

// runPages runs the commands of the pages as they are written, but for those that are apart and for what the reader puts in.
func (w *walk) runPages(pages ...string) {
	proxied, err := rig.FreePort(w.t.Context(), "127.0.0.1")
	require.NoError(w.t, err)
	forwarded, err := rig.FreePort(w.t.Context(), "127.0.0.1")
	require.NoError(w.t, err)
	w.shell.ask("export PROXIED=" + proxied + " FORWARDED=" + forwarded)
	w.shell.ask(`sed 's/name: first/name: train/' deploy/examples/ack/job.yaml > job.yaml`)
	defer w.shell.stopBackground()
	for _, page := range pages {
		began := time.Now()
		for _, b := range commandsOf(readDocument(w.t, page)) {
			for _, text := range commandLines(b) {
				if why := asideOf(text); why != "" {
					w.t.Logf("%s:%d: not run, because %s: %s", page, b.line, why, text)
					continue
				}
				w.give(page, b, reader.Replace(text))
			}
		}
		w.t.Logf("%s took %.1f s", page, time.Since(began).Seconds())
	}
}

// enter runs a command, which has the variables that the ones before have set, as in the shell of a reader. What it writes to a file counts as printed.
func (w *walk) enter(text string) (printed string, state *os.ProcessState, total time.Duration) {
	printed, state, total = w.shell.execute("set -a\n" + text)
	if match := redirection.FindStringSubmatch(text); match != nil {
		written, err := os.ReadFile(filepath.Join(w.shell.dir, match[1]))
		assert.NoError(w.t, err)
		printed += string(written)
	}
	return printed, state, total
}

var (
	// background is how a command ends, or what it is, that goes on while the next ones are given.
	background = regexp.MustCompile(`( &|^kubectl .* port-forward .*)$`)
	// redirection is the file to which a command writes.
	redirection = regexp.MustCompile(` > (\S+)$`)
)

// give runs a command of a page.
func (w *walk) give(page string, b block, text string) {
	where := fmt.Sprintf("%s, %s (line %d)", page, b.section, b.line)
	if background.MatchString(text) {
		w.t.Logf("%s\n%s\n%s", where, quote(text), w.shell.startBackground(strings.TrimSuffix(text, " &")))
		return
	}
	for begins, prepare := range preparations() {
		if strings.HasPrefix(text+"\n", begins) {
			defer prepare(w)()
		}
	}
	out, state, total := w.enter(text)
	for range tries {
		if !asksAnotherReplica(text, out) && !isBeforeReady(text, out) {
			break
		}
		time.Sleep(kubeletPeriod)
		out, state, total = w.enter(text)
	}
	w.t.Logf("%s, %.1f s\n%s\n%.4000s", where, total.Seconds(), quote(text), out)
	// doctor ends with 1 if it finds something.
	assert.True(w.t, state.Success() || strings.Contains(text, " doctor ") && state.ExitCode() == 1, "%s:%d: %v\n%s", page, b.line, state, out)
	for part, want := range says {
		if strings.Contains(text+"\n", part) {
			assert.Regexp(w.t, want, out, "%s:%d", page, b.line)
		}
	}
}

// asksAnotherReplica says whether the Service has led a command to a replica that does not lead.
func asksAnotherReplica(text, out string) bool {
	return strings.HasPrefix(text, "curl -H") &&
		(strings.Contains(out, "this replica does not lead") || strings.Contains(out, `"leader"`) && !strings.Contains(out, `"pools"`))
}

// isBeforeReady says whether a command has read the status just before the leader wrote that it is ready: the rollout ends sooner here than
// the two seconds for which changes of the status are gathered.
func isBeforeReady(text, out string) bool {
	return strings.Contains(text, "get configmap gpu-spot-autoscaler-status") && strings.Contains(out, "ready: false")
}

// openService has the Service of a release lead to its pods, each of which listens at a port of its own here.
func (w *walk) openService(namespace, name string) {
	kubectl := "kubectl -n " + namespace + " "
	w.shell.ask(kubectl + "patch service " + name + ` --type=merge --patch '{"spec": {"selector": null}}'`)
	w.shell.ask(kubectl + "delete endpoints,endpointslices -l kubernetes.io/service-name=" + name + "; " + kubectl + "delete endpoints " + name + " --ignore-not-found")
	w.shell.ask("kubectl apply -f - <<END\n" + w.kubelet.endpoints(namespace, name) + "END\n")
}

// endpoints returns the Endpoints of the Service, by which the API server's proxy goes.
func (k *kubelet) endpoints(namespace, name string) string {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	var subsets strings.Builder
	for _, c := range k.running {
		if c.secure == "" || c.over || !c.told.IsZero() || c.pod.Namespace != namespace {
			continue
		}
		host, port, _ := net.SplitHostPort(c.secure)
		fmt.Fprintf(&subsets, "  - addresses: [{ip: %s, targetRef: {kind: Pod, namespace: %s, name: %s}}]\n    ports: [{name: https, port: %s}]\n", host, c.pod.Namespace, c.pod.Name, port)
	}
	return "apiVersion: v1\nkind: Endpoints\nmetadata: {name: " + name + ", namespace: " + namespace + "}\nsubsets:\n" + subsets.String()
}

// ownAddress returns an address of this machine to which the API server's proxy connects: loopback it refuses.
func ownAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && network.IP.To4() != nil && network.IP.IsGlobalUnicast() {
			return network.IP.String()
		}
	}
	require.Fail(t, "this machine has no address but loopback")
	return ""
}
