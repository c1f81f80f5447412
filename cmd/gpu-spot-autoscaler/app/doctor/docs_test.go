package doctor

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOperatorsCanReadUpEveryCode compares the tables of docs/doctor.md with the codes.
func TestOperatorsCanReadUpEveryCode(t *testing.T) {
	text, err := os.ReadFile(repository + "docs/doctor.md")
	require.NoError(t, err)
	var explained []Code
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-z_, ]+) \| (error|warning|error, warning) \| `).FindAllStringSubmatch(string(text), -1) {
		for code := range strings.SplitSeq(row[1], ", ") {
			explained = append(explained, Code(code))
		}
	}
	assert.ElementsMatch(t, Codes, explained)
}

func TestTheTestedVersionsOfKubernetesAreThoseOfTheDocs(t *testing.T) {
	text, err := os.ReadFile(repository + "docs/install.md")
	require.NoError(t, err)
	assert.Contains(t, string(text), "("+oldestUsable.String()+" or newer)")
	assert.Contains(t, string(text), "the control plane of Kubernetes "+newestTested.String()+".")
}

func TestThePoliciesAreThoseOfTheManifests(t *testing.T) {
	for manifest, want := range map[string][]string{
		"policies.yaml":         slices.Concat(ownPolicies, otherPolicies),
		"optional/dry-run.yaml": slices.Concat(ownPolicies, dryRunPolicies),
	} {
		text, err := os.ReadFile(repository + "deploy/manifests/" + manifest)
		require.NoError(t, err)
		var shipped []string
		for _, found := range regexp.MustCompile(`kind: ValidatingAdmissionPolicy\nmetadata:\n  name: gpu-spot-(?:autoscaler|dry-run)(\S*)\n`).FindAllStringSubmatch(string(text), -1) {
			shipped = append(shipped, found[1])
		}
		assert.ElementsMatch(t, want, shipped, manifest)
	}
}
