package kubelet

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/utils/lifecycle"
)

const (
	completes = "test.gpu-spot.autoscaling/Completes"
	ends      = "test.gpu-spot.autoscaling/Ends"
	termFor   = "test.gpu-spot.autoscaling/term-for"
)

// At most one stage may match, for kwok would choose among several at random.
func TestStageOfAPod(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	later := now.Add(7 * time.Second).Format(time.RFC3339Nano)
	deleted := &metav1.Time{Time: now.Add(30 * time.Second)}
	tests := map[string]struct {
		phase       corev1.PodPhase
		deleted     *metav1.Time
		annotations map[string]string
		condition   string
		want        string
		wantDelay   time.Duration
	}{
		"bound":                                 {phase: corev1.PodPending, want: "pod-run"},
		"running for ever":                      {phase: corev1.PodRunning},
		"running for a time":                    {phase: corev1.PodRunning, condition: completes, want: "pod-complete", wantDelay: 7 * time.Second},
		"done":                                  {phase: corev1.PodSucceeded, condition: completes},
		"failed":                                {phase: corev1.PodFailed},
		"deleted while running":                 {phase: corev1.PodRunning, deleted: deleted, want: "pod-end", wantDelay: time.Second},
		"deleted before it ran":                 {phase: corev1.PodPending, deleted: deleted, want: "pod-end", wantDelay: time.Second},
		"deleted while running for a time":      {phase: corev1.PodRunning, deleted: deleted, condition: completes, want: "pod-end", wantDelay: time.Second},
		"deleted, and wants time":               {phase: corev1.PodRunning, deleted: deleted, annotations: map[string]string{termFor: "7s"}, want: "pod-told-to-end"},
		"deleted, and has its time":             {phase: corev1.PodRunning, deleted: deleted, annotations: map[string]string{termFor: "7s"}, condition: ends, want: "pod-end", wantDelay: 7 * time.Second},
		"deleted before it ran, and wants time": {phase: corev1.PodPending, deleted: deleted, annotations: map[string]string{termFor: "7s"}, want: "pod-end", wantDelay: time.Second},
		"done and deleted":                      {phase: corev1.PodSucceeded, deleted: deleted, want: "pod-delete"},
		"failed and deleted":                    {phase: corev1.PodFailed, deleted: deleted, annotations: map[string]string{termFor: "7s"}, condition: ends, want: "pod-delete"},
	}
	stages := lifecycleOf(t, "Pod")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: test.deleted, Annotations: test.annotations},
				Status:     corev1.PodStatus{Phase: test.phase},
			}
			if test.condition != "" {
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodConditionType(test.condition), Message: later}}
			}
			requireStage(t, stages, &lifecycle.Event{Annotations: pod.Annotations, Data: pod}, now, test.want, test.wantDelay)
		})
	}
}

func TestStageOfANode(t *testing.T) {
	tests := map[string]struct {
		conditions []corev1.NodeCondition
		want       string
		wantDelay  time.Duration
	}{
		"new":            {want: "node-ready"},
		"not ready":      {conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}, want: "node-ready"},
		"unreachable":    {conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}, want: "node-ready"},
		"another's word": {conditions: []corev1.NodeCondition{{Type: "GPUReady", Status: corev1.ConditionTrue}}, want: "node-ready"},
	}
	stages := lifecycleOf(t, "Node")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n := &corev1.Node{Status: corev1.NodeStatus{Conditions: test.conditions}}
			requireStage(t, stages, &lifecycle.Event{Data: n}, time.Now(), test.want, test.wantDelay)
		})
	}
}

func lifecycleOf(t *testing.T, kind string) lifecycle.Lifecycle {
	t.Helper()
	all, err := parseStages(stages)
	require.NoError(t, err)
	of, err := lifecycle.NewLifecycle(all[internalversion.StageResourceRef{APIGroup: "v1", Kind: kind}])
	require.NoError(t, err)
	return of
}

func requireStage(t *testing.T, stages lifecycle.Lifecycle, event *lifecycle.Event, now time.Time, want string, delay time.Duration) {
	t.Helper()
	matching, err := stages.ListAllPossible(t.Context(), event)
	require.NoError(t, err)
	if want == "" {
		require.Empty(t, matching)
		return
	}
	require.Len(t, matching, 1)
	require.Equal(t, want, matching[0].Name())
	got, _, err := matching[0].Delay(t.Context(), event, now)
	require.NoError(t, err)
	require.Equal(t, delay, got)
}

func TestAfterAtMost(t *testing.T) {
	limit := time.Now().Add(time.Minute).UTC().Format(time.RFC3339)
	tests := map[string]struct {
		duration string
		want     string // "" if the duration decides
		fails    bool
	}{
		"below the limit": {duration: "1s"},
		"above the limit": {duration: "1h", want: limit},
		"not a duration":  {duration: "soon", fails: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := afterAtMost(test.duration, limit)
			require.Equal(t, test.fails, err != nil)
			if test.want != "" {
				require.Equal(t, test.want, got)
			} else if !test.fails {
				require.Less(t, got, limit)
			}
		})
	}
}

func TestChangesAreRepeatedUntilAnswered(t *testing.T) {
	tests := map[string]struct {
		method string
		tries  int32
		fails  bool
	}{
		"a change":  {http.MethodPatch, 3, false},
		"a removal": {http.MethodDelete, 3, false},
		"a read":    {http.MethodGet, 1, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var tries atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if string(body) != "body" || tries.Add(1) < 3 {
					panic(http.ErrAbortHandler) // breaks the connection
				}
			}))
			defer server.Close()
			request, err := http.NewRequestWithContext(t.Context(), test.method, server.URL, strings.NewReader("body"))
			require.NoError(t, err)
			response, err := repeatUntilAnswered(&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
			require.Equal(t, test.fails, err != nil)
			if err == nil {
				require.NoError(t, response.Body.Close())
			}
			require.Equal(t, test.tries, tries.Load())
		})
	}
}
