package api_test

import (
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// constants are the values of a file of this package, by name.
func constants(t *testing.T, file string) map[string]string {
	t.Helper()
	found := map[string]string{}
	ast.Inspect(sources(t, ".")[file], func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			value, err := strconv.Unquote(spec.Values[i].(*ast.BasicLit).Value)
			require.NoError(t, err)
			found[name.Name] = value
		}
		return false
	})
	require.NotEmpty(t, found, file)
	return found
}

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + name)
	require.NoError(t, err)
	return string(text)
}

func TestSettingsExplainEveryTagOfAPoolAndNoOther(t *testing.T) {
	text := page(t, "settings.md")
	_, table, found := strings.Cut(text, "\n## Settings of a pool\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n##")
	explained := sets.New[string]()
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`<]+)(?:<[^`]*)?` \\|").FindAllStringSubmatch(table, -1) {
		explained.Insert(row[1])
	}

	inTable := sets.New(api.Prefix+"label/", api.Prefix+"taint/", api.Prefix+"resources/") // TagNodeTemplate's may follow Prefix
	for name, value := range constants(t, "pools.go") {
		switch name {
		case "TagContract", "TagContractMaySpend": // no setting: docs/contract.md explains it
		case "TagNodeTemplate", "TagNodeTemplateUnderscore", "TagPriceCapOfUnderscore", "LabelPool":
			assert.Contains(t, text, value, "%s has a place of its own below the table", name)
		default:
			inTable.Insert(value)
		}
	}
	assert.Equal(t, sets.List(inTable), sets.List(explained))
}

func TestJobsExplainEveryKeyOfAJobAndNoOther(t *testing.T) {
	text := page(t, "jobs.md")
	for name, value := range constants(t, "jobs.go") {
		short := "`…/" + strings.TrimPrefix(value, api.Prefix) + "`"                                   // a table names several keys with one prefix
		internal := strings.HasPrefix(name, "AnnotationHeld") || strings.HasPrefix(name, "LabelKueue") // no owner need know them
		elsewhere := name == "CallerHost" || name == "AnnotationAwaitedAcknowledgements" || name == "AnnotationCheckpointIntervals" || name == "LabelKeepOffReclaiming"
		assert.True(t, internal || elsewhere || strings.Contains(text, value) || strings.Contains(text, short), "%s is not explained", name)
	}
}

// Keys in the docs whose domain is among those of this package have to be keys of this package, too.
func TestSettingsAndJobsNameNoKeyThatIsNotHere(t *testing.T) {
	known := []string{api.Prefix + "label", api.Prefix + "taint", api.Prefix + "resources"}
	domains := sets.New[string]()
	for path := range sources(t, ".") {
		for _, value := range constants(t, path) {
			if domain, _, ok := strings.Cut(value, "/"); ok {
				domains.Insert(domain)
				known = append(known, value)
			}
		}
	}
	// The keys with which others declare gangs are where they are read.
	for _, file := range sources(t, "../jobs/gangs") {
		ast.Inspect(file, func(node ast.Node) bool {
			if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				value, err := strconv.Unquote(literal.Value)
				require.NoError(t, err)
				known = append(known, value)
			}
			return true
		})
	}
	// What this project neither reads nor writes.
	others := sets.New("nvidia.com/mig", "nvidia.com/mig-1g.10gb")
	named := 0
	for _, name := range []string{"settings.md", "jobs.md"} {
		for _, match := range regexp.MustCompile(`([a-z0-9.-]+\.[a-z]{2,})/([A-Za-z0-9._-]*[A-Za-z0-9_])`).FindAllStringSubmatch(page(t, name), -1) {
			key, domain := match[0], match[1]
			if !domains.Has(domain) || others.Has(key) {
				continue
			}
			named++
			assert.True(t, slices.ContainsFunc(known, func(value string) bool {
				return key == value || strings.HasSuffix(value, "/") && strings.HasPrefix(key, value) || strings.HasSuffix(value, "_") && strings.HasPrefix(key, value) ||
					strings.HasPrefix(value, key+"/")
			}), "docs/%s names %s", name, key)
		}
	}
	assert.NotZero(t, named)
}
