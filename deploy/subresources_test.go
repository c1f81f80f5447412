package deploy_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The admission policies for pods and Nodes match no subresources, so no role may grant any that the policies would have to narrow.
func TestRolesGrantNoSubresourceOfPodsAndNodesButEvictions(t *testing.T) {
	subresource := regexp.MustCompile(`\b(pods|nodes)/[a-z*]+`)
	for _, name := range []string{"rbac.yaml", "optional/node-agent.yaml"} {
		manifest, err := os.ReadFile("manifests/" + name)
		require.NoError(t, err)
		for _, found := range subresource.FindAllString(string(manifest), -1) {
			assert.Equal(t, "pods/eviction", found, name)
		}
	}
}
