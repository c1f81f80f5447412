package lint

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// arguments are those of the resources in docs/ack.md. Source: website/docs/r of aliyun/terraform-provider-alicloud (81c43b6727a0), and
// developer.hashicorp.com/terraform/language/resources/terraform-data.
var arguments = map[string][]string{
	"alicloud_cs_kubernetes_node_pool": {
		"cluster_id", "node_pool_name", "vswitch_ids", "instance_types", "key_name", "system_disk_category", "system_disk_size", "spot_strategy",
		"multi_az_policy", "spot_instance_remedy", "compensate_with_on_demand", "scaling_config",
	},
	"alicloud_ess_scaling_group": {
		"scaling_group_name", "min_size", "max_size", "vswitch_ids", "multi_az_policy", "spot_instance_remedy", "compensate_with_on_demand", "tags",
	},
	"alicloud_ess_scaling_configuration": {
		"scaling_group_id", "active", "enable", "instance_types", "image_id", "security_group_id", "key_name", "role_name", "system_disk_category",
		"system_disk_size", "spot_strategy", "user_data",
	},
	"alicloud_ram_policy":                 {"policy_name", "policy_document"},
	"alicloud_ram_role":                   {"role_name", "assume_role_policy_document"},
	"alicloud_ram_role_policy_attachment": {"role_name", "policy_name", "policy_type"},
	"terraform_data":                      {"input", "provisioner"},
}

var (
	terraform = regexp.MustCompile("(?s)```hcl\n(.*?)```")
	resource  = regexp.MustCompile(`(?ms)^resource "(\w+)" "(\w+)" \{\n(.*?)^\}`)
	argument  = regexp.MustCompile(`(?m)^  (\w+)(?: "[\w-]+")? *(= *|\{)(.*)$`)
	tagsOf    = regexp.MustCompile(`(?ms)^  tags = (\{.*?^  \})`)
)

// planOf returns the plan of what is written, as far as it can be told without running Terraform: the arguments that are plain values.
func planOf(t *testing.T, text string) string {
	t.Helper()
	type planned struct {
		Address string         `json:"address"`
		Type    string         `json:"type"`
		Values  map[string]any `json:"values"`
	}
	var all []planned
	for _, match := range resource.FindAllStringSubmatch(text, -1) {
		p := planned{Address: match[1] + "." + match[2], Type: match[1], Values: map[string]any{}}
		for _, a := range argument.FindAllStringSubmatch(match[3], -1) {
			assert.True(t, slices.Contains(arguments[p.Type], a[1]), "%s has no argument %s", p.Type, a[1])
			var value any
			if json.Unmarshal([]byte(a[3]), &value) == nil {
				p.Values[a[1]] = value
			}
		}
		if tags := tagsOf.FindStringSubmatch(match[3]); tags != nil {
			asJSON := regexp.MustCompile(`(?m)" *= *("[^"]*")$`).ReplaceAllString(tags[1], `": $1,`)
			asJSON = regexp.MustCompile(`,\s*\}`).ReplaceAllString(asJSON, "}")
			var value any
			require.NoError(t, json.Unmarshal([]byte(asJSON), &value), asJSON)
			p.Values["tags"] = value
		}
		all = append(all, p)
	}
	require.NotEmpty(t, all)
	plan, err := json.Marshal(map[string]any{"planned_values": map[string]any{"root_module": map[string]any{"resources": all}}})
	require.NoError(t, err)
	return string(plan)
}

func TestTheTerraformOfTheDocsIsInOrder(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/ack.md")
	require.NoError(t, err)
	blocks := terraform.FindAllStringSubmatch(string(text), -1)
	require.Len(t, blocks, 2)
	for _, block := range blocks {
		found, err := File("plan", []byte(planOf(t, block[1])), nil)
		require.NoError(t, err)
		assert.Empty(t, found)
	}
	require.Contains(t, blocks[1][1], terraformGroup)
	for before, after := range map[string]string{
		`= "owned"`:  `= "true"`,
		`"PRIORITY"`: `"COST_OPTIMIZED"`, // and with that what is on by default
		"max-size":   "max-sise",
	} {
		changed := strings.Replace(blocks[1][1], before, after, 1)
		if before == `"PRIORITY"` {
			changed = regexp.MustCompile(`(?m)^  compensate_with_on_demand.*\n`).ReplaceAllString(changed, "")
		}
		found, err := File("plan", []byte(planOf(t, changed)), nil)
		require.NoError(t, err)
		assert.Len(t, found, 1, "%s in place of %s", after, before)
	}
}
