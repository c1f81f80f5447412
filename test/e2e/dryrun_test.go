package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/status"
	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/rig"
)

const (
	// dryRunInstall is the release gpu-spot-dry-run of docs/dry-run.md.
	dryRunInstall = "deploy/manifests/optional/dry-run.yaml"
	dryRunName    = "gpu-spot-dry-run"
	dryRunLease   = dryRunName + "-dry-run"
	dryRunUser    = "system:serviceaccount:" + rig.Namespace + ":" + dryRunName
)

// withDryRunKey adds a key to the world that may do what the RAM policy of a dry run allows, and returns it.
func withDryRunKey(t *testing.T, w *alisim.World) alisim.AccessKey {
	t.Helper()
	key := alisim.AccessKey{ID: "LTAIdryRun", Secret: "secret", RAMPolicy: rig.ShippedRAMPolicy(t, "ram-policy-dry-run.json", rig.ClusterName)}
	w.Credentials = []alisim.AccessKey{{ID: "LTAIautoscaler", Secret: "secret"}, key}
	return key
}

// shadow is a dry run beside the autoscaler that buys.
type shadow struct {
	*rig.Autoscaler
	s *jobSuite
	// status is where it is asked what it would do, token by whom.
	status, token string
}

// runShadow installs the dry run as a release of its own, with credentials of its own, and runs it until the test ends.
func runShadow(s *jobSuite, key alisim.AccessKey) *shadow {
	s.t.Helper()
	s.InstallManifest(s.t, dryRunInstall)
	kubeconfig, err := s.Cluster.ServiceAccountKubeconfig(s.t.Context(), rig.Namespace, dryRunName)
	require.NoError(s.t, err)
	awaitDryRunPolicy(s.suite, kubeconfig)
	host := ownAddress(s.t)
	port, err := rig.FreePort(s.t.Context(), host)
	require.NoError(s.t, err)
	address := net.JoinHostPort(host, port)
	return &shadow{s: s, status: "https://" + address + status.Path, token: tokenOf(s.suite, rig.Namespace, dryRunName+"-viewer"), Autoscaler: s.RunAutoscalerWithEnv(s.t,
		[]string{"ALIBABA_CLOUD_ACCESS_KEY_ID=" + key.ID, "ALIBABA_CLOUD_ACCESS_KEY_SECRET=" + key.Secret},
		"--dry-run", "--kubeconfig="+kubeconfig, "--deployment-name="+dryRunName, "--leader-elect=true", "--leader-elect-resource-name="+dryRunName,
		"--secure-address="+address, "--reclaim-notice-period="+jobNotice.String(), "--reclaim-poll-interval=1s",
		"--scale-down-unneeded-time=5s", "--scale-down-delay-after-add=1s")}
}

// awaitStatus waits until what the dry run says of itself is as it should be.
func (d *shadow) awaitStatus(what string, is func(status.Status) bool) {
	d.s.t.Helper()
	d.s.eventually("the dry run says "+what, func(ctx context.Context) (bool, error) {
		code, body, err := httpGet(ctx, d.s.suite, d.status, "Authorization", "Bearer "+d.token)
		var said status.Status
		if code != http.StatusOK || err != nil || json.Unmarshal([]byte(body), &said) != nil || said.DryRun == nil {
			return false, err
		}
		return is(said), nil
	})
}

// awaitDecisions waits until the dry run says that it would have bought or removed as many.
func (d *shadow) awaitDecisions(action string, count int) {
	d.s.t.Helper()
	d.awaitStatus(fmt.Sprintf("that %s would be sent for %d", action, count), func(said status.Status) bool {
		decided := 0
		for _, decision := range said.DryRun.Decisions {
			if decision.Action == action {
				assert.Equal(d.s.t, "asg-train", decision.Pool)
				decided += decision.Count
			}
		}
		return decided >= count
	})
	assert.Contains(d.s.t, d.Log(math.MaxInt32), `"Dry run: this would be done" action="`+action+`" pool="asg-train"`)
}

// ownLease stands for requests for the lease of the dry run.
const ownLease = "its lease"

// writes returns the requests of the dry run that are more than reads, as the API server has recorded them, by verb and resource.
func (d *shadow) writes() map[string][]auditv1.Event {
	d.s.t.Helper()
	requests, err := d.s.Audit(dryRunUser)
	require.NoError(d.s.t, err)
	found := map[string][]auditv1.Event{}
	for _, request := range requests {
		what := request.ObjectRef
		if what == nil || strings.HasPrefix(request.UserAgent, "e2e.test/") || slices.Contains([]string{"get", "list", "watch"}, request.Verb) {
			continue
		}
		kind := request.Verb + " " + strings.TrimSuffix(what.Resource+"/"+what.Subresource, "/")
		if what.Resource == "leases" && what.Name == dryRunLease && what.Namespace == rig.Namespace {
			kind = ownLease
		}
		found[kind] = append(found[kind], request)
	}
	return found
}

// requireOnlyDryRuns fails if the dry run has written anything but its lease, and unless it has tried to.
func (d *shadow) requireOnlyDryRuns(key alisim.AccessKey, tried ...string) {
	t := d.s.t
	t.Helper()
	writes := d.writes()
	for kind, requests := range writes {
		codes := map[int32]int{}
		for _, request := range requests {
			codes[request.ResponseStatus.Code]++
			uri, err := url.Parse(request.RequestURI)
			require.NoError(t, err)
			if kind == ownLease {
				// A busy API server may answer with a conflict or too late; a policy or a role that refuses the lease says Forbidden or Invalid.
				assert.NotContains(t, []int32{http.StatusForbidden, http.StatusUnprocessableEntity}, request.ResponseStatus.Code, "it may have its lease: %s", request.RequestURI)
			} else {
				assert.Equal(t, []string{metav1.DryRunAll}, uri.Query()["dryRun"], "%s is written: %s", kind, request.RequestURI)
			}
		}
		t.Logf("the dry run sent %s, and was answered %v", kind, codes)
		if kind == ownLease {
			assert.Greater(t, codes[http.StatusOK], 1, "it keeps its lease")
		}
	}
	for _, kind := range append(tried, ownLease) {
		assert.NotEmpty(t, writes[kind], "the dry run went through all of it: %s", kind)
	}
	asked := 0
	for _, request := range d.s.Cloud.Requests() {
		if request.Parameters["AccessKeyId"] == key.ID {
			asked++
			assert.True(t, strings.HasPrefix(request.Action, "Describe"), request.Action)
			assert.NotEqual(t, "Forbidden.RAM", request.Code, "%s is not in the RAM policy of a dry run", request.Action)
		}
	}
	assert.NotZero(t, asked)
}

// Both see the same pools, pods and notices. The one of them buys, marks, suspends and drains, as if it were alone.
func TestADryRunBesideAnAutoscalerThatBuysAndReclaimsWritesNothingButItsLease(t *testing.T) {
	w := newWorld()
	key := withDryRunKey(t, &w)
	t.Parallel()
	s := startJobSuiteWith(t, rig.Options{World: w, AuditUsers: []string{dryRunUser}}, "train")
	const buys = "ScaleWithAdjustment"
	s.injectFault(alisim.Fault{Kind: alisim.FaultThrottle, Action: buys})
	s.runLeader("--leader-elect=true", "--scale-down-unneeded-time=10m")
	dry := runShadow(s, key)

	s.submit(rigidJob(gpuTemplate("train", `metadata: {annotations: {gpu-spot.autoscaling/gang-name: indexed, gpu-spot.autoscaling/gang-size: "3"}}`)))
	dry.awaitDecisions(buys, 3)
	assert.Empty(t, s.instances("asg-train"), "the cloud turns the other away")
	s.Cloud.ClearFaults()
	pods := s.awaitRunningPods("job-name=indexed", 3)

	require.NoError(t, syscall.Kill(s.autoscaler.PID(), syscall.SIGSTOP), "so that the dry run is the first to see the notice")
	reclaiming := s.reclaimNodesOf(pods[0])
	s.eventually("the dry run would mark the node", func(context.Context) (bool, error) { return len(dry.writes()["patch nodes"]) > 0, nil })
	dry.awaitStatus("that a node reclaims", func(said status.Status) bool { return len(said.Reclaims) == 1 })
	node, err := s.Client.CoreV1().Nodes().Get(t.Context(), pods[0].Spec.NodeName, metav1.GetOptions{})
	require.NoError(t, err)
	assert.False(t, marked(node))
	require.NoError(t, syscall.Kill(s.autoscaler.PID(), syscall.SIGCONT))
	s.awaitJobEvent("Job", "indexed", "SpotJobSuspended", 1)
	s.awaitGone(reclaiming)
	s.awaitJobEvent("Job", "indexed", "SpotJobResumed", 1)
	s.requireOtherNodes(reclaiming, s.awaitRunningPods("job-name=indexed", 3))
	s.awaitNotHeld(batchJobs, "indexed")
	s.requireBought("train", 3+1)

	require.NoError(t, s.Client.BatchV1().Jobs(metav1.NamespaceDefault).Delete(t.Context(), "indexed", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}))
	dry.awaitDecisions("RemoveInstances", 3)
	assert.Len(t, s.instances("asg-train"), 3)
	require.NoError(t, dry.Stop())
	dry.requireOnlyDryRuns(key, "patch nodes", "patch pods", "create events")
}

// cloudWrites returns how many requests of each action there were that is more than a question.
func cloudWrites(s *suite) map[string]int {
	counts := s.Cloud.RequestCounts()
	maps.DeleteFunc(counts, func(action string, _ int) bool { return strings.HasPrefix(action, "Describe") })
	return counts
}

// awaitDryRunPolicy waits until the owner of the kubeconfig may not write for good.
func awaitDryRunPolicy(s *suite, kubeconfig string) {
	s.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(s.t, err)
	thief, err := kubernetes.NewForConfig(config)
	require.NoError(s.t, err)
	s.eventually("the policy is in force", func(ctx context.Context) (bool, error) {
		_, err := thief.CoreV1().Nodes().Patch(ctx, "system", "application/merge-patch+json", []byte(`{"metadata": {"annotations": {"gpu-spot.autoscaling/x": "y"}}}`), metav1.PatchOptions{})
		if err != nil && !apierrors.IsForbidden(err) {
			return false, err
		}
		return apierrors.IsForbidden(err), nil
	})
}

// writtenObjects returns what an autoscaler writes, and its Events, by kind and name: the resource version, but of what kubelets and controllers
// write, too, what is not status.
func writtenObjects(s *suite) map[string]string {
	s.t.Helper()
	ctx, all := s.t.Context(), map[string]string{}
	maps, err := s.Client.CoreV1().ConfigMaps(rig.Namespace).List(ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	for i := range maps.Items {
		all["ConfigMap "+maps.Items[i].Name] = maps.Items[i].ResourceVersion
	}
	leases, err := s.Client.CoordinationV1().Leases(rig.Namespace).List(ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	for _, lease := range leases.Items {
		if strings.HasPrefix(lease.Name, "gpu-spot-") {
			all["Lease "+lease.Name] = lease.ResourceVersion
		}
	}
	events, err := s.Client.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	for i := range events.Items {
		if events.Items[i].Source.Component == "cluster-autoscaler" || events.Items[i].Source.Component == "gpu-spot-autoscaler" {
			all["Event "+events.Items[i].Reason+" "+events.Items[i].Name] = events.Items[i].ResourceVersion
		}
	}
	add := func(kind string, meta metav1.ObjectMeta, spec any) {
		text, err := json.Marshal([]any{meta.Labels, meta.Annotations, meta.Finalizers, meta.DeletionTimestamp, spec})
		require.NoError(s.t, err)
		all[kind+" "+meta.Namespace+"/"+meta.Name] = string(text)
	}
	nodes, err := s.nodes(ctx)
	require.NoError(s.t, err)
	for _, node := range nodes {
		add("Node", node.ObjectMeta, node.Spec)
	}
	pods, err := s.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	for _, pod := range pods.Items {
		add("Pod", pod.ObjectMeta, pod.Spec)
	}
	jobs, err := s.Client.BatchV1().Jobs(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	for _, job := range jobs.Items {
		add("Job", job.ObjectMeta, job.Spec)
	}
	return all
}
