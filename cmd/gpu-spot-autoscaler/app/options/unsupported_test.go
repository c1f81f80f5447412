package options

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/config/flags"
	componentconfig "k8s.io/component-base/config"
	"k8s.io/klog/v2"
)

// replaced are the settings of Cluster Autoscaler that its core reads in parts which are not used here: ours has to.
var replaced = sets.New("EnforceNodeGroupMinSize", "MaxBinpackingTime", "ScaleDownDelayAfterAdd")

// A flag is served where what it sets is read: by Cluster Autoscaler's core, of which its own command and its cloud
// providers are no part, or by the code here. This goes by the source of both, so that it holds for a version of Cluster
// Autoscaler with other flags, too.
func TestEveryFlagIsServedOrRefused(t *testing.T) {
	set := settingsOfCore(t)
	core, ours := sourceOfCore(t), source(t, "../..")+source(t, "../../../../cloudprovider/processors")
	reads := func(text, setting string) bool {
		return regexp.MustCompile(`\.` + setting + `\b`).MatchString(text)
	}
	own, klogs := settingsOfOurs(t), klogFlags()
	for section, flags := range parse(t).Sections().FlagSets {
		if section == sectionLogs || section == sectionFeatures {
			continue // handed over as a whole
		}
		flags.VisitAll(func(f *pflag.Flag) {
			if _, refused := fixed[f.Name]; refused || klogs.Has(f.Name) {
				return
			}
			settings := slices.Concat(set[f.Name], own[f.Name], electionSettings[f.Name])
			served := slices.ContainsFunc(settings, func(setting string) bool {
				return reads(ours, setting) || reads(core, setting) && !replaced.Has(setting)
			})
			assert.True(t, served, "--%s is neither served nor refused: nobody reads %v", f.Name, settings)
		})
	}
}

func TestOnlyFlagsThatExistAreRefused(t *testing.T) {
	all := parse(t).Sections().FlagSets
	exists := func(name string) bool {
		for _, section := range all {
			if section.Lookup(name) != nil {
				return true
			}
		}
		return false
	}
	for name := range fixed {
		assert.True(t, exists(name), name)
	}
	for name, need := range dependent {
		assert.True(t, exists(name), name)
		assert.True(t, exists(need.on), need.on)
	}
}

func TestWhatWouldDoNothingIsRefusedByName(t *testing.T) {
	given := func(values map[string]string) *pflag.FlagSet {
		all := pflag.NewFlagSet("", pflag.ContinueOnError)
		for name, value := range values {
			all.String(name, "default", "")
			require.NoError(t, all.Set(name, value))
		}
		return all
	}
	for name, reason := range fixed {
		problems := unsupported(given(map[string]string{name: "other"}))
		if assert.Len(t, problems, 1) {
			assert.EqualError(t, problems[0], "--"+name+"=other is not supported: "+reason)
		}
		assert.Empty(t, unsupported(given(map[string]string{name: "default"})), "--%s may be given with its default", name)
	}
	for name, need := range dependent {
		problems := unsupported(given(map[string]string{name: "other", need.on: "default"}))
		if assert.Len(t, problems, 1) {
			assert.ErrorContains(t, problems[0], "--"+name+"=other does nothing without --"+need.on+"="+need.value)
		}
		assert.Empty(t, unsupported(given(map[string]string{name: "other", need.on: need.value})))
	}
	assert.Empty(t, unsupported(given(map[string]string{"scan-interval": "other"})))
}

func TestAFlagThatWouldDoNothingEndsTheProcess(t *testing.T) {
	o := parse(t, "--force-ds=false", "--balance-similar-node-groups")
	t.Cleanup(func() { parse(t, "--force-ds=true", "--balance-similar-node-groups=false") })
	var problems []string
	for _, problem := range o.Validate() {
		problems = append(problems, problem.Error())
	}
	assert.Contains(t, problems, "--force-ds=false is not supported: "+fixed["force-ds"])
	assert.Contains(t, problems, "--balance-similar-node-groups=true is not supported: "+fixed["balance-similar-node-groups"])
}

func TestManualNamesEveryFlagThatIsRefused(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/settings.md")
	require.NoError(t, err)
	for name := range fixed {
		assert.Regexp(t, "`--"+name+"[`=]", string(page))
	}
	for name := range dependent {
		assert.Regexp(t, "`--"+name+"[`=]", string(page))
	}
}

// klogFlags are those that klog declares and serves.
func klogFlags() sets.Set[string] {
	declared := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(declared)
	names := sets.New[string]()
	declared.VisitAll(func(f *flag.Flag) { names.Insert(strings.ReplaceAll(f.Name, "_", "-")) })
	return names
}

// electionSettings are the fields behind the flags of leader election.
var electionSettings = func() map[string][]string {
	fields := map[string][]string{}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[componentconfig.LeaderElectionConfiguration]()) {
		// LeaseDuration is --leader-elect-lease-duration, LeaderElect --leader-elect.
		name := strings.ToLower(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(field.Name, "$1-$2"))
		if name != "leader-elect" {
			name = "leader-elect-" + name
		}
		fields[name] = []string{field.Name}
	}
	return fields
}()

// settingsOfCore returns the fields of config.AutoscalingOptions that each flag of Cluster Autoscaler goes into.
func settingsOfCore(t *testing.T) map[string][]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), fileOf(flags.AutoscalingOptions), nil, 0)
	require.NoError(t, err)
	declared := map[string]string{} // flags by their variables
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
			if call, ok := spec.Values[0].(*ast.CallExpr); ok && len(call.Args) > 1 {
				if name := text(call.Args[0]); name != "" {
					declared[spec.Names[0].Name] = name
				} else if strings.HasSuffix(spec.Names[0].Name, "ConfigFile") {
					declared[spec.Names[0].Name] = "scheduler-config-file" // named by a constant
				}
			}
		}
		return true
	})
	from := map[string][]string{} // flags by the variables and fields that are made of them
	collect := func(e ast.Expr) (names []string) {
		ast.Inspect(e, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				names = append(names, from[id.Name]...)
				if name := declared[id.Name]; name != "" {
					names = append(names, name)
				}
			}
			return true
		})
		return names
	}
	set := map[string][]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, to := range n.Lhs {
				if id, ok := to.(*ast.Ident); ok && id.Name != "err" && len(n.Rhs) == 1 {
					from[id.Name] = append(from[id.Name], collect(n.Rhs[0])...)
				}
			}
		case *ast.KeyValueExpr:
			if _, nested := n.Value.(*ast.CompositeLit); nested {
				break
			}
			for _, name := range collect(n.Value) {
				set[name] = append(set[name], n.Key.(*ast.Ident).Name)
			}
		}
		return true
	})
	require.Contains(t, set["scale-down-unneeded-time"], "ScaleDownUnneededTime")
	require.Contains(t, set["cores-total"], "MaxCoresTotal")
	require.Contains(t, set["scheduler-config-file"], "SchedulerConfig")
	return set
}

// settingsOfOurs returns the field of Options that each flag of ours goes into.
func settingsOfOurs(t *testing.T) map[string][]string {
	t.Helper()
	set := map[string][]string{}
	for _, name := range []string{"cloud.go", "faults.go", "options.go", "notices.go", "secure.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 3 {
				return true
			}
			address, ok := call.Args[0].(*ast.UnaryExpr)
			if !ok || address.Op != token.AND || text(call.Args[1]) == "" {
				return true
			}
			// The first field of &o.ReclaimRateLimits.MarkQPS: the struct is handed over as a whole.
			for e := address.X; ; {
				selector, ok := e.(*ast.SelectorExpr)
				if !ok {
					break
				}
				set[text(call.Args[1])] = []string{selector.Sel.Name}
				e = selector.X
			}
			return true
		})
	}
	require.Equal(t, []string{"SettleWindow"}, set["settle-window"])
	return set
}

func text(e ast.Expr) string {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return ""
	}
	value, _ := strconv.Unquote(literal.Value)
	return value
}

// sourceOfCore is what of Cluster Autoscaler is linked: neither its command nor its flags, and no provider.
func sourceOfCore(t *testing.T) string {
	t.Helper()
	root := filepath.Join(filepath.Dir(fileOf(flags.AutoscalingOptions)), "..", "..")
	var all strings.Builder
	for _, directory := range []string{"clusterstate", "context", "core", "debuggingsnapshot", "estimator", "expander", "metrics",
		"observers", "processors", "provisioningrequest", "simulator"} {
		all.WriteString(source(t, filepath.Join(root, directory)))
	}
	all.WriteString(source(t, filepath.Join(root, "utils", "taints")))
	return all.String()
}

// source is the Go source below the directory, without tests and without the declarations of this package.
func source(t *testing.T, directory string) string {
	t.Helper()
	var all strings.Builder
	require.NoError(t, filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		if inside, _ := filepath.Match("../../app/options/*.go", path); inside {
			return nil
		}
		content, err := os.ReadFile(path)
		all.Write(content)
		return err
	}))
	require.NotEmpty(t, all.String(), directory)
	return all.String()
}

// fileOf is the file that the function is declared in.
func fileOf(function any) string {
	pc := reflect.ValueOf(function).Pointer()
	file, _ := runtime.FuncForPC(pc).FileLine(pc)
	return file
}
