package alisim_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/test/alisim"
)

type answer struct {
	status int
	body   string
}

func (s *sim) http(method, address string, header http.Header) answer {
	s.t.Helper()
	req, err := http.NewRequest(method, address, nil)
	require.NoError(s.t, err)
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return answer{resp.StatusCode, string(body)}
}

func (s *sim) metadata(id, item string) answer {
	return s.http(http.MethodGet, s.MetadataURL(id)+"/latest/meta-data/"+item, nil)
}

func header(name, value string) http.Header {
	h := http.Header{}
	h.Set(name, value)
	return h
}

func TestMetadataOfAnInstance(t *testing.T) {
	s := start(t)
	s.buy(spotGroup, 1)
	id := ids(s.members(spotGroup))[0]
	for item, want := range map[string]answer{
		"instance-id":                     {200, id},
		"instance/instance-type":          {200, small},
		"region-id":                       {200, region},
		"zone-id":                         {200, zoneA},
		"instance/spot/termination-time":  {404, ""},
		"instance/spot/termination-time/": {404, ""},
		"no-such-item":                    {404, ""},
	} {
		got := s.metadata(id, item)
		assert.Equal(t, want.status, got.status, item)
		if want.status == 200 {
			assert.Equal(t, want.body, got.body, item)
		}
	}
	assert.Equal(t, 404, s.metadata("i-x", "instance-id").status)
}

func TestMetadataTokens(t *testing.T) {
	s := start(t, func(w *alisim.World) { w.RequireIMDSv2 = true })
	s.buy(spotGroup, 2)
	mine, other := ids(s.members(spotGroup))[0], ids(s.members(spotGroup))[1]
	ask := func(id, token string) int {
		return s.http(http.MethodGet, s.MetadataURL(id)+"/latest/meta-data/instance-id", header("X-aliyun-ecs-metadata-token", token)).status
	}
	put := func(ttl string) answer {
		return s.http(http.MethodPut, s.MetadataURL(mine)+"/latest/api/token", header("X-aliyun-ecs-metadata-token-ttl-seconds", ttl))
	}
	assert.Equal(t, 403, s.metadata(mine, "instance-id").status, "requests without token are refused where tokens are required")
	for _, ttl := range []string{"", "0", "21601", "long"} {
		assert.Equal(t, 400, put(ttl).status, "ttl %q", ttl)
	}
	token := put("60")
	require.Equal(t, 200, token.status)
	assert.Equal(t, 200, ask(mine, token.body))
	assert.Equal(t, 403, ask(other, token.body), "a token is for one instance")
	assert.Equal(t, 403, ask(mine, "made-up"))
	s.pass(time.Minute)
	assert.Equal(t, 403, ask(mine, token.body), "it is over")
	assert.Equal(t, 405, s.http(http.MethodPost, s.MetadataURL(mine)+"/latest/meta-data/instance-id", nil).status)
	assert.False(t, strings.HasSuffix(s.MetadataURL(mine), "/"))
}
