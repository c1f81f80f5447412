package ram

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const document = `{"Version": "1", "Statement": [
  {"Effect": "Allow", "Action": ["ess:Describe*", "ecs:DescribePrice"], "Resource": "*"},
  {"Effect": "Allow", "Action": "ess:RemoveInstances", "Resource": ["*"],
   "Condition": {"StringEquals": {"acs:ResourceTag/k8s.io/cluster-autoscaler/a": ["owned", "shared"]}}},
  {"Effect": "Deny", "Action": "ess:DescribeRegions", "Resource": "*"}]}`

func TestAnActionIsAllowedWhereAStatementAllowsItAndNoneDeniesIt(t *testing.T) {
	policy, err := Parse([]byte(document))
	require.NoError(t, err)
	const tag = "k8s.io/cluster-autoscaler/a"
	for _, c := range []struct {
		name, action string
		tags         map[string]string
		allowed      bool
	}{
		{"named by a pattern", "ess:DescribeScalingGroups", nil, true},
		{"named in full", "ecs:DescribePrice", nil, true},
		{"of another service", "ecs:DescribeScalingGroups", nil, false},
		{"named nowhere", "ess:DeleteScalingGroup", nil, false},
		{"denied although a pattern allows it", "ess:DescribeRegions", nil, false},
		{"on a resource with the tag", "ess:RemoveInstances", map[string]string{tag: "owned", "other": "x"}, true},
		{"on a resource with the tag's other value", "ess:RemoveInstances", map[string]string{tag: "shared"}, true},
		{"on a resource with another value", "ess:RemoveInstances", map[string]string{tag: "x"}, false},
		{"on a resource of another cluster", "ess:RemoveInstances", map[string]string{tag + "b": "owned"}, false},
		{"on a resource without tags", "ess:RemoveInstances", nil, false},
	} {
		assert.Equal(t, c.allowed, policy.Allows(Access{Action: c.action, ResourceTags: c.tags}), c.name)
	}
	assert.Equal(t, []string{"ecs:DescribePrice", "ess:Describe*", "ess:RemoveInstances"}, policy.Actions())
}

func TestAPolicyThatWouldBeDecidedOtherwiseIsRefused(t *testing.T) {
	for complaint, statement := range map[string]string{
		`Effect "allow"`:  `{"Effect": "allow", "Action": "*", "Resource": "*"}`,
		"Resource":        `{"Effect": "Allow", "Action": "*", "Resource": "acs:ess:*:*:scalinggroup/asg-1"}`,
		"acs:SourceIp":    `{"Effect": "Allow", "Action": "*", "Resource": "*", "Condition": {"StringEquals": {"acs:SourceIp": "::1"}}}`,
		"StringNotEquals": `{"Effect": "Allow", "Action": "*", "Resource": "*", "Condition": {"StringNotEquals": {"acs:ResourceTag/a": "b"}}}`,
		"NotAction":       `{"Effect": "Allow", "NotAction": "*", "Resource": "*"}`,
	} {
		_, err := Parse([]byte(`{"Version": "1", "Statement": [` + statement + `]}`))
		assert.ErrorContains(t, err, complaint)
	}
	_, err := Parse([]byte(`{"Statement": []}`))
	assert.ErrorContains(t, err, "Version")
}

func TestAConditionOnARequestHoldsForWhatTheRequestSays(t *testing.T) {
	policy, err := Parse([]byte(`{"Version": "1", "Statement": [
  {"Effect": "Allow", "Action": "ecs:RunInstances", "Resource": "*", "Condition": {"StringEquals": {"acs:RequestTag/a": "owned"}}},
  {"Effect": "Allow", "Action": "ram:PassRole", "Resource": "acs:ram:*:*:role/Worker-*", "Condition": {"StringEquals": {"acs:Service": "ecs.aliyuncs.com"}}}]}`))
	require.NoError(t, err)
	tagged := map[string]string{"a": "owned"}
	for _, c := range []struct {
		name    string
		access  Access
		allowed bool
	}{
		{"the tag is set", Access{Action: "ecs:RunInstances", RequestTags: tagged}, true},
		{"the resource has the tag", Access{Action: "ecs:RunInstances", ResourceTags: tagged}, false},
		{"the role is named", Access{Action: "ram:PassRole", Role: "Worker-1", Service: "ecs.aliyuncs.com"}, true},
		{"another role", Access{Action: "ram:PassRole", Role: "Admin", Service: "ecs.aliyuncs.com"}, false},
		{"another service", Access{Action: "ram:PassRole", Role: "Worker-1", Service: "fc.aliyuncs.com"}, false},
	} {
		assert.Equal(t, c.allowed, policy.Allows(c.access), c.name)
	}
}
