package serving

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"gpu-spot-autoscaler/cmd/internal/callers"
)

const (
	// reviewTimeout bounds a TokenReview, and reviewCache is how long the result of a review is used. Like reviewRetries they are
	// those of the components of Kubernetes: NewDelegatingAuthenticationOptions and NewDelegatingAuthorizationOptions in
	// k8s.io/apiserver/pkg/server/options, whose import would bring most of an API server.
	reviewTimeout, reviewCache = 10 * time.Second, 10 * time.Second
	// reviewQPS and reviewBurst are enough for hundreds of callers, each of whom costs two reviews every ten seconds, and more than
	// twice what one address may request. So the bogus tokens of one pod do not keep others from being reviewed.
	reviewQPS, reviewBurst = 50, 100
	// callerQPS and callerBurst limit one address. That of the API server's proxy stands for many callers.
	callerQPS, callerBurst = 20, 40

	// headerAuthorization replaces Authorization in a request through the API server's proxy of Services: the API server takes
	// Authorization for its own, removes it (withAuthentication in k8s.io/apiserver/pkg/endpoints/filters) and does not say who
	// the caller is. It has no client certificate for us either (CreateProxyTransport in
	// k8s.io/kubernetes/pkg/controlplane/apiserver).
	headerAuthorization = "X-Gpu-Spot-Authorization"
)

var reviewRetries = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}

// NewReviewsClient returns a client with a rate limit of its own, for TokenReviews and SubjectAccessReviews: whoever reaches the port
// makes the process send requests, and must not slow down its other work.
func NewReviewsClient(config *rest.Config) (kubernetes.Interface, error) {
	own := rest.AddUserAgent(rest.CopyConfig(config), "reviews")
	own.RateLimiter, own.QPS, own.Burst = nil, reviewQPS, reviewBurst
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("make the Kubernetes client for reviews: %w", err)
	}
	return client, nil
}

// Access lets callers through whose token the API server knows and whom RBAC allows the path. It is safe for concurrent use.
type Access struct {
	authenticator authenticator.Request
	authorizer    authorizer.Authorizer
	rates         *callers.Rates
}

// NewAccess returns an Access that asks through the client.
func NewAccess(client kubernetes.Interface) (*Access, error) {
	tokens := cache.New(&tokenReviews{client.AuthenticationV1().TokenReviews()}, false, reviewCache, reviewCache)
	authorizer, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		AllowCacheTTL:             reviewCache, DenyCacheTTL: reviewCache, WebhookRetryBackoff: &reviewRetries,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("review who may have a path: %w", err)
	}
	return &Access{bearertoken.New(tokens), authorizer, callers.NewRates(callerQPS, callerBurst)}, nil
}

// Limit returns a handler that lets callers through who may have the path of their request. Others get 401 if the API server does
// not know their token, 403 if they may not have the path, 429 if their address sends too many requests, and 503 if the API server
// does not answer.
func (a *Access) Limit(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if from, _, _ := net.SplitHostPort(request.RemoteAddr); !a.rates.Allow(from, time.Now()) {
			http.Error(w, "too many requests at once", http.StatusTooManyRequests)
			return
		}
		if given := request.Header.Get(headerAuthorization); given != "" && request.Header.Get("Authorization") == "" {
			request = request.Clone(request.Context())
			request.Header.Set("Authorization", given)
		}
		caller, known, err := a.authenticator.AuthenticateRequest(request)
		if errors.As(err, new(*unreviewedError)) {
			http.Error(w, "the API server did not say whose token this is, try again", http.StatusServiceUnavailable)
			return
		}
		if !known || err != nil {
			http.Error(w, "a token that the API server knows is required, as \"Bearer <token>\" in Authorization or, through its proxy, in "+
				headerAuthorization, http.StatusUnauthorized)
			return
		}
		decision, _, err := a.authorizer.Authorize(request.Context(), authorizer.AttributesRecord{
			User: caller.User, Verb: strings.ToLower(request.Method), Path: request.URL.Path,
		})
		switch {
		case decision == authorizer.DecisionAllow:
			handler.ServeHTTP(w, request)
		case err != nil:
			http.Error(w, "the API server did not say whether you may have this, try again", http.StatusServiceUnavailable)
		default:
			http.Error(w, fmt.Sprintf("%s may not get the nonResourceURL %s", caller.User.GetName(), request.URL.Path), http.StatusForbidden)
		}
	})
}
