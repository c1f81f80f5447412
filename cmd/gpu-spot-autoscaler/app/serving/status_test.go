package serving

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	componentconfig "k8s.io/component-base/config"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/status"
)

func TestAReplicaThatDoesNotLeadSaysWhoDoes(t *testing.T) {
	now := time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)
	election := componentconfig.LeaderElectionConfiguration{LeaderElect: true, ResourceNamespace: "kube-system", ResourceName: "gpu-spot-autoscaler"}
	for name, c := range map[string]struct {
		holder  string
		renewed time.Time
		want    string
	}{
		"another leads":                 {"replica-b", now.Add(-5 * time.Second), "replica-b"},
		"the one that led has gone":     {"replica-b", now.Add(-time.Minute), ""},
		"the lease was given back":      {"", now, ""},
		"there has never been a leader": {"none", time.Time{}, ""},
		"it has only begun to lead":     {"replica-a", now.Add(-5 * time.Second), "replica-a"},
	} {
		client := fake.NewClientset()
		if c.holder != "none" {
			_, err := client.CoordinationV1().Leases("kube-system").Create(t.Context(), &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: election.ResourceName},
				Spec: coordinationv1.LeaseSpec{
					HolderIdentity: &c.holder, RenewTime: ptr.To(metav1.NewMicroTime(c.renewed)), LeaseDurationSeconds: ptr.To[int32](15),
				},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
		}
		answer := httptest.NewRecorder()
		NewStatus(StatusConfig{Client: client, LeaderElection: election, Identity: "replica-a", Clock: testingclock.NewFakeClock(now)}).ServeHTTP(answer, httptest.NewRequest("GET", status.Path, nil))
		assert.Equal(t, http.StatusMisdirectedRequest, answer.Code, name)
		undescribed := ""
		if c.want == "replica-a" {
			undescribed = `"undescribed": true,`
		}
		assert.JSONEq(t, strings.ReplaceAll(`{`+undescribed+`"apiVersion": "gpu-spot.autoscaling/v1", "kind": "Status", "time": "2026-01-05T09:00:00Z",
			"replica": "replica-a", "leader": "LEADER", "refreshed": null, "pools": [], "pending": [], "pendingTotal": 0, "spend": null, "reclaims": [], "jobs": [], "problems": []}`, "LEADER", c.want),
			answer.Body.String(), name)
		var said status.Status
		require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &said))
		assert.Equal(t, c.want, said.Leader)
	}
	alone := httptest.NewRecorder()
	NewStatus(StatusConfig{Identity: "replica-a", Clock: testingclock.NewFakeClock(now)}).ServeHTTP(alone, httptest.NewRequest("GET", status.Path, nil))
	assert.Contains(t, alone.Body.String(), `"leader": "replica-a"`, "where none is elected")
}
