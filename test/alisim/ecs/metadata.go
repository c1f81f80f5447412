package ecs

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"gpu-spot-autoscaler/test/alisim/protocol"
)

// MetadataPath is where the metadata of all instances are.
const MetadataPath = "/metadata/"

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
	instance *Instance
	expires  time.Time
}

// metadataService answers instances that read their own metadata.
type metadataService struct{ *Compute }

// ServeMetadata answers for one instance what http://100.100.100.200/latest/… answers on it. The path is
// /metadata/<instance-id>/latest/…. The lock must not be held.
func (c *Compute) ServeMetadata(w http.ResponseWriter, r *http.Request) {
	m := metadataService{c}
	id, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, MetadataPath), "/")
	c.cloud.Lock()
	defer c.cloud.Unlock()
	i, known := c.byID[id]
	if !known {
		http.NotFound(w, r)
		return
	}
	now := c.cloud.Clock.Now()
	if r.Method == http.MethodPut && rest == "latest/api/token" {
		m.issueMetadataToken(w, r, i, now)
		return
	}
	if r.Method != http.MethodGet {
		http.Error(w, "405 - Method Not Allowed", http.StatusMethodNotAllowed)
		return
	}
	if !m.mayRead(r.Header.Get(tokenHeader), i, now) {
		http.Error(w, "403 - Forbidden", http.StatusForbidden)
		return
	}
	item, here := strings.CutPrefix(strings.TrimSuffix(rest, "/"), "latest/meta-data")
	value, found := m.metadata(i, strings.TrimPrefix(item, "/"))
	if !here || !found {
		http.NotFound(w, r)
		return
	}
	io.WriteString(w, value)
}

func (c metadataService) issueMetadataToken(w http.ResponseWriter, r *http.Request, i *Instance, now time.Time) {
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
func (c metadataService) mayRead(text string, i *Instance, now time.Time) bool {
	if text == "" {
		return !c.RequireIMDSv2
	}
	t, known := c.metadataTokens[text]
	return known && t.instance == i && now.Before(t.expires)
}

// metadata returns one item. There is no termination time before the notice.
func (c metadataService) metadata(i *Instance, item string) (string, bool) {
	items := map[string]string{
		"instance-id":                    i.ID,
		"instance/instance-type":         i.Type.ID,
		"hostname":                       i.ID,
		"private-ipv4":                   i.IP,
		"region-id":                      c.cloud.Region,
		"zone-id":                        i.VSwitch.Zone,
		"vswitch-id":                     i.VSwitch.ID,
		"vpc-id":                         c.VPCID,
		"owner-account-id":               c.cloud.AccountID,
		"instance/spot/termination-time": protocol.OptionalTime(i.Deadline, protocol.SecondLayout),
	}
	value := items[item]
	return value, value != ""
}
