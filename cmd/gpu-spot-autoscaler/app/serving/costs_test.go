package serving

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/pricing/ledger"
)

func TestCostsAreServedByTheLeaderAsJSONAndCSV(t *testing.T) {
	costs := &Costs{}
	get := func(query string) *httptest.ResponseRecorder {
		answer := httptest.NewRecorder()
		costs.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, CostsPath+query, nil))
		return answer
	}
	assert.Equal(t, http.StatusMisdirectedRequest, get("").Code)

	ctx, cancel := context.WithCancel(t.Context())
	costs.Lead(ctx, ledger.New(ledger.Config{}))
	answer := get("")
	require.Equal(t, http.StatusOK, answer.Code)
	var report ledger.Report
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &report))
	assert.Contains(t, answer.Body.String(), `"jobs": []`, "lists are never null")
	answer = get("?format=csv")
	assert.Equal(t, "text/csv", answer.Header().Get("Content-Type"))
	assert.True(t, strings.HasPrefix(answer.Body.String(), "line,pool,"))
	assert.Equal(t, http.StatusBadRequest, get("?format=xml").Code)

	cancel()
	assert.Eventually(t, func() bool { return get("").Code == http.StatusMisdirectedRequest }, 10*time.Second, time.Millisecond)
}
