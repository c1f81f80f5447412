package walkthrough

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/test/rig"
)

// held is how the commands of a page are held to what is there.
type held string

const (
	// walked pages are run from the first block to the last, in a world of their own.
	walked held = "walked"
	// ran pages are run in the world of the guide for ACK, see stations. Each of their shell blocks has to end well there.
	ran held = "run"
	// parsed pages are read by bash, which calls commands that check how they are called and do nothing: see checked_test.go.
	parsed held = "parsed"
)

// manual is every page of the manual that has commands, and how they are held. A page that is not here fails the test.
var manual = map[string]held{
	"docs/ack.md":             walked,
	"docs/troubleshooting.md": ran,
	"docs/faq.md":             ran,
	"docs/security.md":        ran,
	"docs/upgrade.md":         ran,
	"docs/operations.md":      parsed,
	"docs/install.md":         parsed,
	"docs/doctor.md":          parsed,
	"docs/dry-run.md":         parsed,
	"docs/plan.md":            parsed,
	"docs/drill.md":           parsed,
	"docs/status.md":          parsed,
	"docs/costs.md":           parsed,
	"docs/pricing.md":         parsed,
	"docs/reclaim.md":         parsed,
	"docs/jobs.md":            parsed,
	"docs/settings.md":        parsed,
	"docs/node-agent.md":      parsed,
	"docs/contract.md":        parsed,
	"docs/peers.md":           parsed,
}

// stations says before which section of the guide for ACK the pages that are run in its world are run.
var stations = map[string][]string{
	"8.": {"docs/troubleshooting.md", "docs/faq.md", "docs/security.md"}, // a pod runs, its first node is reclaiming
	"9.": {"docs/upgrade.md"},
}

func TestCommandsOfTheManualAreThoseThatExist(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	runbooks, err := filepath.Glob(filepath.Join(root, "docs/runbooks", "*.md"))
	require.NoError(t, err)
	checked := newChecker(t)
	for _, file := range append(pages, runbooks...) {
		page, err := filepath.Rel(root, file)
		require.NoError(t, err)
		blocks := commandsOf(readDocument(t, page))
		how, known := manual[page]
		if filepath.Dir(page) == "docs/runbooks" {
			how, known = parsed, true
		}
		if !known {
			assert.Empty(t, blocks, "%s has commands: say in manual how they are held", page)
			continue
		}
		assert.True(t, len(blocks) > 0 || filepath.Dir(page) == "docs/runbooks", "%s has no commands any more", page)
		if how == walked {
			continue // with what else its world has
		}
		t.Run(page, func(t *testing.T) { checked.check(t, blocks) })
	}
	for page, how := range manual {
		_, err := os.Stat(filepath.Join(root, page))
		assert.NoError(t, err)
		if how == ran {
			assert.True(t, slices.ContainsFunc([]string{"8.", "9."}, func(at string) bool { return slices.Contains(stations[at], page) }), "%s is run nowhere", page)
		}
	}
}

var (
	// command is how a line begins that is for a shell.
	command = regexp.MustCompile(`^(\$ )?(kubectl|helm|gpu-spot-autoscaler|aliyun|docker|make|go|curl|cat|export|[A-Za-z_]+=)\b`)
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

// says is what a command prints in the world of the guide, by what is in the block.
var says = map[string]string{
	"explain pod":                     `(?m)^Summary: `,
	" top ":                           `(?i)asg-bp18p2yfxow2dloq1234`,
	" savings":                        `(?m)^total `,
	" doctor ":                        `(?m)^(nothing found|error |warning )`,
	"gpu-spot-autoscaler-status":      `ready: true`,
	"get lease gpu-spot-autoscaler":   `gpu-spot-autoscaler`,
	"DescribeScalingActivities":       `ScalingActivityId`,
	"reason=SpotReclaimNotice":        `SpotReclaimNotice`,
	"release-all --dry-run":           `nothing was changed`,
	"rollout status":                  `successfully rolled out`,
	"get validatingadmissionpolicies": `gpu-spot-autoscaler`,
}

// runPages runs the shell blocks of the pages, as they are written.
func (w *walk) runPages(pages ...string) {
	w.openService(rig.Namespace, "gpu-spot-autoscaler")
	for _, page := range pages {
		for _, b := range commandsOf(readDocument(w.t, page)) {
			out, state, total := w.shell.execute(b.text)
			w.t.Logf("%s, %s (line %d, %.1f s)\n%s\n%s", page, b.section, b.line, total.Seconds(), quote(b.text), out)
			// doctor ends with 1 if it finds something.
			assert.True(w.t, state.Success() || strings.Contains(b.text, " doctor ") && state.ExitCode() == 1, "%s:%d: %v", page, b.line, state)
			for part, want := range says {
				if strings.Contains(b.text, part) {
					assert.Regexp(w.t, want, out, "%s:%d", page, b.line)
				}
			}
		}
	}
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
