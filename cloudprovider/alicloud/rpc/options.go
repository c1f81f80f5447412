package rpc

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	sdkcredentials "github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	ecsapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
	essapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ess"
	vpcapi "github.com/aliyun/alibaba-cloud-sdk-go/services/vpc"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/alicloud/credentials"
)

// Endpoints are hosts, with or without a port. An empty one means Alibaba Cloud's own of the region.
type Endpoints struct {
	ESS, ECS, VPC string
	// STS is where the token of a service account is exchanged for credentials (RRSA), always over HTTPS.
	STS string
}

// Options configure a Caller. Only Region is required.
type Options struct {
	// Region is where all calls go, such as "cn-hangzhou".
	Region string
	// Scheme is "https", which is the default, or "http".
	Scheme    string
	Endpoints Endpoints
	// UserAgent is added to the SDK's own. Optional.
	UserAgent string

	// CredentialsDir is a directory with the files ALIBABA_CLOUD_ACCESS_KEY_ID, ALIBABA_CLOUD_ACCESS_KEY_SECRET and, for
	// temporary keys, ALIBABA_CLOUD_SECURITY_TOKEN, which are read again every 30 s. If it is set, no other source is used.
	CredentialsDir string
	// Credentials sign the requests. The default is CredentialsDir, else, in this order: ALIBABA_CLOUD_ACCESS_KEY_ID, _SECRET
	// and _SECURITY_TOKEN of the environment; the OIDC token of a Kubernetes service account (RRSA:
	// ALIBABA_CLOUD_ROLE_ARN, ALIBABA_CLOUD_OIDC_PROVIDER_ARN, ALIBABA_CLOUD_OIDC_TOKEN_FILE); then the rest of the
	// SDK's chain: profiles, the RAM role of the ECS instance, a credentials URI.
	// A provider need not be safe for concurrent use.
	Credentials sdkcredentials.CredentialsProvider

	// RateLimits replace the defaults of the actions that they name.
	RateLimits map[string]Limit
	// Timeout bounds one attempt of one request. Default 10 s.
	Timeout time.Duration
	// Retry is how many attempts a request has in all (Steps), and the delays between them.
	// Default: 5 attempts, with delays of 200, 400, 800 and 1600 ms, each lengthened by up to a half at random.
	Retry wait.Backoff

	// Clock measures, delays and throttles. Default is the real one.
	Clock clock.Clock
	// Transport carries the requests. The default keeps connections open and obeys HTTPS_PROXY and NO_PROXY.
	Transport http.RoundTripper
}

var defaultRetry = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: .5, Steps: 5}

// complete returns the options with defaults filled in, or an error for values that cannot work.
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
	for service, host := range map[string]*string{
		alicloud.ServiceESS: &o.Endpoints.ESS, alicloud.ServiceECS: &o.Endpoints.ECS, alicloud.ServiceVPC: &o.Endpoints.VPC,
	} {
		if *host == "" {
			*host = builtinEndpoints()[service][o.Region]
		}
		if *host == "" {
			*host = service + "." + o.Region + ".aliyuncs.com"
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
		o.Credentials = credentials.Directory(o.CredentialsDir)
	}
	if o.Credentials == nil {
		o.Credentials = credentials.Default(o.Region, o.Endpoints.STS)
	}
	return o, nil
}

// host returns where requests to the service go.
func (e Endpoints) host(service string) string {
	switch service {
	case alicloud.ServiceESS:
		return e.ESS
	case alicloud.ServiceECS:
		return e.ECS
	default:
		return e.VPC
	}
}

// builtinEndpoints are the SDK's own, by service and region. The SDK builds them on first use without a lock.
var builtinEndpoints = sync.OnceValue(func() map[string]map[string]string {
	return map[string]map[string]string{
		alicloud.ServiceESS: essapi.GetEndpointMap(),
		alicloud.ServiceECS: ecsapi.GetEndpointMap(),
		alicloud.ServiceVPC: vpcapi.GetEndpointMap(),
	}
})

// maxIdleConnections is how many idle connections to a service are kept: as many as a few concurrent listings use.
const maxIdleConnections = 32

func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	t.TLSHandshakeTimeout = 5 * time.Second
	t.MaxIdleConnsPerHost = maxIdleConnections
	return t
}
