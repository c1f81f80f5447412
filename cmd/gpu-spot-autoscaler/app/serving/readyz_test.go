package serving

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/problems"
)

// discardedEvents discards Events.
type discardedEvents struct{}

func (discardedEvents) Eventf(string, string, string, ...any) {}

func askReadyz(r *Readiness, target string) (int, string) {
	response := httptest.NewRecorder()
	r.ServeHTTP(response, httptest.NewRequest(http.MethodGet, target, nil))
	return response.Code, response.Body.String()
}

func TestReadinessOfAReplica(t *testing.T) {
	r := &Readiness{}
	code, text := askReadyz(r, "/readyz?verbose")
	assert.Equal(t, 500, code, "it may be about to lead")
	assert.Contains(t, text, "[-]leader failed: it is not known yet which replica leads")
	r.StandBy()
	code, text = askReadyz(r, "/readyz?verbose")
	assert.Equal(t, 200, code, "a standby is ready, whatever it could do")
	assert.Contains(t, text, "standby")
	code, text = askReadyz(r, "/readyz")
	assert.Equal(t, 200, code)
	assert.Equal(t, "ok", text)

	board := problems.NewBoard(discardedEvents{}, clock.RealClock{})
	r.Lead(board)
	board.Update(problems.Poll)
	board.Update(problems.Refresh, problems.Problem{Reason: "wrong_secret", Cause: "the secret is wrong", Fix: "Correct it."})
	for _, target := range []string{"/readyz", "/readyz?verbose"} {
		code, text = askReadyz(r, target)
		assert.Equal(t, 500, code)
		assert.Contains(t, text, "[-]refresh failed")
		assert.Contains(t, text, "[+]poll ok")
		assert.Contains(t, text, "\n[!]refresh wrong_secret: the secret is wrong. Correct it.\n", "a failure says why")
	}
	board.Update(problems.Refresh)
	board.Update(problems.Pools, problems.Problem{Reason: "no_pools", Cause: "there are none"})
	code, text = askReadyz(r, "/readyz?verbose")
	assert.Equal(t, 200, code)
	assert.Contains(t, text, "[!]pools no_pools: there are none\n", "what is active is told of one that is ready, too")
}
