package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/status"
)

const (
	// reviewTimeout bounds a TokenReview, reviewCache is how long what came of a review holds. Like reviewRetries they are
	// those of the components of Kubernetes: NewDelegatingAuthenticationOptions and NewDelegatingAuthorizationOptions in
	// k8s.io/apiserver/pkg/server/options, whose import would bring most of an API server.
	reviewTimeout, reviewCache = 10 * time.Second, 10 * time.Second
	// reviewQPS and reviewBurst are enough for some tens of callers, of whom each costs two reviews every ten seconds.
	reviewQPS, reviewBurst = 10, 20

	// headerAuthorization stands in for Authorization where a request comes through the API server's proxy of Services: the
	// API server takes Authorization for its own, removes it (withAuthentication in k8s.io/apiserver/pkg/endpoints/filters)
	// and tells us nothing of who asked. It has no client certificate for us either (CreateProxyTransport in
	// k8s.io/kubernetes/pkg/controlplane/apiserver).
	headerAuthorization = "X-Gpu-Spot-Authorization"
)

var reviewRetries = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}

// serveSecurely serves metrics and status until ctx ends, whether this process leads or not, to callers whose token the API
// server knows and whom RBAC allows the path.
func serveSecurely(ctx context.Context, config *Config, state http.Handler) error {
	if config.Secure.Address == "" {
		return nil
	}
	allowed, err := newReviews(config)
	if err != nil {
		return fmt.Errorf("--secure-address: %w", err)
	}
	routes := http.NewServeMux()
	routes.Handle("GET /metrics", legacyregistry.Handler())
	routes.Handle("GET "+status.Path, state)
	listener, err := net.Listen("tcp", config.Secure.Address)
	if err != nil {
		return fmt.Errorf("--secure-address: %w", err)
	}
	klog.Infof("Serving over TLS on %s", listener.Addr())
	group, ctx := errgroup.WithContext(ctx)
	secured, err := secure(ctx, group, config, listener)
	if err != nil {
		return err
	}
	group.Go(func() error { return serve(ctx, secured, allowed.only(routes)) })
	return group.Wait()
}

// secure puts TLS on the listener. A certificate from files is read again when they change, by what it adds to the group.
func secure(ctx context.Context, group *errgroup.Group, config *Config, listener net.Listener) (net.Listener, error) {
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
		return tls.NewListener(listener, base), nil
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
	return tls.NewListener(listener, base), nil
}

// reviews ask the API server who a caller is, and whether it may have the path.
type reviews struct {
	authenticator authenticator.Request
	authorizer    authorizer.Authorizer
}

// newReviews has a budget of its own: whoever reaches the port makes the process ask, and must not slow down its work.
func newReviews(config *Config) (*reviews, error) {
	own := rest.AddUserAgent(rest.CopyConfig(config.KubeConfig), "reviews")
	own.RateLimiter, own.QPS, own.Burst = nil, reviewQPS, reviewBurst
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		return nil, err
	}
	who, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		TokenAccessReviewClient: client.AuthenticationV1(), TokenAccessReviewTimeout: reviewTimeout,
		CacheTTL: reviewCache, WebhookRetryBackoff: &reviewRetries,
	}.New()
	if err != nil {
		return nil, err
	}
	may, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		AllowCacheTTL:             reviewCache, DenyCacheTTL: reviewCache, WebhookRetryBackoff: &reviewRetries,
	}.New()
	if err != nil {
		return nil, err
	}
	return &reviews{who, may}, nil
}

// only lets callers through who are known and may have the path: 401 for the others who are not known, 403 for those who
// may not, 503 where the API server does not say.
func (r *reviews) only(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if given := request.Header.Get(headerAuthorization); given != "" && request.Header.Get("Authorization") == "" {
			request = request.Clone(request.Context())
			request.Header.Set("Authorization", given)
		}
		caller, known, err := r.authenticator.AuthenticateRequest(request) // reviews that fail are logged in there
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
