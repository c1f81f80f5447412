package deploy_test

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func TestTheChartRefusesValuesThatItDoesNotKnow(t *testing.T) {
	for typo, at := range map[string]string{
		"credentials.secretname=x":             "/credentials",
		"credentials.rrsa.roleArn=x":           "/credentials/rrsa",
		"nodeagent.enabled=true":               "nodeagent",
		"nodeAgent.enable=true":                "/nodeAgent",
		"serviceMonitor.enable=true":           "/serviceMonitor",
		"replica=3":                            "replica",
		"clustername=x":                        "clustername",
		"image.pullpolicy=Always":              "/image",
		"resources.limit.memory=1Gi":           "/resources",
		"push.service.kind=LoadBalancer":       "/push/service",
		"admission.keepOffReclaiming.on=true":  "/admission/keepOffReclaiming",
		"affinity.podAffinty.x=y":              "/affinity",
		"tolerations[0].keys=x":                "/tolerations/0",
		"networkPolicy.metricsFrom[0].pod=x":   "/networkPolicy/metricsFrom/0",
		"serviceAccount.creat=false":           "/serviceAccount",
		"fullNameOverride=x":                   "fullNameOverride",
		"topologySpreadConstraints[0].skew=1":  "/topologySpreadConstraints/0",
		"extraArgs.--scale-down-enabled=false": "--scale-down-enabled",
		"releaseAll.enable=false":              "/releaseAll",
		"nodeFaults.maxnodes=1":                "/nodeFaults",
		"imagePullSecrets[0].secret=x":         "/imagePullSecrets/0",
		"image.registry=example.org":           "/image",
		"securityContext.runAsUsr=1":           "/securityContext",
		"containerSecurityContext.fsGroup=1":   "/containerSecurityContext",
		"dnsConfig.nameserver=x":               "/dnsConfig",
		"hostAliases[0].hostname=x":            "/hostAliases/0",
		"nodeAgent.toleration[0].key=x":        "/nodeAgent",
		"rbac.create=false":                    "/rbac",
	} {
		_, err := helm(t, typo)
		assert.ErrorContains(t, err, "values don't meet the specifications of the schema", typo)
		assert.ErrorContains(t, err, at, typo)
	}
	_, err := helm(t, "global.imageRegistry=example.org")
	assert.NoError(t, err, "Helm sets global for every chart")
}

func TestTheChartRefusesValuesOfTheWrongKind(t *testing.T) {
	for value, at := range map[string]string{
		"replicas=two":                                  "/replicas",
		"image.tag=20261126":                            "/image/tag", // Helm prints a number of a file as 2.0261126e+07
		"image.pullPolicy=always":                       "/image/pullPolicy",
		"push.signature=checked":                        "/push/signature",
		"push.port=70000":                               "/push/port",
		"push.port=8085":                                "/push/port", // that of --address
		"secureServing.port=8085":                       "/secureServing/port",
		"nodeAgent.protectedPeriod=0":                   "/nodeAgent/protectedPeriod",
		"serviceMonitor.interval=30":                    "/serviceMonitor/interval",
		"credentials.secretName=my_secret":              "/credentials/secretName",
		"credentials.rrsa.roleARN=my-role":              "/credentials/rrsa/roleARN",
		"credentials.rrsa.tokenExpirationSeconds=60":    "/credentials/rrsa/tokenExpirationSeconds",
		"admission.keepOffReclaiming.enabled=sometime":  "/admission/keepOffReclaiming/enabled",
		"tolerations[0].effect=NoRun":                   "/tolerations/0/effect",
		"releaseAll.timeout=5":                          "/releaseAll/timeout",
		"nodeFaults.maxNodes=many":                      "/nodeFaults/maxNodes",
		"nodeFaults.conditions[0]=Xid 79":               "/nodeFaults/conditions/0",
		"nodeFaults.conditions={NvidiaDeviceLost=soon}": "/nodeFaults/conditions/0",
		"imageRegistry=https://example.org":             "/imageRegistry",
		"hostNetwork=sometimes":                         "/hostNetwork",
		"alerts.matchers=job":                           "/alerts/matchers",
		"terminationGracePeriodSeconds=0":               "/terminationGracePeriodSeconds",
		"serviceMonitor.scrapeTimeout=10":               "/serviceMonitor/scrapeTimeout",
	} {
		_, err := helm(t, value)
		assert.ErrorContains(t, err, at, value)
	}
}

// Service, probes, roles and volumes are made for the flags that the chart sets.
func TestTheChartRefusesFlagsThatBreakWhatItSetsUp(t *testing.T) {
	for _, value := range []string{
		"extraArgs.address=127.0.0.1:8085", "extraArgs.address=:9090", "extraArgs.region=cn-beijing", "extraArgs.cluster-name=other",
		"extraArgs.leader-elect-resource-name=other", "extraArgs.namespace=default", "extraArgs.secure-address=:1", "extraArgs.notice-address=:1", "extraArgs.serve-address=:1", "extraArgs.serve-client-ca-file=/x",
		"extraArgs.v=5", "extraArgs.node-fault-conditions=Ready", "extraArgs.node-fault-max-nodes=5", "nodeAgent.extraArgs.port=1", "nodeAgent.extraArgs.address=127.0.0.1",
	} {
		_, err := helm(t, value)
		assert.ErrorContains(t, err, "xtraArgs/", value)
	}
	for _, value := range []string{"extraArgs.address=:8085", "extraArgs.scale-down-unneeded-time=5m", "extraArgs.nodes={0:10:asg-1,0:4:asg-2}", "extraArgs.max-nodes-total=10"} {
		_, err := helm(t, value)
		assert.NoError(t, err, value)
	}
}

// With additionalProperties this is the other half: what the schema allows is explained in values.yaml.
func TestTheSchemaAllowsNothingThatValuesDoNotHave(t *testing.T) {
	var values, schema map[string]any
	for path, into := range map[string]any{"values.yaml": &values, "values.schema.json": &schema} {
		text, err := os.ReadFile("chart/gpu-spot-autoscaler/" + path)
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(text, into))
	}
	allowed := schema["properties"].(map[string]any)
	delete(allowed, "global")
	assertAllowed(t, "", allowed, values)
}

// assertAllowed compares the properties with the values, and so on in objects whose properties the schema itself lists.
func assertAllowed(t *testing.T, path string, properties, values map[string]any) {
	t.Helper()
	elsewhere := []string{".affinity", ".updateStrategy", ".dnsConfig", ".extraArgs", ".nodeAgent.extraArgs", ".nodeAgent.updateStrategy"} // objects of Kubernetes, and flags
	for name, property := range properties {
		value, known := values[name]
		assert.True(t, known, "values.yaml has no %s.%s", path, name)
		nested, ok := property.(map[string]any)
		inner, isObject := nested["properties"].(map[string]any)
		if ok && isObject && !slices.Contains(elsewhere, path+"."+name) {
			below, is := value.(map[string]any)
			require.True(t, is, "%s.%s is an object", path, name)
			assertAllowed(t, path+"."+name, inner, below)
		}
	}
}

func TestTheSchemaIsJSON(t *testing.T) { // Helm reads it as such
	text, err := os.ReadFile("chart/gpu-spot-autoscaler/values.schema.json")
	require.NoError(t, err)
	assert.True(t, json.Valid(text))
}
