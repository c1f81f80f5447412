package api_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"

	"gpu-spot-autoscaler/cloudprovider/api"
)

const module = "gpu-spot-autoscaler/"

// sources are the files of a directory and those below it, tests aside.
func sources(t *testing.T, directory string) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	require.NoError(t, filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files[path], err = parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		return err
	}))
	require.NotEmpty(t, files, directory)
	return files
}

func imports(t *testing.T, file *ast.File) (paths []string) {
	t.Helper()
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		paths = append(paths, path)
	}
	return paths
}

func TestKeysAreSpeltNowhereElse(t *testing.T) {
	keys := []string{
		api.Prefix, api.TagCluster, api.TagNodeTemplateUnderscore, "cluster-autoscaler.kubernetes.io/", "job-supervisor.kube-ai.io/",
		"ack.alibabacloud.com/", "node.alibabacloud.com/", api.LabelNodePool, "aliyun.accelerator/", api.ResourceGPUPrefixACK,
	}
	for _, directory := range []string{"..", "../../pricing", "../../cmd"} {
		for path, file := range sources(t, directory) {
			if filepath.Dir(path) == "../api" {
				continue
			}
			ast.Inspect(file, func(node ast.Node) bool {
				text, ok := node.(*ast.BasicLit)
				if ok && text.Kind == token.STRING {
					spelt := slices.ContainsFunc(keys, func(key string) bool { return strings.Contains(text.Value, key) })
					assert.False(t, spelt, "%s spells %s, which belongs into cloudprovider/api", path, text.Value)
				}
				return true
			})
		}
	}
}

func TestKeysAreFitForWhatTheyAreOn(t *testing.T) {
	for path, file := range sources(t, ".") {
		assert.Empty(t, imports(t, file), "%s: everybody imports this package, it imports nobody", path)
		ast.Inspect(file, func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, name := range spec.Names {
				text, ok := spec.Values[i].(*ast.BasicLit)
				require.True(t, ok, "%s does not stand in full", name)
				value, err := strconv.Unquote(text.Value)
				require.NoError(t, err)
				switch {
				case strings.HasPrefix(name.Name, "Tag"): // some begin what the user completes
					assert.LessOrEqual(t, len(value), 64, "%s is longer than several tools let a tag be", name)
				case !strings.Contains(name.Name, "Prefix"):
					assert.Empty(t, validation.IsQualifiedName(value), name)
				}
			}
			return false
		})
	}
}

func TestTheNodeAgentImportsNothingElseOfTheProject(t *testing.T) {
	for path, file := range sources(t, "../../cmd/node-agent") {
		for _, imported := range imports(t, file) {
			leaf := slices.Contains([]string{"cmd/internal/callers", "cloudprovider/api", "cloudprovider/wire"}, strings.TrimPrefix(imported, module))
			assert.True(t, leaf || strings.HasPrefix(imported, module+"cmd/node-agent/") || !strings.HasPrefix(imported, module), "%s imports %s", path, imported)
		}
	}
}

// Names follow https://prometheus.io/docs/practices/naming/.
func TestMetricsAreNamedByConvention(t *testing.T) {
	seen := 0
	for _, directory := range []string{"..", "../../pricing", "../../cmd"} {
		for _, file := range sources(t, directory) {
			ast.Inspect(file, func(node ast.Node) bool {
				kind, name := metricOf(node)
				if kind == "" {
					return true
				}
				seen++
				assert.True(t, strings.HasPrefix(name, api.MetricPrefix), name)
				assert.Equal(t, kind == "CounterOpts", strings.HasSuffix(name, "_total"), "%s: counters end in _total, and only they", name)
				return true
			})
		}
	}
	assert.NotZero(t, seen)
}

// metricOf is the kind and the name of what prometheus.CounterOpts{Name: ...} and the like describe.
func metricOf(node ast.Node) (kind, name string) {
	options, ok := node.(*ast.CompositeLit)
	if !ok {
		return "", ""
	}
	of, ok := options.Type.(*ast.SelectorExpr)
	if !ok || !strings.HasSuffix(of.Sel.Name, "Opts") {
		return "", ""
	}
	for _, element := range options.Elts {
		field, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		key, _ := field.Key.(*ast.Ident)
		value, _ := field.Value.(*ast.BasicLit)
		if key != nil && key.Name == "Name" && value != nil {
			name, _ = strconv.Unquote(value.Value)
			return of.Sel.Name, name
		}
	}
	return "", ""
}
