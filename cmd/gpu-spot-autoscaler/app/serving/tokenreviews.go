package serving

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/util/webhook"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/klog/v2"
)

// tokenReviews asks the API server whose a token is. The authenticator of authenticatorfactory.DelegatingAuthenticatorConfig does
// not distinguish a review that failed from a token that is not known: it returns errors without a type for both, since the API
// server reports in status.error why a token is not known (AuthenticateToken in
// k8s.io/apiserver/plugin/pkg/authenticator/token/webhook).
type tokenReviews struct {
	client authenticationclient.TokenReviewInterface
}

// unreviewedError is returned if the API server did not say whose a token is.
type unreviewedError struct{ cause error }

func (e *unreviewedError) Error() string { return fmt.Sprintf("review a token: %v", e.cause) }
func (e *unreviewedError) Unwrap() error { return e.cause }

// AuthenticateToken returns false without an error if the API server does not know the token. Every error is an *unreviewedError.
func (t *tokenReviews) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	asked := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	var review *authenticationv1.TokenReview
	err := webhook.WithExponentialBackoff(ctx, reviewRetries, func() (err error) {
		review, err = t.client.Create(ctx, asked, metav1.CreateOptions{})
		return err
	}, webhook.DefaultShouldRetry)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot review a token")
		return nil, false, &unreviewedError{err}
	}
	if !review.Status.Authenticated {
		return nil, false, nil
	}
	who := review.Status.User
	extra := make(map[string][]string, len(who.Extra))
	for key, values := range who.Extra {
		extra[key] = values
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: who.Username, UID: who.UID, Groups: who.Groups, Extra: extra}}, true, nil
}
