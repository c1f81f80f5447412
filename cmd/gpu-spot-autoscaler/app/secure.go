package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/status"
	"gpu-spot-autoscaler/cmd/internal/callers"
)

const (
	// reviewTimeout bounds a TokenReview, reviewCache is how long what came of a review holds. Like reviewRetries they are
	// those of the components of Kubernetes: NewDelegatingAuthenticationOptions and NewDelegatingAuthorizationOptions in
	// k8s.io/apiserver/pkg/server/options, whose import would bring most of an API server.
	reviewTimeout, reviewCache = 10 * time.Second, 10 * time.Second
	// reviewQPS and reviewBurst are enough for hundreds of callers, of whom each costs two reviews every ten seconds, and
	// more than twice what one address may ask for. So the bogus tokens of one pod do not keep others from being reviewed.
	reviewQPS, reviewBurst = 50, 100
	// callerQPS and callerBurst are for one address. That of the API server's proxy stands for many callers.
	callerQPS, callerBurst = 20, 40

	// headerAuthorization stands in for Authorization where a request comes through the API server's proxy of Services: the
	// API server takes Authorization for its own, removes it (withAuthentication in k8s.io/apiserver/pkg/endpoints/filters)
	// and tells us nothing of who asked. It has no client certificate for us either (CreateProxyTransport in
	// k8s.io/kubernetes/pkg/controlplane/apiserver).
	headerAuthorization = "X-Gpu-Spot-Authorization"
)

var reviewRetries = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}

// serveSecurely serves status and insight until ctx ends, whether this process leads or not, to callers whose token the API
// server knows and whom RBAC allows the path.
func serveSecurely(ctx context.Context, config *Config, client kubernetes.Interface, state http.Handler, insight *insight) error {
	if config.Secure.Address == "" {
		return nil
	}
	allowed, err := newReviews(client)
	if err != nil {
		return fmt.Errorf("--secure-address: %w", err)
	}
	routes := mux.NewPathRecorderMux("gpu-spot-autoscaler-secure")
	routes.Handle(status.Path, state)
	insight.install(routes)
	listener, err := net.Listen("tcp", config.Secure.Address)
	if err != nil {
		return fmt.Errorf("--secure-address: %w", err)
	}
	klog.FromContext(ctx).Info("Serving over TLS", "address", listener.Addr())
	group, ctx := errgroup.WithContext(ctx)
	secured, err := secure(ctx, group, config)
	if err != nil {
		return err
	}
	group.Go(func() error { return serve(ctx, listener, secured, insight.limit, allowed.only(routes)) })
	return group.Wait()
}

// secure returns how to serve over TLS. A certificate from files is read again when they change, by what it adds to the group.
func secure(ctx context.Context, group *errgroup.Group, config *Config) (*tls.Config, error) {
	base := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if config.Secure.CertFile == "" {
		certificate, key, err := certutil.GenerateSelfSignedCertKey(config.DeploymentName+"."+config.Autoscaling.ConfigNamespace+".svc", nil, nil)
		if err != nil {
			return nil, fmt.Errorf("make a certificate: %w", err)
		}
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			return nil, fmt.Errorf("make a certificate: %w", err)
		}
		base.Certificates = []tls.Certificate{pair}
		return base, nil
	}
	files, err := dynamiccertificates.NewDynamicServingContentFromFiles("secure", config.Secure.CertFile, config.Secure.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("--secure-tls-cert-file: %w", err)
	}
	serving := dynamiccertificates.NewDynamicServingCertificateController(base, nil, files, nil, nil)
	files.AddListener(serving)
	if err := serving.RunOnce(); err != nil {
		return nil, fmt.Errorf("--secure-tls-cert-file: %w", err)
	}
	base.GetConfigForClient = serving.GetConfigForClient
	group.Go(func() error { files.Run(ctx, 1); return nil })
	group.Go(func() error { serving.Run(1, ctx.Done()); return nil })
	return base, nil
}

// reviews ask the API server who a caller is, and whether it may have the path.
type reviews struct {
	authenticator authenticator.Request
	authorizer    authorizer.Authorizer
	rates         *callers.Rates
}

// reviewsClient has a budget of its own: whoever reaches the port makes the process ask, and must not slow down its work.
func reviewsClient(config *Config) (kubernetes.Interface, error) {
	own := rest.AddUserAgent(rest.CopyConfig(config.KubeConfig), "reviews")
	own.RateLimiter, own.QPS, own.Burst = nil, reviewQPS, reviewBurst
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("make the Kubernetes client for reviews: %w", err)
	}
	return client, nil
}

func newReviews(client kubernetes.Interface) (*reviews, error) {
	tokens := cache.New(&tokenReviews{client.AuthenticationV1().TokenReviews()}, false, reviewCache, reviewCache)
	may, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		AllowCacheTTL:             reviewCache, DenyCacheTTL: reviewCache, WebhookRetryBackoff: &reviewRetries,
	}.New()
	if err != nil {
		return nil, err
	}
	return &reviews{bearertoken.New(tokens), may, callers.NewRates(callerQPS, callerBurst)}, nil
}

// only lets callers through who are known and may have the path: 401 for the others who are not known, 403 for those who
// may not, 429 for addresses that ask too often, 503 where the API server does not say.
func (r *reviews) only(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if from, _, _ := net.SplitHostPort(request.RemoteAddr); !r.rates.Allow(from, time.Now()) {
			http.Error(w, "too many requests at once", http.StatusTooManyRequests)
			return
		}
		if given := request.Header.Get(headerAuthorization); given != "" && request.Header.Get("Authorization") == "" {
			request = request.Clone(request.Context())
			request.Header.Set("Authorization", given)
		}
		caller, known, err := r.authenticator.AuthenticateRequest(request)
		if errors.As(err, new(*unreviewed)) {
			http.Error(w, "the API server did not say whose token this is, try again", http.StatusServiceUnavailable)
			return
		}
		if !known || err != nil {
			http.Error(w, "a token that the API server knows is required, as \"Bearer <token>\" in Authorization or, through its proxy, in "+
				headerAuthorization, http.StatusUnauthorized)
			return
		}
		decision, _, err := r.authorizer.Authorize(request.Context(), authorizer.AttributesRecord{
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
