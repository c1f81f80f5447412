package alisim

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Headers of the token protocol (IMDSv2).
const (
	tokenTTLHeader = "X-aliyun-ecs-metadata-token-ttl-seconds"
	tokenHeader    = "X-aliyun-ecs-metadata-token"
)

const maxTokenTTL = 21600 // seconds

// metadataTokens remembers what was handed out: the instance a token is for, and until when. Guarded by the cloud's
// mutex.
type metadataTokens map[string]metadataToken

type metadataToken struct {
	instance *instance
	expires  time.Time
}

// serveMetadata answers for one instance what http://100.100.100.200/latest/… answers on it. The path is
// /metadata/<instance-id>/latest/….
func (s *Server) serveMetadata(w http.ResponseWriter, r *http.Request) {
	id, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, metadataPath), "/")
	c := s.cloud
	c.mu.Lock()
	defer c.mu.Unlock()
	i, known := c.instanceBy[id]
	if !known || i.status == statusReleased {
		http.NotFound(w, r)
		return
	}
	now := c.clock.Now()
	if r.Method == http.MethodPut && rest == "latest/api/token" {
		c.issueMetadataToken(w, r, i, now)
		return
	}
	if r.Method != http.MethodGet {
		http.Error(w, "405 - Method Not Allowed", http.StatusMethodNotAllowed)
		return
	}
	if !c.mayRead(r.Header.Get(tokenHeader), i, now) {
		http.Error(w, "403 - Forbidden", http.StatusForbidden)
		return
	}
	item, here := strings.CutPrefix(strings.TrimSuffix(rest, "/"), "latest/meta-data")
	value, found := c.metadata(i, strings.TrimPrefix(item, "/"))
	if !here || !found {
		http.NotFound(w, r)
		return
	}
	io.WriteString(w, value)
}

func (c *cloud) issueMetadataToken(w http.ResponseWriter, r *http.Request, i *instance, now time.Time) {
	seconds, err := strconv.Atoi(r.Header.Get(tokenTTLHeader))
	if err != nil || seconds < 1 || seconds > maxTokenTTL {
		http.Error(w, "400 - Bad Request", http.StatusBadRequest)
		return
	}
	for text, t := range c.metadataTokens {
		if !now.Before(t.expires) {
			delete(c.metadataTokens, text)
		}
	}
	text := uuid.NewString()
	c.metadataTokens[text] = metadataToken{i, now.Add(time.Duration(seconds) * time.Second)}
	io.WriteString(w, text)
}

// mayRead says whether a request with this token, or none, is served.
func (c *cloud) mayRead(text string, i *instance, now time.Time) bool {
	if text == "" {
		return !c.world.RequireIMDSv2
	}
	t, known := c.metadataTokens[text]
	return known && t.instance == i && now.Before(t.expires)
}

// metadata returns one item. There is no termination time before the notice.
func (c *cloud) metadata(i *instance, item string) (string, bool) {
	items := map[string]string{
		"instance-id":                    i.id,
		"instance/instance-type":         i.typ.ID,
		"hostname":                       i.id,
		"private-ipv4":                   i.ip,
		"region-id":                      c.world.Region,
		"zone-id":                        i.vsw.Zone,
		"vswitch-id":                     i.vsw.ID,
		"vpc-id":                         c.world.VPCID,
		"owner-account-id":               c.world.AccountID,
		"instance/spot/termination-time": optionalTime(i.deadline, secondLayout),
	}
	value := items[item]
	return value, value != ""
}
