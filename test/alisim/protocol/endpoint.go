// Package protocol speaks Alibaba's RPC protocol to clients: requests that are signed, checked, limited, idempotent where
// they bring a ClientToken, logged, and made to fail where a test wants it.
package protocol

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/test/alisim/ram"
)

// maxBody bounds a request's body; the longest real one, an OIDC token, has some kilobytes.
const maxBody = 1 << 20

// Service is one of Alibaba's services. The version tells services apart: the signature covers it, the host name it does
// not.
type Service struct {
	Name, Version string
	Actions       map[string]Action
}

// Under returns the service with every action carried out while the lock is held.
func (s Service) Under(lock sync.Locker) Service {
	locked := make(map[string]Action, len(s.Actions))
	for name, a := range s.Actions {
		handle, slot := a.Handle, a.Slot
		a.Handle = func(r *Request) (Reply, error) {
			lock.Lock()
			defer lock.Unlock()
			return handle(r)
		}
		if slot != nil {
			a.Slot = func(r *Request) error {
				lock.Lock()
				defer lock.Unlock()
				return slot(r)
			}
		}
		locked[name] = a
	}
	s.Actions = locked
	return s
}

// Action is an action and how it may be called.
type Action struct {
	Handle Handler
	// Unsigned actions bring no access key.
	Unsigned bool
	// NeedsNoPermission is for actions that no policy has to allow.
	NeedsNoPermission bool
	// OnlyByGET actions refuse a POST. Source: the SDK sends them by GET; GUESS: that nothing else is taken.
	OnlyByGET bool
	// Idempotent actions take a ClientToken.
	Idempotent bool
	// Slot refuses a request that has to wait for its turn; nil where none has.
	Slot func(r *Request) error
}

// Handler carries out one action. An error that is not an Error becomes an InternalError.
type Handler func(r *Request) (Reply, error)

// Request is an authenticated call of an action.
type Request struct {
	Parameters
	ID              string
	Service, Action string
	Caller          Caller
	Now             time.Time
	// Faults are what has to go wrong.
	Faults Faults
}

// Reply is the body of an answer; RequestId is added on the way out. The nesting that the SDK expects, such as
// ScalingGroups.ScalingGroup[], is written out where the reply is made.
type Reply map[string]any

// Wrap nests a list the way Alibaba's JSON does.
func Wrap[T any](name string, list []T) map[string][]T {
	if list == nil {
		list = []T{} // an empty list, not null
	}
	return map[string][]T{name: list}
}

// Options say what an Endpoint demands of requests.
type Options struct {
	Region string
	Clock  clock.Clock
	// Keys are those that may sign.
	Keys *Keys
	// RateLimits are requests per 60 seconds by action; the key "*" is for all actions not named; 0 means unlimited.
	RateLimits map[string]int
	// TokenLife is how long a ClientToken is remembered; default a day.
	TokenLife time.Duration
	// Policy is what signed requests may do whose caller has no policy of its own; nil allows everything, as the account itself may.
	Policy *ram.Policy
	// TagsOf returns the tags of the resource that a request names, nil where it names none. Required with a Policy.
	TagsOf func(r *Request) map[string]string
	// SlotBeforeToken looks whether a request has to wait for its turn before it looks whether it came before.
	SlotBeforeToken bool
}

// Endpoint answers the requests of all services.
type Endpoint struct {
	Options
	services map[string]Service // by version
	limits   *limits
	tokens   clientTokens
	faults   switchboard
	log      requestLog
	// skew is how far the clocks of clients are behind the cloud's, in nanoseconds.
	skew atomic.Int64
}

// Skew has the clocks of all clients go wrong: they are behind the cloud's by so much, or ahead where it is negative.
func (e *Endpoint) Skew(behind time.Duration) { e.skew.Store(int64(behind)) }

// theirs is what time it is for requests: the cloud's own.
func (e *Endpoint) theirs(now time.Time) time.Time { return now.Add(time.Duration(e.skew.Load())) }

// NewEndpoint returns an endpoint of the services.
func NewEndpoint(options Options, services ...Service) *Endpoint {
	e := &Endpoint{
		Options: options, services: map[string]Service{}, limits: newLimits(options.RateLimits),
		tokens: clientTokens{life: cmp.Or(options.TokenLife, tokenLife), answers: map[string]answered{}}, log: newRequestLog(),
	}
	for _, s := range services {
		e.services[s.Version] = s
	}
	return e
}

// ServeHTTP answers one call: read, find the action, do what faults demand, authenticate, limit, carry out, write.
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	r := &Request{ID: uuid.NewString(), Now: e.Clock.Now()}
	body, err := e.call(hr, r)
	e.log.record(r, err)
	if err == errHangUp {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Date", e.theirs(r.Now).UTC().Format(http.TimeFormat))
	if broken, yes := r.Faults[FaultNotJSON]; yes {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(cmp.Or(broken.Status, http.StatusBadGateway))
		io.WriteString(w, "<html><body><h1>502 Bad Gateway</h1></body></html>")
		return
	}
	write(w, hr.Host, r, body, err)
}

// call returns the reply, errHangUp where the client is to get none, or the refusal.
func (e *Endpoint) call(hr *http.Request, r *Request) (Reply, error) {
	p, err := readParameters(hr)
	if err != nil {
		return nil, err
	}
	r.Parameters = p
	a, err := e.find(r)
	if err != nil {
		return nil, err
	}
	r.Faults = e.faults.take(r)
	if slow, yes := r.Faults[FaultLatency]; yes {
		select {
		case <-e.Clock.After(slow.Latency):
		case <-hr.Context().Done():
			return nil, errHangUp
		}
		r.Now = e.Clock.Now()
	}
	if err := r.Faults.refusal(); err != nil || r.Faults.Has(FaultNotJSON) {
		return nil, err
	}
	body, err := e.handle(hr.Method, a, r)
	if r.Faults.Has(FaultLostReply) {
		return nil, errHangUp
	}
	return body, err
}

// find looks the action up.
func (e *Endpoint) find(r *Request) (Action, error) {
	r.Action = r.Get("Action")
	if r.Action == "" {
		return Action{}, Missing("Action")
	}
	service, known := e.services[r.Get("Version")]
	if !known {
		return Action{}, BadRequest("InvalidVersion", "Specified parameter Version is not valid.")
	}
	r.Service = service.Name
	a, known := service.Actions[r.Action]
	if !known {
		return Action{}, NotFound("InvalidAction.NotFound", "Specified api %s is not found, please check your url and method.", r.Action)
	}
	return a, nil
}

// handle carries the action out, once what every action demands is in order.
func (e *Endpoint) handle(method string, a Action, r *Request) (Reply, error) {
	if a.OnlyByGET && method != http.MethodGet {
		return nil, BadRequest("UnsupportedHTTPMethod", "This http method is not supported.")
	}
	if !a.Unsigned {
		who, err := e.Keys.verify(method, r.Parameters, e.theirs(r.Now))
		if err != nil {
			return nil, err
		}
		r.Caller = who
		if err := e.authorize(a, r); err != nil {
			return nil, err
		}
	}
	if !e.limits.allow(r.Action, r.Now) {
		return nil, throttled()
	}
	if region := r.Get("RegionId"); region != "" && region != e.Region {
		return nil, NotFound("InvalidRegionId.NotFound", "The specified RegionId %q does not exist; this simulator has %q.", region, e.Region)
	}
	if !a.Idempotent {
		return a.Handle(r)
	}
	if e.SlotBeforeToken && a.Slot != nil {
		if err := a.Slot(r); err != nil {
			return nil, err
		}
	}
	return e.tokens.once(a, r)
}

// readParameters merges query and form body. Of a name given twice the first counts, as in the signature.
func readParameters(hr *http.Request) (Parameters, error) {
	p := url.Values{}
	query, err := url.ParseQuery(hr.URL.RawQuery)
	if err != nil {
		return nil, BadRequest("InvalidParameter", "The query is not well formed: %v.", err)
	}
	body, err := io.ReadAll(io.LimitReader(hr.Body, maxBody))
	if err != nil {
		return nil, BadRequest("InvalidParameter", "The body could not be read: %v.", err)
	}
	form := url.Values{}
	if kind, _, _ := mime.ParseMediaType(hr.Header.Get("Content-Type")); kind == "application/x-www-form-urlencoded" {
		if form, err = url.ParseQuery(string(body)); err != nil {
			return nil, BadRequest("InvalidParameter", "The body is not well formed: %v.", err)
		}
	}
	for _, values := range []url.Values{form, query} {
		for name, v := range values {
			p[name] = v[:1]
		}
	}
	return Parameters(p), nil
}

func write(w http.ResponseWriter, host string, r *Request, body Reply, err error) {
	status := http.StatusOK
	out := Reply{"RequestId": r.ID}
	if err != nil {
		refusal, known := err.(*Error)
		if !known {
			refusal = Refuse(http.StatusInternalServerError, "InternalError", "%v", err)
		}
		status = refusal.Status
		out["Code"], out["Message"], out["HostId"] = refusal.Code, refusal.Message, host
		out["Recommend"] = fmt.Sprintf("https://api.alibabacloud.com/troubleshoot?q=%s&product=%s", refusal.Code, r.Service)
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
	w.Header().Set("x-acs-request-id", r.ID)
	w.WriteHeader(status)
	w.Write(text)
}
