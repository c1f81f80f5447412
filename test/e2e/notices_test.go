package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"
	certutil "k8s.io/client-go/util/cert"

	"gpu-spot-autoscaler/test/rig"
)

const noticeOfPush = "gpu-spot.autoscaling/notice-push"

func TestPushedNoticeMarksItsNodeAndForeignOnesAreHarmless(t *testing.T) {
	s := newSuite(t, newWorld(spotPool("asg-1", 10)))
	door := newNoticeEndpoint(s)
	flags := append(door.flags, "--reclaim-notice-period=40s", "--reclaim-poll-interval=1s")
	a := s.RunAutoscaler(t, flags...)
	reclaiming := buyOneNode(s)

	s.eventually("the endpoint is open", func(ctx context.Context) (bool, error) {
		status, err := door.push(ctx, "wrong", interruption(reclaiming))
		return status == http.StatusUnauthorized, err
	})
	for what, event := range map[string]string{
		"a foreign instance":     interruption("i-of-another-cluster"),
		"another region":         strings.ReplaceAll(interruption(reclaiming), "ap-southeast-1", "cn-beijing"),
		"an event sent too late": interruptionAt(reclaiming, time.Now().Add(-time.Hour)),
		"another event":          `{"name":"Instance:StateChange","content":{"resourceId":"` + reclaiming + `","state":"Stopping"}}`,
	} {
		status, err := door.push(t.Context(), door.token, event)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, status, what)
	}
	status, err := door.push(t.Context(), door.token, "{")
	require.NoError(t, err)
	assert.Equal(t, http.StatusBadRequest, status)
	status, err = door.push(t.Context(), door.token, interruption(reclaiming), "X-Eventbridge-Signature-V2", "c2lnbmVk")
	require.NoError(t, err)
	assert.Equal(t, http.StatusUnauthorized, status, "it is signed, but not by EventBridge")
	node, err := s.node(t.Context(), reclaiming)
	require.NoError(t, err)
	assert.NotContains(t, node.Annotations, noticeOfPush)

	status, err = door.push(t.Context(), door.token, "["+interruption(reclaiming)+","+interruption("i-of-another-cluster")+"]")
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
	node, err = s.node(t.Context(), reclaiming)
	require.NoError(t, err)
	require.NotNil(t, node)
	assert.Contains(t, node.Annotations, noticeOfPush, "it stood there before the answer")
	awaitMarkFrom(s, reclaiming, "push")
	metrics, err := a.Metrics(t.Context())
	require.NoError(t, err)
	for outcome, want := range map[string]float64{"accepted": 1, "unknown": 2, "foreign": 1, "stale": 1, "other": 1, "malformed": 1} {
		assert.Equal(t, want, counter(metrics["gpu_spot_reclaim_pushed_events_total"], outcome), outcome)
	}
	assert.EqualValues(t, 1, counter(metrics["gpu_spot_reclaim_push_signatures_total"], "wrong"))
	runs, err := podRuns(t.Context(), s, "train")
	require.NoError(t, err)
	assert.True(t, runs, "nothing has confirmed it")
	require.NoError(t, s.Cloud.Reclaim(reclaiming))
	awaitEmptyNode(s, reclaiming)
}

func TestNoticeIsTakenByAReplicaThatDoesNotLead(t *testing.T) {
	s := newSuite(t, newWorld(spotPool("asg-1", 10)))
	flags := []string{"--reclaim-notice-period=2m", "--reclaim-poll-interval=1h", "--leader-elect=true", "--leader-elect-resource-name=gpu-spot-autoscaler"}
	leader := s.RunAutoscaler(t, flags...)
	reclaiming := buyOneNode(s)
	door := newNoticeEndpoint(s)
	s.RunAutoscaler(t, append(flags, door.flags...)...)
	s.eventually("the other is there", func(ctx context.Context) (bool, error) {
		status, err := door.push(ctx, "wrong", interruption(reclaiming))
		return status == http.StatusUnauthorized, err
	})
	leader.Kill()
	status, err := door.push(t.Context(), door.token, interruption(reclaiming))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	node, err := s.node(t.Context(), reclaiming)
	require.NoError(t, err)
	require.NotNil(t, node)
	assert.Contains(t, node.Annotations, noticeOfPush)
	assert.False(t, marked(node), "nobody leads")
	awaitMarkFrom(s, reclaiming, "push") // when the lease has run out
}

func TestNodeConditionMarksTheNode(t *testing.T) {
	s := newSuite(t, newWorld(spotPool("asg-1", 10)))
	s.RunAutoscaler(t, "--reclaim-notice-period=40s", "--reclaim-poll-interval=1h")
	reclaiming := buyOneNode(s)
	setExpiringCondition(s, reclaiming, corev1.ConditionTrue)
	awaitMarkFrom(s, reclaiming, "condition")
	awaitEmptyNode(s, reclaiming)
}

func TestAgentsAnnotationMarksTheNodeAndThePollConfirmsIt(t *testing.T) {
	s := newSuite(t, newWorld(spotPool("asg-1", 10)))
	a := s.RunAutoscaler(t, "--reclaim-notice-period=40s", "--reclaim-poll-interval=2s")
	reclaiming := buyOneNode(s)
	deadline := time.Now().Add(35 * time.Second).UTC().Truncate(time.Second)
	annotateNode(s, reclaiming, noticeOfAgent, deadline.Format(time.RFC3339))
	awaitMarkFrom(s, reclaiming, "node-agent")
	require.NoError(t, s.Cloud.Reclaim(reclaiming))
	s.eventually("the poll confirms", func(ctx context.Context) (bool, error) {
		metrics, err := a.Metrics(ctx)
		return samples(metrics["gpu_spot_reclaim_confirmation_delay_seconds"], "ecs-poll") == 1, err
	})
	node, err := s.node(t.Context(), reclaiming)
	require.NoError(t, err)
	require.NotNil(t, node)
	assert.Equal(t, deadline.Format(time.RFC3339), node.Annotations["gpu-spot.autoscaling/reclaim-deadline"], "what was stated stands")
	assert.Equal(t, "node-agent", node.Annotations["gpu-spot.autoscaling/reclaim-source"])
	awaitEmptyNode(s, reclaiming)
}

func TestNoticesThatAreTakenBackLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		speak, giveUp func(s *suite, id string)
		source        string
	}{
		"the cloud": {
			func(s *suite, id string) { require.NoError(s.t, s.Cloud.Reclaim(id)) },
			func(s *suite, id string) { require.NoError(s.t, s.Cloud.Withdraw(id)) },
			"ecs-poll",
		},
		"the condition": {
			func(s *suite, id string) { setExpiringCondition(s, id, corev1.ConditionTrue) },
			func(s *suite, id string) { setExpiringCondition(s, id, corev1.ConditionFalse) },
			"condition",
		},
		"the agent": {
			func(s *suite, id string) {
				annotateNode(s, id, noticeOfAgent, time.Now().Add(4*time.Minute).UTC().Format(time.RFC3339))
			},
			func(s *suite, id string) { annotateNode(s, id, noticeOfAgent, nil) },
			"node-agent",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(singleOfferingPool("asg-1", 1))
			w.NoticePeriod = metav1.Duration{Duration: 5 * time.Minute}
			s := newSuite(t, w)
			s.RunAutoscaler(t, "--reclaim-poll-interval=1s", "--scale-down-unneeded-time=10m")
			spared := buyOneNode(s)
			before, err := s.node(t.Context(), spared)
			require.NoError(t, err)
			tc.speak(s, spared)
			awaitMarkFrom(s, spared, tc.source)
			tc.giveUp(s, spared)
			s.eventually("the Node is as it was", func(ctx context.Context) (bool, error) {
				node, err := s.node(ctx, spared)
				return node != nil && untouched(node, before), err
			})
			s.awaitEvent("SpotReclaimCancelled", spared)
			pod := rig.GPUPod("next", 1)
			s.Submit(t, pod)
			s.awaitRunning(pod)
			assert.Len(t, s.instances("asg-1"), 1, "it takes pods again")
		})
	}
}

// untouched says whether nothing of a reclaim is left on the Node but the note that one was refuted. Core may have found the empty Node
// unneeded by then, and says so by a taint.
func untouched(node, before *corev1.Node) bool {
	for annotation := range node.Annotations {
		if strings.HasPrefix(annotation, "gpu-spot.autoscaling/") && annotation != "gpu-spot.autoscaling/reclaim-cancelled" {
			return false
		}
	}
	_, labelled := node.Labels["gpu-spot.autoscaling/reclaiming"]
	left := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(taint corev1.Taint) bool { return taint.Key == taints.DeletionCandidateTaint })
	sameTaints := slices.EqualFunc(left, before.Spec.Taints, func(a, b corev1.Taint) bool { return a.MatchTaint(&b) })
	return !labelled && !node.Spec.Unschedulable && sameTaints
}

// buyOneNode submits a pod, waits for its Node, and returns the ID of the instance.
func buyOneNode(s *suite) (instanceID string) {
	s.t.Helper()
	pod := rig.GPUPod("train", 1)
	s.Submit(s.t, pod)
	s.awaitRunning(pod)
	instances := s.instances("asg-1")
	require.Len(s.t, instances, 1)
	return instances[0].ID
}

// awaitMarkFrom waits until the Node of the instance is marked, and checks from which source the notice was.
func awaitMarkFrom(s *suite, instanceID, source string) {
	s.t.Helper()
	s.eventually("the Node of "+instanceID+" is marked", func(ctx context.Context) (bool, error) {
		node, err := s.node(ctx, instanceID)
		if node == nil || !marked(node) {
			return false, err
		}
		assert.Equal(s.t, source, node.Annotations["gpu-spot.autoscaling/reclaim-source"])
		return true, nil
	})
	s.awaitEvent("SpotReclaimNotice", instanceID, source)
}

// awaitEmptyNode waits until no pod is on the Node of the instance.
func awaitEmptyNode(s *suite, instanceID string) {
	s.t.Helper()
	s.eventually("the Node of "+instanceID+" is empty", func(ctx context.Context) (bool, error) {
		node, err := s.node(ctx, instanceID)
		if node == nil {
			return err == nil, err
		}
		pods, err := s.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node.Name})
		return err == nil && len(pods.Items) == 0, err
	})
}

// annotateNode sets an annotation of the Node of the instance; nil removes it.
func annotateNode(s *suite, instanceID, key string, value any) {
	s.t.Helper()
	node, err := s.node(s.t.Context(), instanceID)
	require.NoError(s.t, err)
	require.NotNil(s.t, node)
	text := "null"
	if value != nil {
		text = fmt.Sprintf("%q", value)
	}
	_, err = s.Client.CoreV1().Nodes().Patch(s.t.Context(), node.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, key, text), metav1.PatchOptions{})
	require.NoError(s.t, err)
}

// setExpiringCondition sets the condition that ACK's node-problem-detector sets for a notice.
func setExpiringCondition(s *suite, instanceID string, status corev1.ConditionStatus) {
	s.t.Helper()
	setCondition(s, instanceID, corev1.NodeCondition{Type: "InstanceExpired", Status: status, Reason: "InstanceToBeTerminated"})
}

// setCondition sets a condition of the Node of the instance, as a node-problem-detector does.
func setCondition(s *suite, instanceID string, condition corev1.NodeCondition) {
	s.t.Helper()
	node, err := s.node(s.t.Context(), instanceID)
	require.NoError(s.t, err)
	require.NotNil(s.t, node)
	now := time.Now().UTC().Format(time.RFC3339)
	_, err = s.Client.CoreV1().Nodes().Patch(s.t.Context(), node.Name, types.StrategicMergePatchType, fmt.Appendf(nil,
		`{"status":{"conditions":[{"type":%q,"status":%q,"reason":%q,"message":%q,"lastHeartbeatTime":%q,"lastTransitionTime":%q}]}}`,
		condition.Type, condition.Status, condition.Reason, condition.Message, now, now), metav1.PatchOptions{}, "status")
	require.NoError(s.t, err)
}

// noticeEndpoint is an endpoint for notices, and its key.
type noticeEndpoint struct {
	url, token string
	flags      []string
	client     *http.Client
}

// newNoticeEndpoint chooses an address, a token and a certificate.
func newNoticeEndpoint(s *suite) *noticeEndpoint {
	s.t.Helper()
	port, err := rig.FreePort(s.t.Context(), "127.0.0.1")
	require.NoError(s.t, err)
	address := net.JoinHostPort("127.0.0.1", port)

	certificate, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	require.NoError(s.t, err)
	d := &noticeEndpoint{url: "https://" + address + "/v1/notices", token: "open sesame"}
	dir := s.t.TempDir()
	for file, content := range map[string][]byte{"cert": certificate, "key": key, "token": []byte(d.token + "\n")} {
		require.NoError(s.t, os.WriteFile(filepath.Join(dir, file), content, 0o600))
	}
	d.flags = []string{
		"--notice-address=" + address, "--notice-token-file=" + filepath.Join(dir, "token"),
		"--notice-tls-cert-file=" + filepath.Join(dir, "cert"), "--notice-tls-private-key-file=" + filepath.Join(dir, "key"),
	}
	roots := x509.NewCertPool()
	require.True(s.t, roots.AppendCertsFromPEM(certificate))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	s.t.Cleanup(transport.CloseIdleConnections)
	d.client = &http.Client{Transport: transport, Timeout: 10 * time.Second}
	return d
}

// push returns the status of the answer. Headers are names and values in turn.
func (d *noticeEndpoint) push(ctx context.Context, token, body string, headers ...string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	for pair := range slices.Chunk(headers, 2) {
		request.Header.Set(pair[0], pair[1])
	}
	response, err := d.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	return response.StatusCode, nil
}

// interruption is the event of EventBridge.
func interruption(instanceID string) string { return interruptionAt(instanceID, time.Now()) }

func interruptionAt(instanceID string, at time.Time) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":"1","source":"acs.ecs","type":"ecs:Instance:PreemptibleInstanceInterruption",
		"subject":"acs:ecs:ap-southeast-1:1690:instance/%s","time":%q,"aliyunregionid":"ap-southeast-1","data":{"instanceId":%q,"action":"delete"}}`,
		instanceID, at.Format(time.RFC3339Nano), instanceID)
}

// counter is that of the label's value, zero where there is none.
func counter(family *dto.MetricFamily, value string) float64 {
	for _, metric := range family.GetMetric() {
		if metric.GetLabel()[0].GetValue() == value {
			return metric.GetCounter().GetValue()
		}
	}
	return 0
}

// samples is how many the histogram has for the label's value.
func samples(family *dto.MetricFamily, value string) uint64 {
	for _, metric := range family.GetMetric() {
		if metric.GetLabel()[0].GetValue() == value {
			return metric.GetHistogram().GetSampleCount()
		}
	}
	return 0
}
