package dryrun

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Transport returns a wrapper of transports that makes each request which may change something a dry run. The API server authorizes and admits such
// a request, and answers as if it had been carried out, but stores nothing.
// Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run
func Transport(next http.RoundTripper) http.RoundTripper { return &transport{next} }

type transport struct{ next http.RoundTripper }

// RoundTrip sends the request. It refuses one that asks for a kind of dry run other than All.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return t.next.RoundTrip(r)
	}
	query := r.URL.Query()
	if asked := query["dryRun"]; len(asked) > 0 && (len(asked) != 1 || asked[0] != metav1.DryRunAll) {
		return nil, fmt.Errorf("dry run: %s %s asks for dryRun=%v", r.Method, r.URL.Path, asked)
	}
	query.Set("dryRun", metav1.DryRunAll)
	dry := r.Clone(r.Context()) // a RoundTripper must not modify the request
	dry.URL.RawQuery = query.Encode()
	return t.next.RoundTrip(dry)
}

// ReadOnly returns a wrapper of transports that sends no request which may change something, not even as a dry run. Whoever makes one is told
// that it is forbidden, as by an API server: recorders of Events do not try that again.
// Source: recordEvent in tools/record/event.go of client-go 0.33.
func ReadOnly(next http.RoundTripper) http.RoundTripper { return &readOnly{next} }

type readOnly struct{ next http.RoundTripper }

// RoundTrip sends the request if it is a read.
func (t *readOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return t.next.RoundTrip(r)
	}
	return forbidden(r, fmt.Errorf("%s %s would write, and nothing is to be written", r.Method, r.URL.Path))
}

func forbidden(r *http.Request, reason error) (*http.Response, error) {
	if r.Body != nil {
		r.Body.Close() // as a RoundTripper must
	}
	status := apierrors.NewForbidden(schema.GroupResource{}, "", reason).Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	body, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status: http.StatusText(http.StatusForbidden), StatusCode: http.StatusForbidden, Proto: r.Proto, ProtoMajor: r.ProtoMajor, ProtoMinor: r.ProtoMinor,
		Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}, nil
}

// WrappedRoundTripper returns the transport that is wrapped.
func (t *readOnly) WrappedRoundTripper() http.RoundTripper { return t.next }

// WrappedRoundTripper returns the transport that is wrapped.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }
