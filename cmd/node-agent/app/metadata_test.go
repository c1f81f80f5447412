package app

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var morning = time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)

func TestMetadataSaysWhenTheInstanceEndsOrNothing(t *testing.T) {
	deadline := morning.Add(5 * time.Minute)
	for name, c := range map[string]struct {
		status int
		body   string
		want   time.Time
		fails  string
	}{
		"no such item":                {status: 404, body: "<html>404</html>"},
		"empty":                       {status: 200},
		"only white space":            {status: 200, body: " \n"},
		"a time":                      {status: 200, body: "2026-01-05T09:05:00Z", want: deadline},
		"a time and a line end":       {status: 200, body: "2026-01-05T09:05:00Z\n", want: deadline},
		"a time of another zone":      {status: 200, body: "2026-01-05T17:05:00+08:00", want: deadline},
		"a time just past":            {status: 200, body: "2026-01-05T08:59:00Z", want: morning.Add(-time.Minute)},
		"words":                       {status: 200, body: "soon", fails: "not a termination time"},
		"a page":                      {status: 200, body: strings.Repeat("<html>", 10000), fails: "not a termination time"},
		"a time that means none":      {status: 200, body: "0001-01-01T00:00:00Z", fails: "not a termination time"},
		"a time long past":            {status: 200, body: "2026-01-05T07:59:00Z", fails: "not a termination time"},
		"a time far ahead":            {status: 200, body: "2099-12-31T00:00:00Z", fails: "not a termination time"},
		"the service is out of order": {status: 500, body: "2026-01-05T09:05:00Z", fails: "status 500"},
		"the service is busy":         {status: 429, fails: "status 429"},
		"a redirect":                  {status: 302, body: "2026-01-05T09:05:00Z", fails: "status 302"},
		"a refusal":                   {status: 403, fails: "status 403"},
	} {
		t.Run(name, func(t *testing.T) {
			imds := newFakeMetadata(t)
			imds.answer = func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			}
			got, err := newMetadataClient(imds.URL, func() time.Time { return morning }).terminationTime(t.Context())
			if c.fails != "" {
				assert.ErrorContains(t, err, c.fails)
				assert.Zero(t, got)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}

// tokens is a service that hands them out, counts them, and takes only the last one.
type tokens struct {
	issued int
	put    http.HandlerFunc // instead, if it is set
	seen   []string
}

func (s *tokens) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut && s.put != nil {
		s.put(w, r)
		return
	}
	if r.Method == http.MethodPut {
		s.issued++
		fmt.Fprintf(w, "token-%d-%s", s.issued, r.Header.Get("X-aliyun-ecs-metadata-token-ttl-seconds"))
		return
	}
	token := r.Header.Get("X-aliyun-ecs-metadata-token")
	s.seen = append(s.seen, token)
	if token != "" && !strings.HasPrefix(token, fmt.Sprintf("token-%d-", s.issued)) {
		http.Error(w, "forbidden", http.StatusForbidden)
		return
	}
	http.NotFound(w, r)
}

func TestMetadataTokenIsKeptForHalfItsLife(t *testing.T) {
	service := &tokens{}
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	now := morning
	client := newMetadataClient(server.URL+"/", func() time.Time { return now })
	for _, minutes := range []int{0, 10, 29, 30, 31} {
		now = morning.Add(time.Duration(minutes) * time.Minute)
		_, err := client.terminationTime(t.Context())
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"token-1-3600", "token-1-3600", "token-1-3600", "token-2-3600", "token-2-3600"}, service.seen)
}

func TestMetadataTokenIsUsedUntilItExpiresWhileNoOtherIsToBeHad(t *testing.T) {
	service := &tokens{}
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	now := morning
	client := newMetadataClient(server.URL, func() time.Time { return now })
	for _, minutes := range []int{0, 30, 59, 60} {
		now = morning.Add(time.Duration(minutes) * time.Minute)
		_, err := client.terminationTime(t.Context())
		require.NoError(t, err)
		service.put = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	}
	assert.Equal(t, []string{"token-1-3600", "token-1-3600", "token-1-3600", ""}, service.seen)
}

func TestMetadataTokenThatWasForgottenIsRenewedAtOnce(t *testing.T) {
	service := &tokens{}
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	client := newMetadataClient(server.URL, func() time.Time { return morning })
	_, err := client.terminationTime(t.Context())
	require.NoError(t, err)
	service.issued = 7
	_, err = client.terminationTime(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"token-1-3600", "token-1-3600", "token-8-3600"}, service.seen)
}

func TestMetadataIsReadWithoutTokenWhereNoneIsToBeHad(t *testing.T) {
	for name, put := range map[string]http.HandlerFunc{
		"no such item":     http.NotFound,
		"not allowed":      func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) },
		"an empty token":   func(http.ResponseWriter, *http.Request) {},
		"no token at all":  func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>\r\nX: y</html>") },
		"a broken service": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			service := &tokens{put: put}
			server := httptest.NewServer(service)
			t.Cleanup(server.Close)
			_, err := newMetadataClient(server.URL, func() time.Time { return morning }).terminationTime(t.Context())
			require.NoError(t, err)
			assert.Equal(t, []string{""}, service.seen)
		})
	}
}

func TestMetadataServiceThatIsNotThereIsAnError(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	_, err := newMetadataClient(server.URL, time.Now).terminationTime(t.Context())
	assert.Error(t, err)
}
