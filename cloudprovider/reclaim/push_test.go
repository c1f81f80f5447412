package reclaim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/patch/patchtest"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/reclaim/push"
)

const token = "correct horse battery staple"

// sender pushes to a handler of its own, as if to a replica that does not lead.
type sender struct {
	*world
	handler   http.Handler
	tokenFile string
}

func (w *world) sender(change ...func(*push.Config)) *sender {
	w.Helper()
	s := &sender{world: w, tokenFile: filepath.Join(w.TempDir(), "token")}
	s.writeToken(token + "\n")
	config := push.Config{Client: w.client, TokenFile: s.tokenFile, Region: "cn-beijing"}
	for _, f := range change {
		f(&config)
	}
	var err error
	s.handler, err = push.NewHandler(config)
	require.NoError(w, err)
	return s
}

func (s *sender) writeToken(text string) {
	s.Helper()
	require.NoError(s, os.WriteFile(s.tokenFile, []byte(text), 0o600))
}

// push returns the status of the answer.
func (s *sender) push(body string, change ...func(*http.Request)) int {
	request := httptest.NewRequest(http.MethodPost, "/v1/notices", strings.NewReader(body))
	request.Header.Set("Authorization", "Bearer "+token)
	for _, f := range change {
		f(request)
	}
	answer := httptest.NewRecorder()
	s.handler.ServeHTTP(answer, request)
	return answer.Code
}

// interrupted is CloudMonitor's event for the instance of the Node.
func interrupted(node string, at time.Time) string {
	return fmt.Sprintf(`{"ver":"1.0","id":"2256A988","product":"ECS","resourceId":"acs:ecs:cn-beijing:1690:instance/i-%s","level":"WARN",
		"name":"Instance:PreemptibleInstanceInterruption","userId":"1690","eventTime":%q,"regionId":"cn-beijing",
		"content":{"instanceId":"i-%s","action":"delete"}}`, node, at.Format("20060102T150405.000-0700"), node)
}

func counted(t *testing.T, outcome string) float64 {
	t.Helper()
	return value(t, "gpu_spot_reclaim_pushed_events_total", outcome)
}

func TestAPushedNoticeStandsOnItsNodeBeforeItIsAnswered(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.addNode("b")
		s := w.sender()
		w.pass(time.Minute)
		at := time.Now().Add(-20 * time.Second)
		require.Equal(t, http.StatusOK, s.push(interrupted("a", at)))

		assert.Equal(t, at.Add(notice.DefaultPeriod).UTC().Format(time.RFC3339), w.node("a").Annotations[api.AnnotationNoticePush])
		assert.NotContains(t, w.node("b").Annotations, api.AnnotationNoticePush)
		assert.Equal(t, []string{"patch nodes"}, w.requests()[2:], "the rest is the leader's")

		w.pass(10 * time.Second)
		w.start()
		requireMarked(t, w.node("a"), at.Add(notice.DefaultPeriod))
		assert.Equal(t, "push", w.node("a").Annotations[api.AnnotationReclaimSource])
		requireUnmarked(t, w.node("b"))
	})
}

func TestEveryFormOfTheEventIsRead(t *testing.T) {
	// The time of all is 2000-01-01T00:00:30Z; a bubble begins at midnight.
	for name, body := range map[string]string{
		"CloudMonitor, alert rule": `{"product":"ECS","resourceId":"acs:ecs:cn-beijing:1690:instance/i-a","level":"WARN","status":"Normal",
			"eventType":"StatusNotification","name":"Instance:PreemptibleInstanceInterruption","eventTime":"20000101T080030.000+0800",
			"regionId":"cn-beijing","content":{"instanceId":"i-a","action":"delete"},"id":"771d443f","ruleName":"spot"}`,
		"CloudMonitor, no fraction of a second": `{"name":"Instance:PreemptibleInstanceInterruption","eventTime":"20000101T080030+0800",
			"content":{"instanceId":"i-a"}}`,
		"CloudMonitor, only the resource is named": `{"name":"Instance:PreemptibleInstanceInterruption","eventTime":"20000101T080030.000+0800",
			"resourceId":"acs:ecs:cn-beijing:1690:instance/i-a","content":"delete"}`,
		"CloudMonitor, event subscription": `{"userId":"1690","time":946684830000,"severity":"WARN","strategyName":"spot","batchId":"1","subscription":{},
			"alert":{"alertStatus":"TRIGGERED","source":"SYS_EVENT","eventName":"Instance:PreemptibleInstanceInterruption","product":"ECS",
			"arn":"acs:ecs:cn-beijing:1690:instance/i-a","timestamp":946684830000,"eventContentMap":{"instanceId":"i-a","action":"delete"},
			"meta":{"sysEventMeta":{"regionId":"cn-beijing","name":"Instance:PreemptibleInstanceInterruption","eventTime":"20000101T080030.000+0800"}}}}`,
		"EventBridge": `{"specversion":"1.0","id":"7b5c3","source":"acs.ecs","type":"ecs:Instance:PreemptibleInstanceInterruption",
			"subject":"acs:ecs:cn-beijing:1690:instance/i-a","time":"2000-01-01T08:00:30.000+08:00","datacontenttype":"application/json;charset=utf-8",
			"aliyunregionid":"cn-beijing","aliyunaccountid":"1690","aliyuneventbusname":"default","aliyunpublishtime":"2000-01-01T00:00:31.100Z",
			"data":{"instanceId":"i-a","action":"delete"}}`,
		"EventBridge, only the subject is named": `{"specversion":"1.0","type":"ecs:Instance:PreemptibleInstanceInterruption",
			"subject":"acs:ecs:cn-beijing:1690:instance/i-a","time":"2000-01-01T00:00:30Z","data":{}}`,
		"an array, with other events": `[{"name":"Instance:StateChange","content":{"instanceId":7}},
			{"type":"ecs:Instance:PreemptibleInstanceInterruption","time":"2000-01-01T00:00:30Z","data":{"instanceId":"i-a"}},
			{"type":"oss:ObjectCreated:PutObject","data":[1]}]`,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a")
				w.pass(time.Minute)
				require.Equal(t, http.StatusOK, w.sender().push(body))
				assert.Equal(t, "2000-01-01T00:05:30Z", w.node("a").Annotations[api.AnnotationNoticePush])
			})
		})
	}
}

func TestAnEventThatIsNotForUsIsAcceptedAndChangesNothing(t *testing.T) {
	now := time.Date(2000, 1, 1, 0, 10, 0, 0, time.UTC)
	for name, tc := range map[string]struct{ body, outcome string }{
		"another event":                   {`{"name":"Instance:StateChange","content":{"resourceId":"i-a"}}`, "other"},
		"no instance of ours":             {interrupted("stranger", now), "unknown"},
		"a Node of another region":        {interrupted("far", now), "unknown"},
		"an event of another region":      {strings.ReplaceAll(interrupted("a", now), "cn-beijing", "cn-shanghai"), "foreign"},
		"sent again when all is over":     {interrupted("a", now.Add(-6*time.Minute)), "stale"},
		"from the future":                 {interrupted("a", now.Add(2*time.Minute)), "stale"},
		"an on-demand instance":           {interrupted("ours", now), "on-demand"},
		"from before the last withdrawal": {interrupted("back", now.Add(-2*time.Minute)), "duplicate"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a")
				w.addNode("far", func(node *corev1.Node) { node.Spec.ProviderID = "cn-shanghai.i-far" })
				w.addNode("ours", labelled(api.LabelSpotStrategy, alicloud.NoSpot))
				w.addNode("back", func(node *corev1.Node) {
					node.Annotations = map[string]string{api.AnnotationReclaimCancelled: now.Add(-time.Minute).Format(time.RFC3339)}
				})
				w.pass(time.Until(now))
				s := w.sender()
				w.client.ClearActions()
				before := counted(t, tc.outcome)
				assert.Equal(t, http.StatusOK, s.push(tc.body))
				assert.Empty(t, w.requests())
				assert.Equal(t, before+1, counted(t, tc.outcome))
			})
		})
	}
}

func TestANoticeThatIsPushedAgainIsWrittenOnce(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		w.pass(time.Hour)
		s, other := w.sender(), w.sender()
		at := time.Now()
		require.Equal(t, http.StatusOK, s.push(interrupted("a", at)))
		w.client.ClearActions()

		before := counted(t, "duplicate")
		assert.Equal(t, http.StatusOK, s.push(interrupted("a", at)), "at once")
		assert.Equal(t, http.StatusOK, other.push(interrupted("a", at)), "to another replica")
		assert.Equal(t, http.StatusOK, s.push(interrupted("a", at.Add(time.Second))), "later word of the same")
		w.pass(time.Minute)
		assert.Equal(t, http.StatusOK, s.push(interrupted("a", at)), "later")
		assert.Empty(t, w.requests())
		assert.Equal(t, before+4, counted(t, "duplicate"))

		assert.Equal(t, http.StatusOK, s.push(interrupted("a", at.Add(-10*time.Second))), "out of order: the earlier deadline counts")
		assert.Equal(t, at.Add(notice.DefaultPeriod-10*time.Second).UTC().Format(time.RFC3339), w.node("a").Annotations[api.AnnotationNoticePush])

		w.pass(time.Hour)
		assert.Equal(t, http.StatusOK, s.push(interrupted("a", time.Now())))
		assert.Equal(t, time.Now().Add(notice.DefaultPeriod).UTC().Format(time.RFC3339), w.node("a").Annotations[api.AnnotationNoticePush], "another notice")
	})
}

func TestWhatIsNoEventIsRefused(t *testing.T) {
	at := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		body   string
		status int
	}{
		"nothing":                 {"", http.StatusBadRequest},
		"no JSON":                 {"instance i-a", http.StatusBadRequest},
		"half of it":              {interrupted("a", at)[:80], http.StatusBadRequest},
		"two in a row":            {interrupted("a", at) + "\n" + `}`, http.StatusBadRequest},
		"not an object":           {`"Instance:PreemptibleInstanceInterruption"`, http.StatusBadRequest},
		"an empty array":          {`[]`, http.StatusBadRequest},
		"null":                    {`null`, http.StatusBadRequest},
		"an object without sense": {`{"instanceId":"i-a"}`, http.StatusBadRequest},
		"no instance":             {`{"name":"Instance:PreemptibleInstanceInterruption","eventTime":"20000101T080000.000+0800","content":{}}`, http.StatusBadRequest},
		"a masked instance":       {strings.ReplaceAll(interrupted("a", at), "i-a", "i-bp1****"), http.StatusBadRequest},
		"a number for one":        {`{"type":"ecs:Instance:PreemptibleInstanceInterruption","time":"2000-01-01T00:00:00Z","data":{"instanceId":7}}`, http.StatusBadRequest},
		"no time":                 {`{"type":"ecs:Instance:PreemptibleInstanceInterruption","data":{"instanceId":"i-a"}}`, http.StatusBadRequest},
		"a time that makes none":  {`{"type":"ecs:Instance:PreemptibleInstanceInterruption","time":"soon","data":{"instanceId":"i-a"}}`, http.StatusBadRequest},
		"far too much":            {"[" + strings.Repeat(" ", maxBody) + "]", http.StatusRequestEntityTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a")
				s := w.sender()
				w.client.ClearActions()
				before := counted(t, "malformed")
				assert.Equal(t, tc.status, s.push(tc.body))
				assert.Empty(t, w.client.Actions())
				assert.Equal(t, before+1, counted(t, "malformed"))
			})
		})
	}
}

func TestOneEventThatCannotBeReadDoesNotKeepTheOthersBack(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		status := w.sender().push("[" + interrupted("a", time.Now()) + `,{"name":"Instance:PreemptibleInstanceInterruption"}]`)
		assert.Equal(t, http.StatusBadRequest, status)
		assert.Contains(t, w.node("a").Annotations, api.AnnotationNoticePush)
	})
}

func TestOnlySendersWithTheTokenAreHeard(t *testing.T) {
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Del("Authorization")
			if name != "" {
				r.Header.Set(name, value)
			}
		}
	}
	inURL := func(r *http.Request) {
		r.Header.Del("Authorization")
		r.URL.RawQuery = "token=correct+horse+battery+staple"
	}
	for name, tc := range map[string]struct {
		change     func(*http.Request)
		status     int
		tokenInURL bool
	}{
		"a bearer token":           {header("Authorization", "Bearer "+token), http.StatusOK, false},
		"the token of EventBridge": {header("x-eventbridge-signature-token", token), http.StatusOK, false},
		"in the URL":               {inURL, http.StatusUnauthorized, false},
		"in the URL, as asked for": {inURL, http.StatusOK, true},
		"none":                     {header("", ""), http.StatusUnauthorized, true},
		"an empty one":             {header("Authorization", "Bearer "), http.StatusUnauthorized, true},
		"another":                  {header("Authorization", "Bearer incorrect horse"), http.StatusUnauthorized, true},
		"its beginning":            {header("Authorization", "Bearer "+token[:len(token)-1]), http.StatusUnauthorized, true},
		"more than it":             {header("Authorization", "Bearer "+token+"s"), http.StatusUnauthorized, true},
		"as a password":            {header("Authorization", "Basic "+token), http.StatusUnauthorized, true},
		"another, and the right in it": {func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer x")
			r.URL.RawQuery = "token=correct+horse+battery+staple"
		}, http.StatusUnauthorized, true},
		"not a POST": {func(r *http.Request) { r.Method = http.MethodGet }, http.StatusMethodNotAllowed, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a")
				s := w.sender(func(c *push.Config) { c.TokenInURL = tc.tokenInURL })
				w.client.ClearActions()
				assert.Equal(t, tc.status, s.push(interrupted("a", time.Now()), tc.change))
				assert.Equal(t, tc.status == http.StatusOK, len(w.client.Actions()) > 0)
			})
		})
	}
}

func TestTheTokenCanBeReplaced(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		s := w.sender()
		event := interrupted("a", time.Now())
		fresh := func(r *http.Request) { r.Header.Set("Authorization", "Bearer fresh") }
		require.Equal(t, http.StatusUnauthorized, s.push(event, fresh))

		s.writeToken("fresh")
		assert.Equal(t, http.StatusOK, s.push(event, fresh))
		assert.Equal(t, http.StatusUnauthorized, s.push(event))

		s.writeToken(" \n")
		assert.Equal(t, http.StatusServiceUnavailable, s.push(event, func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") }),
			"an empty file opens no door")
		require.NoError(t, os.Remove(s.tokenFile))
		assert.Equal(t, http.StatusServiceUnavailable, s.push(event, fresh))
	})
}

func TestAHandlerWithoutATokenIsNotMade(t *testing.T) {
	inBubble(t, func(w *world) {
		empty := filepath.Join(t.TempDir(), "token")
		require.NoError(t, os.WriteFile(empty, nil, 0o600))
		for _, file := range []string{"", empty, filepath.Join(t.TempDir(), "missing")} {
			_, err := push.NewHandler(push.Config{Client: w.client, TokenFile: file})
			assert.Error(t, err, file)
		}
	})
}

func TestANoticeThatCannotBeWrittenIsAskedForAgain(t *testing.T) {
	for name, verb := range map[string]string{"nodes cannot be listed": "list", "the node cannot be patched": "patch"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a")
				w.addNode("b")
				broken := true
				w.client.PrependReactor(verb, "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
					patch, isPatch := action.(clienttesting.PatchAction)
					return broken && (!isPatch || patch.GetName() == "a"), nil, apierrors.NewInternalError(errors.New("etcd is away"))
				})
				s := w.sender()
				both := "[" + interrupted("a", time.Now()) + "," + interrupted("b", time.Now()) + "]"
				require.Equal(t, http.StatusServiceUnavailable, s.push(both))
				assert.NotContains(t, w.node("a").Annotations, api.AnnotationNoticePush)
				if verb == "patch" {
					assert.Contains(t, w.node("b").Annotations, api.AnnotationNoticePush, "one does not keep the other back")
				}

				broken = false
				w.pass(10 * time.Second)
				assert.Equal(t, http.StatusOK, s.push(both))
				assert.Contains(t, w.node("a").Annotations, api.AnnotationNoticePush)
				assert.Contains(t, w.node("b").Annotations, api.AnnotationNoticePush)
			})
		})
	}
}

func TestACrowdOfNoticesSharesOneList(t *testing.T) {
	const nodes = 1000
	inBubble(t, func(w *world) {
		for i := range nodes {
			w.addNode(fmt.Sprint(i))
		}
		s := w.sender()
		w.client.ClearActions()
		var senders sync.WaitGroup
		statuses := make([]int, nodes)
		for i := range nodes {
			senders.Go(func() { statuses[i] = s.push(interrupted(fmt.Sprint(i), time.Now())) })
		}
		senders.Wait()
		lists := 0
		for _, action := range w.client.Actions() {
			if action.GetVerb() == "list" {
				lists++
			}
		}
		assert.Equal(t, 1, lists)
		assert.Len(t, w.requests(), nodes)
		for i := range nodes {
			require.Equal(t, http.StatusOK, statuses[i])
			require.Contains(t, w.node(fmt.Sprint(i)).Annotations, api.AnnotationNoticePush)
		}

		w.addNode("new")
		w.pass(directoryAge + time.Millisecond)
		assert.Equal(t, http.StatusOK, s.push(interrupted("new", time.Now())))
		assert.Contains(t, w.node("new").Annotations, api.AnnotationNoticePush, "what is listed does not get old")
	})
}

// Nodes are named after addresses, which the next instance gets.
func TestANoticeIsNotWrittenOnAnotherNodeOfTheSameName(t *testing.T) {
	inBubble(t, func(w *world) {
		w.client.PrependReactor("patch", "nodes", w.refuseOtherUIDs)
		w.addNode("a")
		w.addNode("b")
		s := w.sender()
		require.Equal(t, http.StatusOK, s.push(interrupted("b", time.Now())), "the nodes are known")
		require.NoError(t, w.client.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}))
		w.addNode("a", func(node *corev1.Node) { node.UID, node.Spec.ProviderID = "uid-another", "cn-beijing.i-another" })

		before := counted(t, "unknown")
		assert.Equal(t, http.StatusOK, s.push(interrupted("a", time.Now())))
		assert.Equal(t, before+1, counted(t, "unknown"))
		assert.NotContains(t, w.node("a").Annotations, api.AnnotationNoticePush)
		assert.Equal(t, http.StatusOK, s.push(interrupted("another", time.Now())))
		assert.Contains(t, w.node("a").Annotations, api.AnnotationNoticePush)
	})
}

// refuseOtherUIDs is what the API server does with a patch that names a UID.
func (w *world) refuseOtherUIDs(action clienttesting.Action) (handled bool, ret runtime.Object, err error) {
	patch := action.(clienttesting.PatchAction)
	var named struct{ Metadata struct{ UID types.UID } }
	if err := json.Unmarshal(patch.GetPatch(), &named); err != nil {
		return true, nil, err
	}
	object, err := w.client.Tracker().Get(action.GetResource(), "", patch.GetName())
	if err != nil {
		return true, nil, err
	}
	if uid := object.(*corev1.Node).UID; named.Metadata.UID != "" && named.Metadata.UID != uid {
		return true, nil, patchtest.AnotherUID("Node", patch.GetName())
	}
	return false, nil, nil
}

func TestOfTwoNodesOfAnInstanceTheNewerGetsTheNotice(t *testing.T) {
	inBubble(t, func(w *world) {
		for i, name := range []string{"old", "young", "older"} {
			w.addNode(name, func(node *corev1.Node) {
				node.Spec.ProviderID = "cn-beijing.i-a"
				node.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Duration(i%2) * time.Second))
			})
		}
		require.Equal(t, http.StatusOK, w.sender().push(interrupted("a", time.Now())))
		assert.Contains(t, w.node("young").Annotations, api.AnnotationNoticePush)
	})
}
