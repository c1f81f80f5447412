package deploy_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// alertRule is what the tests read of an alert.
type alertRule struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

// alertRules returns the alerts that the chart renders with the values.
func alertRules(t *testing.T, values string) (group string, rules []alertRule) {
	t.Helper()
	for _, document := range strings.Split(string(helmWith(t, values)), "\n---\n") {
		if !strings.Contains(document, "kind: PrometheusRule") {
			continue
		}
		var rule struct {
			Spec struct {
				Groups []struct {
					Name  string
					Rules []alertRule
				}
			}
		}
		require.NoError(t, utilyaml.Unmarshal([]byte(document), &rule))
		require.Len(t, rule.Spec.Groups, 1)
		group, rules = rule.Spec.Groups[0].Name, rule.Spec.Groups[0].Rules
	}
	require.NotEmpty(t, rules)
	return group, rules
}

// Otherwise the metrics of one release hide that those of the other are missing, or bad.
func TestAlertsOfOneOfSeveralReleasesReadItsMetricsAlone(t *testing.T) {
	const matchers = `job=~"gpu-spot-b|.+/gpu-spot-b-node-agent$", namespace="team-b"`
	selector := regexp.MustCompile(`(?:gpu_spot|cluster_autoscaler)_\w+(\{[^}]*\})?`)
	_, plain := alertRules(t, "alerts: {enabled: true}")
	group, ours := alertRules(t, "fullnameOverride: gpu-spot-b\nalerts: {enabled: true, runbooks: 'https://example.com/runbooks', matchers: '"+matchers+"'}")
	assert.Equal(t, "gpu-spot-b", group, "a group that is there twice is refused where both are in one namespace")
	require.Len(t, ours, len(plain))
	for i, rule := range ours {
		found := selector.FindAllStringSubmatch(rule.Expr, -1)
		require.NotEmpty(t, found, rule.Alert)
		for _, each := range found {
			assert.True(t, strings.HasPrefix(each[1], "{"+matchers), "%s: %s", rule.Alert, each[0])
		}
		assert.Equal(t, plain[i].Expr, strings.NewReplacer("{"+matchers+"}", "", matchers+", ", "").Replace(rule.Expr), "and are the same else")
		assert.Equal(t, "gpu-spot-b", rule.Labels["release"], rule.Alert)
		assert.Equal(t, plain[i].Labels["severity"], rule.Labels["severity"])
		assert.Equal(t, plain[i].Annotations["description"], rule.Annotations["description"])
		assert.Equal(t, "https://example.com/runbooks/"+rule.Alert+".md", rule.Annotations["runbook_url"])
		assert.NotContains(t, plain[i].Labels, "release")
	}
}
