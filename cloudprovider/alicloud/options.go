package alicloud

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	ecsapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
	essapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ess"
	vpcapi "github.com/aliyun/alibaba-cloud-sdk-go/services/vpc"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
)

// Endpoints are hosts, with or without a port. Empty ones mean Alibaba's own of the region.
type Endpoints struct {
	ESS, ECS, VPC string
	// STS is where a service account's token is exchanged for credentials (RRSA). It is always spoken to over HTTPS.
	STS string
}

// Options configure a Client. Only Region is required.
type Options struct {
	// Region is where everything happens, such as "cn-hangzhou".
	Region string
	// Scheme is "https", which is the default, or "http".
	Scheme    string
	Endpoints Endpoints
	// UserAgent is what requests say that they come from, beside the SDK's own name. Optional.
	UserAgent string

	// CredentialsDir is a folder with the files ALIBABA_CLOUD_ACCESS_KEY_ID, ALIBABA_CLOUD_ACCESS_KEY_SECRET and, for temporary
	// keys, ALIBABA_CLOUD_SECURITY_TOKEN, which are read again every half minute. Where it is set, nothing else is looked at.
	CredentialsDir string
	// Credentials sign the requests. The default is CredentialsDir, else, in this order: ALIBABA_CLOUD_ACCESS_KEY_ID, _SECRET and
	// _SECURITY_TOKEN of the environment; the OIDC token of a Kubernetes service account (RRSA:
	// ALIBABA_CLOUD_ROLE_ARN, ALIBABA_CLOUD_OIDC_PROVIDER_ARN, ALIBABA_CLOUD_OIDC_TOKEN_FILE); then the rest of the
	// SDK's chain: profiles, the RAM role of the ECS instance, a credentials URI.
	// A provider need not be safe for concurrent use.
	Credentials credentials.CredentialsProvider

	// RateLimits replace the default of the actions they name.
	RateLimits map[string]Limit
	// Timeout bounds one attempt of one request. Default 10 s.
	Timeout time.Duration
	// Retry says how often a request is tried in all (Steps) and how long to wait in between.
	// Default 5 times, after 200, 400, 800 and 1600 ms, each lengthened by up to a half at random.
	Retry wait.Backoff

	// Clock measures, delays and throttles. Default is the real one.
	Clock clock.Clock
	// Transport carries the requests. The default keeps connections and obeys HTTPS_PROXY and NO_PROXY.
	Transport http.RoundTripper
}

var defaultRetry = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: .5, Steps: 5}

// complete fills in the defaults and refuses what cannot work.
func (o Options) complete() (Options, error) {
	if o.Region == "" {
		return o, fmt.Errorf("alicloud: no region given")
	}
	switch o.Scheme {
	case "":
		o.Scheme = "https"
	case "http", "https":
	default:
		return o, fmt.Errorf("alicloud: scheme %q is neither http nor https", o.Scheme)
	}
	builtin := builtinEndpoints()
	for _, e := range []struct {
		service string
		host    *string
	}{{"ess", &o.Endpoints.ESS}, {"ecs", &o.Endpoints.ECS}, {"vpc", &o.Endpoints.VPC}} {
		if *e.host == "" {
			*e.host = builtin[e.service][o.Region]
		}
		if *e.host == "" {
			*e.host = e.service + "." + o.Region + ".aliyuncs.com"
		}
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Retry.Steps <= 0 {
		o.Retry = defaultRetry
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Transport == nil {
		o.Transport = newTransport()
	}
	if o.Credentials == nil && o.CredentialsDir != "" {
		o.Credentials = folderCredentials{o.CredentialsDir}
	}
	if o.Credentials == nil {
		o.Credentials = defaultCredentials(o.Region, o.Endpoints.STS)
	}
	return o, nil
}

// builtinEndpoints are the SDK's own, by service and region. The SDK builds them on first use without a lock.
var builtinEndpoints = sync.OnceValue(func() map[string]map[string]string {
	return map[string]map[string]string{
		"ess": essapi.GetEndpointMap(),
		"ecs": ecsapi.GetEndpointMap(),
		"vpc": vpcapi.GetEndpointMap(),
	}
})

func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	t.TLSHandshakeTimeout = 5 * time.Second
	t.MaxIdleConnsPerHost = 4 * listConcurrency
	return t
}
