package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	metadataTimeout = 2 * time.Second
	maxMetadataBody = 1024

	tokenPath       = "/latest/api/token"
	terminationPath = "/latest/meta-data/instance/spot/termination-time"
	tokenTTLHeader  = "X-aliyun-ecs-metadata-token-ttl-seconds"
	tokenHeader     = "X-aliyun-ecs-metadata-token"
	tokenTTL        = time.Hour
)

// A time further away than these is not a deadline, but a placeholder or in another format.
const (
	deadlineAtMostPast  = time.Hour
	deadlineAtMostAhead = 24 * time.Hour
)

var (
	errMalformed = errors.New("not a termination time")
	usableToken  = regexp.MustCompile(`^[!-~]+$`) // fit for a header
)

// metadataClient reads the metadata of the instance that it runs on. It is for one goroutine.
type metadataClient struct {
	endpoint string
	client   *http.Client
	now      func() time.Time

	token            string
	renewAt, expires time.Time
}

func newMetadataClient(endpoint string, now func() time.Time) *metadataClient {
	return &metadataClient{
		endpoint: strings.TrimSuffix(endpoint, "/"),
		now:      now,
		client: &http.Client{
			Timeout: metadataTimeout,
			// Only the instance itself reaches its metadata, so proxies of the environment and redirects are not followed.
			Transport:     &http.Transport{MaxIdleConns: 1, IdleConnTimeout: time.Minute},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

func (m *metadataClient) terminationTime(ctx context.Context) (time.Time, error) {
	status, body, err := m.read(ctx, terminationPath)
	if err == nil && (status == http.StatusUnauthorized || status == http.StatusForbidden) && m.token != "" {
		m.token = "" // the service no longer accepts it
		status, body, err = m.read(ctx, terminationPath)
	}
	switch {
	case err != nil:
		return time.Time{}, err
	case status == http.StatusNotFound, status == http.StatusOK && body == "":
		return time.Time{}, nil
	case status != http.StatusOK:
		return time.Time{}, fmt.Errorf("GET %s: status %d", terminationPath, status)
	}
	deadline, err := time.Parse(time.RFC3339, body)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: %.64q", errMalformed, body)
	}
	if ahead := deadline.Sub(m.now()); ahead < -deadlineAtMostPast || ahead > deadlineAtMostAhead {
		return time.Time{}, fmt.Errorf("%w: %s is %v away", errMalformed, body, ahead)
	}
	return deadline.UTC(), nil
}

// read requests the path with a token (IMDSv2) or, if the service gives none, without (IMDSv1).
func (m *metadataClient) read(ctx context.Context, path string) (status int, body string, err error) {
	if m.token == "" || !m.now().Before(m.renewAt) {
		m.renewToken(ctx)
	}
	headers := map[string]string{}
	if m.token != "" {
		headers[tokenHeader] = m.token
	}
	return m.do(ctx, http.MethodGet, path, headers)
}

// renewToken keeps the last token if the service gives none, for whatever reason, and leaves the token empty once that has expired.
// A service that requires a token then refuses the request.
func (m *metadataClient) renewToken(ctx context.Context) {
	asked := m.now()
	status, body, err := m.do(ctx, http.MethodPut, tokenPath, map[string]string{tokenTTLHeader: strconv.Itoa(int(tokenTTL.Seconds()))})
	switch {
	case err == nil && status == http.StatusOK && usableToken.MatchString(body):
		m.token, m.renewAt, m.expires = body, asked.Add(tokenTTL/2), asked.Add(tokenTTL)
	case !m.now().Before(m.expires):
		m.token = ""
	}
}

func (m *metadataClient) do(ctx context.Context, method, path string, headers map[string]string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, m.endpoint+path, nil)
	if err != nil {
		return 0, "", err
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	response, err := m.client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxMetadataBody))
	if err != nil {
		return 0, "", fmt.Errorf("%s %s: %w", method, path, err)
	}
	return response.StatusCode, strings.TrimSpace(string(text)), nil
}
