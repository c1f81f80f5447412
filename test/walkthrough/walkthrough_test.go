package walkthrough

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/ram"
	"gpu-spot-autoscaler/test/rig"
)

// What docs/ack.md begins with, and what the world of the test therefore has.
const (
	guide       = "docs/ack.md"
	inChinese   = "docs/zh-CN/ack.md"
	region      = "cn-hangzhou"
	account     = "1234567890123456"
	clusterName = "my-cluster"
	nodePool    = "np0a1b2c3d4e5f60718293a4b5c6d7e8f9"
	group       = "asg-bp18p2yfxow2dloq1234"
	a10         = "ecs.gn7i-c8g1.2xlarge"
	t4          = "ecs.gn6i-c8g1.2xlarge"
	soon        = 2 * time.Minute
)

// newWorld returns a region with the scaling group of a node pool as ACK has made it: with expected nodes, and with everything on that buys
// by itself. Delays are those of the end-to-end tests.
func newWorld() alisim.World {
	w := alisim.NewWorld(region)
	w.AccountID = account
	w.VSwitches = []alisim.VSwitch{{ID: "vsw-bp1h", Zone: "cn-hangzhou-h"}, {ID: "vsw-bp1i", Zone: "cn-hangzhou-i"}}
	w.Roles = []string{"acs:ram::" + account + ":role/gpu-spot-autoscaler"}
	w.Administrators = []alisim.AccessKey{{ID: "LTAIadministrator", Secret: "administratorSecret"}}
	w.Pools = []alisim.Pool{{
		ID: group, MaxSize: 2000, DesiredCapacity: ptr.To(0), InstanceTypes: []string{a10, t4}, VSwitches: []string{"vsw-bp1h", "vsw-bp1i"},
		SpotStrategy: alisim.SpotAsPriceGo, MultiAZPolicy: "COST_OPTIMIZED", SpotInstanceRemedy: true, HealthCheckType: "NONE",
		ConfigurationTags: map[string]string{"k8s.aliyun.com": "true", "ack.aliyun.com": "c1b9fd5d0f3a0450b9f8a2c6e7d3e4f5a"},
	}}
	second := metav1.Duration{Duration: time.Second}
	w.ActivityDelay, w.BootDelay, w.DriverDelay, w.ListLag, w.NodeGrace = second, second, second, second, second
	w.NodeController = metav1.Duration{Duration: 5 * time.Second}
	return w
}

// walk is a walk through the guide.
type walk struct {
	*rig.Rig
	t       *testing.T
	kubelet *kubelet
	shell   *shell
	calls   string
	summary string
}

func TestTheGuideForACKLeadsFromANodePoolToAPodThroughAReclaimAndBack(t *testing.T) {
	walkThrough(t, guide)
}

func TestTheGuideInChineseLeadsThereToo(t *testing.T) {
	rig.Long(t)
	walkThrough(t, inChinese)
}

// walkThrough runs all shell blocks of the page, in their order. What the text between them says is checked after the block that it follows.
func walkThrough(t *testing.T, page string) {
	w := newWalk(t, newWorld())
	after := map[string]func(printed string){ // by the beginning of the heading; after its first block
		"2.": w.checkGroup, "3.": w.checkTrust, "5.": w.checkInstalled, "6.": w.checkFirstPod, "7.": w.checkReclaimed, "9.": w.checkUninstalled,
	}
	w.Cloud.SetPrice(a10, "cn-hangzhou-h", 6, 10)
	w.Cloud.SetPrice(a10, "cn-hangzhou-i", 4, 10)
	last := ""
	for _, b := range readDocument(t, page).blocks {
		if !b.isShell() {
			continue
		}
		number, _, _ := strings.Cut(b.section, " ")
		if number == "7." {
			w.reclaim()
		}
		if stations[number] != nil && page == guide && number != last {
			w.openService(rig.Namespace, "gpu-spot-autoscaler")
			w.runPages(pagesOf(t, number)...)
		}
		last = number
		printed := w.shell.run(b)
		if check := after[number]; check != nil {
			check(printed)
			delete(after, number)
		}
		if number == "9." && w.summary != "" && strings.Contains(b.text, "delete job") {
			w.removeInstances()
		}
	}
	assert.Empty(t, after, "all sections were met")
	w.checkCalls()
	stopwatch := w.shell.stopwatch()
	t.Logf("The stopwatch, on a cloud that boots instances within seconds:\n%s", stopwatch)
	// go test remembers no result of a test that has opened a file of the module which is as new as this: it does not know that the binary and
	// the chart are what is tested. Source: computeTestInputsID in cmd/go/internal/test.
	file := filepath.Join(root, "out", "walkthrough", strings.ReplaceAll(strings.TrimSuffix(page, ".md"), "/", "-")+".txt")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(stopwatch), 0o644))
}

func newWalk(t *testing.T, world alisim.World) *walk {
	t.Helper()
	kubectl, helm := tools(t)
	w := &walk{t: t, Rig: rig.ForTestWith(t, rig.Options{World: world, ClusterName: clusterName, Bare: true}), calls: filepath.Join(t.TempDir(), "calls")}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	w.kubelet = startKubelet(t, w.Rig, cancel)
	self, err := os.Executable()
	require.NoError(t, err)
	stubs := map[string]string{"kubectl": kubectl, "helm": helm, "aliyun": self}
	for name := range notRun {
		stubs[name] = self
	}
	w.shell = newShell(ctx, t, w.Cluster.AdminKubeconfig(), stubs)
	repository, err := filepath.Abs(root)
	require.NoError(t, err)
	administrator := w.World.Administrators[0]
	for name, value := range map[string]string{
		"ALIBABA_CLOUD_ACCESS_KEY_ID": administrator.ID, "ALIBABA_CLOUD_ACCESS_KEY_SECRET": administrator.Secret, // for doctor
		callsVariable: w.calls, binaryVariable: w.BinaryPath(), rootVariable: repository, cloudVariable: w.Cloud.Endpoint(),
		keyVariable: administrator.ID + ":" + administrator.Secret, sdkVariable: sourceOfSDK(t),
		groupVariable: group, nodePoolVariable: nodePool, issuerVariable: w.issuer(),
	} {
		w.shell.environment = append(w.shell.environment, name+"="+value)
	}
	return w
}

// issuer returns the issuer of the control plane's tokens.
func (w *walk) issuer() string {
	text, err := w.Client.Discovery().RESTClient().Get().AbsPath("/.well-known/openid-configuration").DoRaw(w.t.Context())
	require.NoError(w.t, err)
	var found struct{ Issuer string }
	require.NoError(w.t, json.Unmarshal(text, &found))
	return found.Issuer
}

// checkGroup checks that nothing in the group buys by itself any more, and that it is tagged.
func (w *walk) checkGroup(printed string) {
	g, known := w.Cloud.Group(group)
	require.True(w.t, known)
	assert.Nil(w.t, g.DesiredCapacity)
	assert.False(w.t, g.SpotInstanceRemedy)
	assert.False(w.t, *g.CompensateWithOnDemand)
	assert.Equal(w.t, 20, g.MaxSize)
	assert.Equal(w.t, map[string]string{
		"k8s.io/cluster-autoscaler/enabled": "true", "k8s.io/cluster-autoscaler/" + clusterName: "owned", "gpu-spot.autoscaling/max-size": "16",
	}, g.Tags)
	assert.NotContains(w.t, printed, "-: ", "lint finds nothing")
}

// checkTrust checks that the RAM policy is the shipped one for this cluster. Whether the trust policy fits the token is checked when there is
// one.
func (w *walk) checkTrust(string) {
	made, err := os.ReadFile(filepath.Join(w.shell.dir, "ram-policy.json"))
	require.NoError(w.t, err)
	_, err = ram.Parse(made)
	require.NoError(w.t, err)
	shipped, err := os.ReadFile(filepath.Join(root, "deploy/ram-policy.json"))
	require.NoError(w.t, err)
	assert.JSONEq(w.t, strings.ReplaceAll(string(shipped), "my-cluster", clusterName), string(made))
}

// checkInstalled checks that the autoscaler runs without problems, and that the token which the chart mounts is what the trust policy wants.
func (w *walk) checkInstalled(printed string) {
	assert.Contains(w.t, printed, "successfully rolled out")
	// The ConfigMap is written every two seconds if something has changed, and the rollout of this cluster ends sooner.
	rig.Eventually(w.t, soon, "the status says that the leader is ready", func(ctx context.Context) (bool, error) {
		status, err := w.Client.CoreV1().ConfigMaps(rig.Namespace).Get(ctx, "gpu-spot-autoscaler-status", metav1.GetOptions{})
		return err == nil && strings.Contains(status.Data["status"], "ready: true") && strings.Contains(status.Data["status"], "problems: []"), err
	})
	tokens, err := filepath.Glob(filepath.Join(w.kubelet.dir, "*-alibabacloud-token"))
	require.NoError(w.t, err)
	require.Len(w.t, tokens, 2, "one of each replica")
	token, err := os.ReadFile(tokens[0])
	require.NoError(w.t, err)
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(string(token), ".")[1])
	require.NoError(w.t, err)
	var has struct {
		Iss, Sub string
		Aud      []string
	}
	require.NoError(w.t, json.Unmarshal(claims, &has))
	var trust struct {
		Statement []struct {
			Principal struct{ Federated []string }
			Condition struct{ StringEquals map[string]string }
		}
	}
	text, err := os.ReadFile(filepath.Join(w.shell.dir, "trust.json"))
	require.NoError(w.t, err)
	require.NoError(w.t, json.Unmarshal(text, &trust))
	assert.Equal(w.t, map[string]string{"oidc:iss": has.Iss, "oidc:aud": has.Aud[0], "oidc:sub": has.Sub}, trust.Statement[0].Condition.StringEquals)
	assumed := w.Cloud.Requests("AssumeRoleWithOIDC")
	require.NotEmpty(w.t, assumed)
	assert.Equal(w.t, trust.Statement[0].Principal.Federated, []string{assumed[0].Parameters["OIDCProviderArn"]})
	assert.Equal(w.t, w.World.Roles, []string{assumed[0].Parameters["RoleArn"]})
}

// firstEvents are the Events that the guide says to expect, and on what.
var firstEvents = map[string]string{
	"FailedScheduling": "Pod", "TriggeredScaleUp": "Pod", "Scheduled": "Pod",
	"SpotOfferingChosen": "Deployment", "SpotPurchaseRequested": "Deployment", "SpotPoolTargeted": "Deployment",
}

func (w *walk) checkFirstPod(string) {
	text, err := os.ReadFile(filepath.Join(root, guide))
	require.NoError(w.t, err)
	events, err := w.Client.CoreV1().Events(metav1.NamespaceAll).List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	for reason, kind := range firstEvents {
		assert.Contains(w.t, string(text), "`"+reason+"`", "the guide names it")
		assert.True(w.t, slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return e.Reason == reason && e.InvolvedObject.Kind == kind }), "%s on a %s", reason, kind)
	}
	assert.Equal(w.t, []string{"cn-hangzhou-i"}, w.zones(), "the cheaper zone, and one instance")
}

// zones returns the zones of the instances of the group that are not reclaiming.
func (w *walk) zones() (zones []string) {
	for _, i := range w.Cloud.Instances() {
		if i.ScalingGroupID == group && i.Deadline.IsZero() && !strings.HasPrefix(i.Lifecycle, "Removing") {
			zones = append(zones, i.Zone)
		}
	}
	return zones
}

// reclaim gives notice to the instance of the first pod, and waits until that is known: the guide begins when it has come.
func (w *walk) reclaim() {
	var id string
	for _, i := range w.Cloud.Instances() {
		if i.ScalingGroupID == group {
			id = i.ID
		}
	}
	require.NoError(w.t, w.Cloud.Reclaim(id))
	rig.Eventually(w.t, soon, "the Node is marked", func(ctx context.Context) (bool, error) {
		nodes, err := w.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "gpu-spot.autoscaling/reclaiming=true"})
		return err == nil && len(nodes.Items) == 1, err
	})
}

func (w *walk) checkReclaimed(printed string) {
	assert.Contains(w.t, printed, "SpotReclaimNotice")
	rig.Eventually(w.t, soon, "the pod runs on another Node", func(ctx context.Context) (bool, error) {
		pods, err := w.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: "job-name=first"})
		if err != nil {
			return false, err
		}
		for _, pod := range pods.Items {
			if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
				continue
			}
			node, err := w.Client.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
			if err == nil && !node.Spec.Unschedulable {
				return true, nil
			}
		}
		return false, nil
	})
	job, err := w.Client.BatchV1().Jobs(metav1.NamespaceDefault).Get(w.t.Context(), "first", metav1.GetOptions{})
	require.NoError(w.t, err)
	assert.Zero(w.t, job.Status.Failed, "its podFailurePolicy ignores the eviction")
}

// checkUninstalled checks that helm has printed which instances stay, and that nothing of the release is left.
func (w *walk) checkUninstalled(printed string) {
	assert.Contains(w.t, printed, "nothing was changed", "the dry run")
	_, w.summary, _ = strings.Cut(printed, "Stopping the autoscaler")
	assert.Contains(w.t, w.summary, "uninstalled")
	assert.Regexp(w.t, `Instances: +[123] stay, and cost`, w.summary)
	for _, kind := range []string{"deployments,jobs,serviceaccounts,roles,rolebindings,services,poddisruptionbudgets", "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"} {
		assert.Empty(w.t, w.shell.ask("kubectl get "+kind+" -A -l app.kubernetes.io/instance=gpu-spot-autoscaler -o name"))
	}
	nodes, err := w.Client.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{LabelSelector: "!gpu-spot.autoscaling/reclaiming"})
	require.NoError(w.t, err)
	for _, node := range nodes.Items {
		assert.False(w.t, node.Spec.Unschedulable, node.Name)
		for key := range node.Annotations {
			assert.False(w.t, strings.HasPrefix(key, "gpu-spot.autoscaling/"), "%s has %s", node.Name, key)
		}
	}
}

// removeInstances runs the commands of the summary that helm uninstall has printed.
func (w *walk) removeInstances() {
	commands := regexp.MustCompile(`aliyun ess RemoveInstances .*`).FindAllString(w.summary, -1)
	require.NotEmpty(w.t, commands)
	for _, command := range commands {
		w.shell.run(block{section: "(as the summary says)", text: command})
	}
	w.summary = ""
	rig.Eventually(w.t, soon, "the instances are gone, but for the one that is reclaiming", func(context.Context) (bool, error) {
		return len(w.zones()) == 0, nil
	})
}

// checkCalls checks that no call of a stand-in failed where the shell does not tell, and that the group has no tags any more.
func (w *walk) checkCalls() {
	calls := readCalls(w.t, w.calls)
	for _, c := range calls {
		assert.Empty(w.t, c.Error, "%s %v", c.Command, c.Arguments)
	}
	assert.Greater(w.t, len(calls), 15)
	g, _ := w.Cloud.Group(group)
	assert.Empty(w.t, g.Tags)
	for name, why := range notRun {
		if slices.ContainsFunc(calls, func(c call) bool { return c.Command == name }) {
			w.t.Logf("not run: %s, because %s", name, why)
		}
	}
}
