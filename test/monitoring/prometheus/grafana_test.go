package prometheus_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// Grafana ignores fields that it does not know, so a panel with a misspelt option shows something else. These types are generated from
// Grafana's own schemas.
func TestDashboardsHaveOnlyFieldsThatGrafanaKnows(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	paths, err := filepath.Glob(filepath.Join(root, "deploy", "dashboards", "*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("found no dashboards: %v", err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		err = new(dashboard.Dashboard).UnmarshalJSONStrict(text)
		// Where nothing is wrong, it returns a list of errors that is empty, and no nil.
		if found := (cog.BuildErrors)(nil); err != nil && (!errors.As(err, &found) || len(found) > 0) {
			t.Errorf("%s: %v", filepath.Base(path), err)
		}
	}
}
