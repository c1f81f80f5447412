// Package version says what the binary was built from.
package version

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	core "k8s.io/autoscaler/cluster-autoscaler/version"
	"sigs.k8s.io/yaml"

	"gpu-spot-autoscaler/deploy"
)

// These are set by the linker in the build of the image: -X gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/version.commit=<commit>.
// The repository is not there to be read, and the image may be given another version than that of the chart.
var commit, release string

const unknown = "unknown"

// Info is what a binary was built from. Its JSON is what the subcommand prints with -o json.
type Info struct {
	// Version is that of the release: the chart's appVersion, unless the linker was given another one. Between two releases it is that of
	// the next.
	Version string `json:"version"`
	// Commit is the revision of the source, with the suffix -dirty if there were changes to it. CommitTime is when it was made; both
	// are "unknown" if neither the linker nor the repository said so.
	Commit     string `json:"commit"`
	CommitTime string `json:"commitTime"`
	// ClusterAutoscaler is the version of Cluster Autoscaler's core.
	ClusterAutoscaler string `json:"clusterAutoscaler"`
	// Kubernetes is the version of the linked scheduler, which simulates where pods fit; ClientGo that of the client libraries.
	Kubernetes string `json:"kubernetes"`
	ClientGo   string `json:"clientGo"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
}

// Get returns what this binary was built from.
func Get() Info {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		build = &debug.BuildInfo{}
	}
	return of(build)
}

func of(build *debug.BuildInfo) Info {
	settings := map[string]string{}
	for _, s := range build.Settings {
		settings[s.Key] = s.Value
	}
	modules := map[string]string{}
	for _, m := range build.Deps {
		modules[m.Path] = m.Version
	}
	revision := settings["vcs.revision"]
	if revision != "" && settings["vcs.modified"] == "true" {
		revision += "-dirty"
	}
	return Info{
		Version: cmp.Or(release, appVersion(), unknown),
		Commit:  cmp.Or(commit, revision, unknown), CommitTime: cmp.Or(settings["vcs.time"], unknown),
		ClusterAutoscaler: core.ClusterAutoscalerVersion,
		Kubernetes:        cmp.Or(modules["k8s.io/kubernetes"], unknown), ClientGo: cmp.Or(modules["k8s.io/client-go"], unknown),
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// appVersion returns that of the chart, or "" if it has none.
func appVersion() string {
	var chart struct {
		AppVersion string `json:"appVersion"`
	}
	if err := yaml.Unmarshal(deploy.Chart, &chart); err != nil {
		return ""
	}
	return chart.AppVersion
}

// String returns the text that is printed: a line for each field.
func (i Info) String() string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range [][2]string{
		{"version", i.Version}, {"commit", i.Commit}, {"commit time", i.CommitTime}, {"cluster-autoscaler", i.ClusterAutoscaler},
		{"kubernetes scheduler", i.Kubernetes}, {"client-go", i.ClientGo}, {"go", i.Go}, {"platform", i.Platform},
	} {
		fmt.Fprintf(table, "%s\t%s\n", row[0], row[1])
	}
	_ = table.Flush() // a string takes everything
	return text.String()
}

// NewCommand returns the subcommand.
func NewCommand() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "version",
		Short: "Print what this binary was built from",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return print(command.OutOrStdout(), output, Get())
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "text", "Format: text or json.")
	return command
}

func print(w io.Writer, output string, info Info) error {
	switch output {
	case "text":
		_, err := io.WriteString(w, info.String())
		return err
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(info)
	}
	return fmt.Errorf("--output=%s is neither text nor json", output)
}
