package client

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"

	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
)

const (
	testKey    = "LTAI-test-key"
	testSecret = "test-secret-never-shown"
)

// answer is what the wire replies to one request.
type answer struct {
	status int
	body   string
	// hang keeps the reply back until the client goes away.
	hang bool
	// date is what the server takes for now; zero for the time it is.
	date time.Time
	// cut breaks the connection after the request was seen.
	cut bool
}

func ok(body any) answer { return answer{status: 200, body: string(mustJSON(body))} }

func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

func refuse(status int, code string) answer {
	return answer{status: status, body: fmt.Sprintf(`{"RequestId":"r-1","HostId":"ess.aliyuncs.com","Code":%q,"Message":"it is %s"}`, code, code)}
}

// wire is a server that sees what the SDK sends. It checks the signature of every request.
type wire struct {
	*httptest.Server
	t      testing.TB
	answer func(q url.Values) answer

	mu       sync.Mutex
	requests []url.Values
	urls     []string
}

func newWire(t testing.TB, respond func(q url.Values) answer) *wire {
	w := &wire{t: t, answer: respond}
	w.Server = httptest.NewServer(w)
	t.Cleanup(w.Close)
	return w
}

// inTurn answers with one after the other, and then with the last for ever.
func inTurn(answers ...answer) func(url.Values) answer {
	var mu sync.Mutex
	n := 0
	return func(url.Values) answer {
		mu.Lock()
		defer mu.Unlock()
		a := answers[min(n, len(answers)-1)]
		n++
		return a
	}
}

func (w *wire) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	if err := in.ParseForm(); err != nil {
		w.t.Error(err)
	}
	q := in.Form // of URL and body
	if problem := checkRequest(in, q); problem != "" {
		w.t.Errorf("%s: %s", q.Get("Action"), problem)
	}
	w.mu.Lock()
	w.requests, w.urls = append(w.requests, q), append(w.urls, in.URL.String())
	w.mu.Unlock()
	a := w.answer(q)
	switch {
	case a.hang:
		<-in.Context().Done()
	case a.cut:
		panic(http.ErrAbortHandler)
	default:
		if !a.date.IsZero() {
			out.Header().Set("Date", a.date.UTC().Format(http.TimeFormat))
		}
		out.WriteHeader(a.status)
		_, _ = out.Write([]byte(a.body))
	}
}

// seen are the requests of an action so far.
func (w *wire) seen(action string) []url.Values {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []url.Values
	for _, q := range w.requests {
		if q.Get("Action") == action {
			out = append(out, q)
		}
	}
	return out
}

func (w *wire) host() string { return strings.TrimPrefix(w.URL, "http://") }

// onlyByGET is the action that the SDK sends by GET.
const onlyByGET = "DescribeElasticStrength"

func checkRequest(in *http.Request, q url.Values) string {
	if (in.Method == http.MethodGet) != (q.Get("Action") == onlyByGET) {
		return "method " + in.Method
	}
	for _, name := range []string{"Action", "Version", "Timestamp", "SignatureNonce", "AccessKeyId", "RegionId"} {
		if q.Get(name) == "" {
			return name + " is missing"
		}
	}
	if q.Get("Format") != "JSON" {
		return "format " + q.Get("Format")
	}
	if got := q.Get("Signature"); got != signature(in.Method, q, testSecret) {
		return "wrong signature " + got
	}
	return ""
}

// signature is Alibaba's RPC signature, version 1.0.
func signature(method string, q url.Values, secret string) string {
	signed := url.Values{}
	for name, values := range q {
		if name != "Signature" {
			signed[name] = values
		}
	}
	canonical := strings.NewReplacer("+", "%20", "*", "%2A", "%7E", "~").Replace(signed.Encode())
	mac := hmac.New(sha1.New, []byte(secret+"&"))
	mac.Write([]byte(method + "&%2F&" + url.QueryEscape(canonical)))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// client returns a client of the wire that retries at once.
func (w *wire) client(change ...func(*rpc.Options)) *Client {
	w.t.Helper()
	options := rpc.Options{
		Region:      "cn-test-1",
		Scheme:      "http",
		Endpoints:   rpc.Endpoints{ESS: w.host(), ECS: w.host(), VPC: w.host()},
		Credentials: credentials.NewStaticAKCredentialsProvider(testKey, testSecret),
		Retry:       wait.Backoff{Duration: time.Millisecond, Factor: 1, Jitter: .1, Steps: 3},
	}
	for _, c := range change {
		c(&options)
	}
	c, err := New(options)
	require.NoError(w.t, err)
	w.t.Cleanup(c.Close)
	return c
}

func number(q url.Values, name string, otherwise int) int {
	if n, err := strconv.Atoi(q.Get(name)); err == nil {
		return n
	}
	return otherwise
}

// list reads Name.1, Name.2, …
func list(q url.Values, name string) []string {
	var out []string
	for n := 1; q.Has(fmt.Sprintf("%s.%d", name, n)); n++ {
		out = append(out, q.Get(fmt.Sprintf("%s.%d", name, n)))
	}
	return out
}

type object = map[string]any

// pageOf cuts one page, as ESS and VPC do, out of all items.
func pageOf(q url.Values, outer, inner string, all []object) answer {
	size, n := number(q, "PageSize", 10), number(q, "PageNumber", 1)
	from := min((n-1)*size, len(all))
	return ok(object{"RequestId": "r", "PageSize": size, "PageNumber": n, "TotalCount": len(all),
		outer: object{inner: all[from:min(from+size, len(all))]}})
}

func scalingInstances(n int) []object {
	all := make([]object, n)
	for i := range all {
		all[i] = object{"InstanceId": fmt.Sprintf("i-%05d", i), "ScalingGroupId": "asg-1", "LifecycleState": "InService",
			"InstanceType": "ecs.gn7i-c8g1.2xlarge", "ZoneId": "cn-test-1a", "SpotStrategy": "SpotAsPriceGo", "CreationTime": "2025-01-02T03:04Z"}
	}
	return all
}
