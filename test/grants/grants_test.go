package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const roles = `
kind: Deployment
spec: {template: {spec: {serviceAccountName: a}}}
---
kind: Role
metadata: {name: a}
rules:
  - {apiGroups: [""], resources: [pods, pods/eviction], verbs: [create, delete]}
  - {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [own, other], verbs: [get]}
  - {nonResourceURLs: [/explain], verbs: [get]}
---
kind: RoleBinding
roleRef: {kind: Role, name: a}
subjects: [{kind: ServiceAccount, name: a}]
---
kind: ClusterRole
metadata: {name: for-people}
rules: [{apiGroups: [""], resources: [nodes], verbs: [get]}]
---
kind: ClusterRoleBinding
roleRef: {kind: ClusterRole, name: for-people}
subjects: [{kind: ServiceAccount, name: viewer}, {kind: Group, name: people}]
---
kind: ClusterRoleBinding
roleRef: {kind: ClusterRole, name: "system:auth-delegator"}
subjects: [{kind: ServiceAccount, name: a}]
`

const policy = `{"Version": "1", "Statement": [{"Effect": "Allow", "Resource": "*", "Action": ["ess:RemoveInstances", "ecs:DescribePrice"]}]}`

// audit is what an API server of 1.36 wrote, but for what is not looked at.
const audit = `
{"kind":"Event","apiVersion":"audit.k8s.io/v1","stage":"ResponseComplete","verb":"create","user":{"username":"a"},"userAgent":"a/v1","objectRef":{"resource":"pods","subresource":"eviction","namespace":"default","name":"x","apiVersion":"v1"},"annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":"RBAC: allowed by RoleBinding \"a/kube-system\" of Role \"a\" to ServiceAccount \"a/kube-system\""}}
{"kind":"Event","apiVersion":"audit.k8s.io/v1","stage":"ResponseComplete","verb":"get","user":{"username":"a"},"userAgent":"a/v1","objectRef":{"resource":"leases","namespace":"default","name":"own","apiGroup":"coordination.k8s.io"},"annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":"RBAC: allowed by RoleBinding \"a/kube-system\" of Role \"a\" to ServiceAccount \"a/kube-system\""}}
{"kind":"Event","apiVersion":"audit.k8s.io/v1","stage":"ResponseComplete","verb":"delete","user":{"username":"a"},"userAgent":"e2e.test/v1","objectRef":{"resource":"pods","namespace":"default","name":"x"},"annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":"RBAC: allowed by RoleBinding \"a/kube-system\" of Role \"a\" to ServiceAccount \"a/kube-system\""}}
`

const refusal = `{"kind":"Event","verb":"list","user":{"username":"a"},"userAgent":"a/v1","objectRef":{"resource":"secrets"},"annotations":{"authorization.k8s.io/decision":"forbid","authorization.k8s.io/reason":""}}
`

// lay makes files below a new directory.
func lay(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return root
}

func check(t *testing.T, excuses string, records map[string]string) error {
	t.Helper()
	root := lay(t, map[string]string{
		"deploy/manifests/rbac.yaml": "# A heading\n---" + roles, "deploy/ram-policy.json": policy, "test/grants/unused.yaml": excuses,
	})
	return run(root, lay(t, records), filepath.Join(root, "report"))
}

func TestWhatNoEndToEndTestUsedIsNamedAndNothingElse(t *testing.T) {
	err := check(t, "[]", map[string]string{"1/rbac-1.log": audit, "2/ram-1.json": `["ess:RemoveInstances"]`, "2/ram-2.json": `[]`})
	for _, unused := range []string{
		`"create pods" of Role a`, `"delete pods" of Role a`, `"delete pods/eviction" of Role a`,
		`"get leases in coordination.k8s.io named other" of Role a`, `"get /explain" of Role a`, `"anything" of ClusterRole system:auth-delegator`, `"ecs:DescribePrice" of RAM policy`,
	} {
		assert.ErrorContains(t, err, "\n  "+unused)
	}
	for _, used := range []string{`"create pods/eviction"`, "named own", `"ess:RemoveInstances"`, "for-people", "refused"} {
		assert.NotContains(t, err.Error(), used)
	}
}

func TestWhatHasAReasonIsExcusedAsLongAsItIsGranted(t *testing.T) {
	const excuses = `
- {by: Role a, grant: create pods, reason: x}
- {by: Role a, grant: delete pods, reason: x}
- {by: Role a, grant: delete pods/eviction, reason: x}
- {by: Role a, grant: get leases in coordination.k8s.io named other, reason: x}
- {by: Role a, grant: get /explain, reason: x}
- {by: "ClusterRole system:auth-delegator", grant: anything, reason: x}
- {by: RAM policy, grant: "ecs:DescribePrice", reason: x}
`
	records := map[string]string{"1/rbac-1.log": audit, "1/ram-1.json": `["ess:RemoveInstances"]`}
	assert.NoError(t, check(t, excuses, records))
	assert.ErrorContains(t, check(t, excuses+"- {by: Role a, grant: watch pods, reason: x}", records), "excuses what is not granted:\n  \"watch pods\" of Role a")
	assert.ErrorContains(t, check(t, "- {by: Role a, grant: create pods}", records), "no reason")
}

func TestARefusalInAnEndToEndTestIsReported(t *testing.T) {
	directory := lay(t, map[string]string{"rbac-1.log": audit + refusal, "ram-1.json": `[]`})
	used, err := recorded(directory)
	require.NoError(t, err)
	var report strings.Builder
	require.NoError(t, used.report(&report, []grant{{"Role a", "create pods/eviction"}, {"Role a", "delete pods"}}))
	assert.Equal(t, `       1  "create pods/eviction" of Role a
       0  "delete pods" of Role a
 refused  a may not list secrets
`, report.String())
}

func TestMissingRecordsAreNoSuccess(t *testing.T) {
	for name, records := range map[string]map[string]string{
		"none":                  nil,
		"none of an API server": {"ram-1.json": `[]`},
		"none of a cloud":       {"rbac-1.log": audit},
	} {
		assert.ErrorContains(t, check(t, "[]", records), "make test-e2e", name)
	}
	root := lay(t, map[string]string{"deploy/ram-policy.json": policy, "test/grants/unused.yaml": "[]"})
	assert.ErrorContains(t, run(root, filepath.Join(root, "nowhere"), filepath.Join(root, "report")), "make test-e2e")
}
