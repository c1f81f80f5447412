package kubelet

import (
	"net/http"
	"time"
)

// repeatEvery is the pause between two tries of a request.
const repeatEvery = 200 * time.Millisecond

// repeatUntilAnswered repeats a change that failed on the wire until the API server answers: kwok would give it up, and
// a pod whose start was lost while the API server was away would stay Pending for ever. What kwok sends may be repeated
// without harm. Reads are left alone; they are repeated by the watches they belong to.
func repeatUntilAnswered(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		for {
			response, err := next.RoundTrip(r)
			if err == nil || r.Method == http.MethodGet || (r.Body != nil && r.GetBody == nil) {
				return response, err
			}
			select {
			case <-r.Context().Done():
				return nil, err
			case <-time.After(repeatEvery):
			}
			r = r.Clone(r.Context())
			if r.GetBody != nil {
				if r.Body, err = r.GetBody(); err != nil {
					return nil, err
				}
			}
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
