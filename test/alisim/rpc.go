package alisim

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"
)

// Versions tell the services apart: the signature covers the version, the host name it does not.
const (
	versionESS = "2014-08-28"
	versionECS = "2014-05-26"
	versionVPC = "2016-04-28"
	versionSTS = "2015-04-01"
)

// maxBody bounds a request's body; the longest real one, an OIDC token, has some kilobytes.
const maxBody = 1 << 20

// request is an authenticated call of an action.
type request struct {
	parameters
	id              string
	service, action string
	caller          caller
	now             time.Time
	// faults are what has to go wrong.
	faults faults
}

// reply is the body of an answer; RequestId is added on the way out. The nesting that the SDK expects, such as
// ScalingGroups.ScalingGroup[], is written out where the reply is made.
type reply map[string]any

// wrap nests a list the way Alibaba's JSON does.
func wrap[T any](name string, list []T) map[string][]T {
	if list == nil {
		list = []T{} // an empty list, not null
	}
	return map[string][]T{name: list}
}

// handler carries out one action. The cloud's mutex is held.
type handler func(c *cloud, r *request) (reply, error)

// action is an action and how it may be called.
type action struct {
	handle handler
	// unsigned actions bring no access key.
	unsigned bool
	// idempotent actions take a ClientToken.
	idempotent bool
}

type service struct {
	name    string
	actions map[string]action
}

// services holds every action there is, by version.
var services = map[string]service{
	versionESS: {"Ess", map[string]action{
		"DescribeScalingGroups":         {handle: describeScalingGroups},
		"DescribeScalingInstances":      {handle: describeScalingInstances},
		"DescribeScalingConfigurations": {handle: describeScalingConfigurations},
		"DescribeScalingActivities":     {handle: describeScalingActivities},
		"DescribeScalingRules":          {handle: describeScalingRules},
		"CreateScalingRule":             {handle: createScalingRule},
		"ModifyScalingRule":             {handle: modifyScalingRule},
		"DeleteScalingRule":             {handle: deleteScalingRule},
		"ExecuteScalingRule":            {handle: executeScalingRule, idempotent: true},
		"ScaleWithAdjustment":           {handle: scaleWithAdjustment, idempotent: true},
		"RemoveInstances":               {handle: removeInstances, idempotent: true},
		"ModifyScalingGroup":            {handle: modifyScalingGroup},
		"SuspendProcesses":              {handle: suspendProcesses, idempotent: true},
		"ResumeProcesses":               {handle: resumeProcesses, idempotent: true},
		"ListTagResources":              {handle: listTagResources},
	}},
	versionECS: {"Ecs", map[string]action{
		"DescribeInstances":         {handle: describeInstances},
		"DescribeInstanceTypes":     {handle: describeInstanceTypes},
		"DescribeSpotPriceHistory":  {handle: describeSpotPriceHistory},
		"DescribeSpotAdvice":        {handle: describeSpotAdvice},
		"DescribePrice":             {handle: describePrice},
		"DescribeAvailableResource": {handle: describeAvailableResource},
	}},
	versionVPC: {"Vpc", map[string]action{
		"DescribeVSwitches": {handle: describeVSwitches},
	}},
	versionSTS: {"Sts", map[string]action{
		"AssumeRoleWithOIDC": {handle: assumeRoleWithOIDC, unsigned: true},
		"GetCallerIdentity":  {handle: getCallerIdentity},
	}},
}

// serveRPC answers one call: read, find the action, do what faults demand, authenticate, limit, carry out, write.
func (s *Server) serveRPC(w http.ResponseWriter, hr *http.Request) {
	r := &request{id: uuid.NewString(), now: s.cloud.clock.Now()}
	body, err := s.call(hr, r)
	s.cloud.record(r, err)
	if err == errHangUp {
		panic(http.ErrAbortHandler)
	}
	if broken, yes := r.faults[FaultNotJSON]; yes {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(orElse(broken.Status, http.StatusBadGateway))
		io.WriteString(w, "<html><body><h1>502 Bad Gateway</h1></body></html>")
		return
	}
	write(w, hr.Host, r, body, err)
}

// call returns the reply, errHangUp where the client is to get none, or the refusal.
func (s *Server) call(hr *http.Request, r *request) (reply, error) {
	p, err := readParameters(hr)
	if err != nil {
		return nil, err
	}
	r.parameters = p
	a, err := r.find()
	if err != nil {
		return nil, err
	}
	r.faults = s.cloud.takeFaults(r)
	if slow, yes := r.faults[FaultLatency]; yes {
		select {
		case <-s.cloud.clock.After(slow.Latency):
		case <-hr.Context().Done():
			return nil, errHangUp
		}
		r.now = s.cloud.clock.Now()
	}
	if err := r.faults.refusal(); err != nil || r.faults.has(FaultNotJSON) {
		return nil, err
	}
	body, err := s.cloud.perform(hr.Method, a, r)
	if r.faults.has(FaultLostReply) {
		return nil, errHangUp
	}
	return body, err
}

// find looks the action up.
func (r *request) find() (action, error) {
	r.action = r.get("Action")
	if r.action == "" {
		return action{}, missing("Action")
	}
	service, known := services[r.get("Version")]
	if !known {
		return action{}, badRequest("InvalidVersion", "Specified parameter Version is not valid.")
	}
	r.service = service.name
	a, known := service.actions[r.action]
	if !known {
		return action{}, notFound("InvalidAction.NotFound", "Specified api %s is not found, please check your url and method.", r.action)
	}
	return a, nil
}

// perform carries the action out under the mutex, once what every action demands is in order.
func (c *cloud) perform(method string, a action, r *request) (reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !a.unsigned {
		who, err := c.auth.verify(method, r.parameters, r.now)
		if err != nil {
			return nil, err
		}
		r.caller = who
	}
	if !c.limits.allow(r.action, r.now) {
		return nil, badRequest(codeThrottled, "Request was denied due to user flow control.")
	}
	if region := r.get("RegionId"); region != "" && region != c.world.Region {
		return nil, notFound("InvalidRegionId.NotFound", "The specified RegionId %q does not exist; this simulator has %q.", region, c.world.Region)
	}
	if !a.idempotent {
		return a.handle(c, r)
	}
	return c.tokens.once(c, a, r)
}

// readParameters merges query and form body. Of a name given twice the first counts, as in the signature.
func readParameters(hr *http.Request) (parameters, error) {
	p := url.Values{}
	query, err := url.ParseQuery(hr.URL.RawQuery)
	if err != nil {
		return nil, badRequest("InvalidParameter", "The query is not well formed: %v.", err)
	}
	body, err := io.ReadAll(io.LimitReader(hr.Body, maxBody))
	if err != nil {
		return nil, badRequest("InvalidParameter", "The body could not be read: %v.", err)
	}
	form := url.Values{}
	if kind, _, _ := mime.ParseMediaType(hr.Header.Get("Content-Type")); kind == "application/x-www-form-urlencoded" {
		if form, err = url.ParseQuery(string(body)); err != nil {
			return nil, badRequest("InvalidParameter", "The body is not well formed: %v.", err)
		}
	}
	for _, values := range []url.Values{form, query} {
		for name, v := range values {
			p[name] = v[:1]
		}
	}
	return parameters(p), nil
}

func write(w http.ResponseWriter, host string, r *request, body reply, err error) {
	status := http.StatusOK
	out := reply{"RequestId": r.id}
	if err != nil {
		refusal, known := err.(*apiError)
		if !known {
			refusal = refuse(http.StatusInternalServerError, "InternalError", "%v", err)
		}
		status = refusal.Status
		out["Code"], out["Message"], out["HostId"] = refusal.Code, refusal.Message, host
		out["Recommend"] = fmt.Sprintf("https://api.alibabacloud.com/troubleshoot?q=%s&product=%s", refusal.Code, r.service)
	}
	for name, value := range body {
		out[name] = value
	}
	text, err := json.Marshal(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json;charset=utf-8")
	w.Header().Set("x-acs-request-id", r.id)
	w.WriteHeader(status)
	w.Write(text)
}

func orElse[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}
