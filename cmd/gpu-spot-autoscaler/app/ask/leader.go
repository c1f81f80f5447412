package ask

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
)

const (
	// headerAuthorization is that of package serving, which says why there is one.
	headerAuthorization = "X-Gpu-Spot-Authorization"
	// tokenSeconds is how long the token of the viewer is valid: the least that the API server grants (MinTokenAge of 10 minutes in
	// k8s.io/kubernetes/pkg/apis/authentication/validation).
	tokenSeconds = 600
	// mostTries is how often the Service is asked, which may choose a replica that does not lead, retryAfter how long between two.
	mostTries  = 40
	retryAfter = 100 * time.Millisecond
	// portName is the port of the Service in the chart.
	portName = "https"

	howToEnable = "Is secureServing.enabled set in the chart's values?"
)

// Leader answers requests of a path.
type Leader interface {
	// Get returns the body of the answer. An error says what the person who runs the command can do.
	Get(ctx context.Context, path string, query map[string]string) ([]byte, error)
}

// proxied is the leader behind the API server's proxy. It is not safe for concurrent use.
type proxied struct {
	client kubernetes.Interface
	flags  Flags
	// token is that of the viewer, which is asked for anew some time before it expires.
	token *authenticationv1.TokenRequestStatus
}

// Get asks the Service until the leader answers.
func (p *proxied) Get(ctx context.Context, path string, query map[string]string) ([]byte, error) {
	if err := p.login(ctx); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		request := p.client.CoreV1().RESTClient().Get().Namespace(p.flags.Namespace).Resource("services").
			Name("https:"+p.flags.Name+":"+portName).SubResource("proxy").Suffix(path).
			SetHeader(headerAuthorization, "Bearer "+p.token.Token).MaxRetries(0)
		for key, value := range query {
			request.Param(key, value)
		}
		body, err := request.DoRaw(ctx)
		if err == nil {
			return body, nil
		}
		code, answer := refusal(err)
		if code != http.StatusMisdirectedRequest || try >= mostTries {
			return nil, p.failed(code, answer, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("ask the leader: %w", ctx.Err())
		case <-time.After(retryAfter):
		}
	}
}

// login gets a token of the viewer unless there is one that is valid for some time yet.
func (p *proxied) login(ctx context.Context) error {
	if p.token != nil && time.Until(p.token.ExpirationTimestamp.Time) > tokenSeconds*time.Second/4 {
		return nil
	}
	viewer := p.flags.Name + "-viewer"
	token, err := p.client.CoreV1().ServiceAccounts(p.flags.Namespace).CreateToken(ctx, viewer, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(tokenSeconds))},
	}, metav1.CreateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no ServiceAccount %s/%s, so the leader cannot be asked. %s Or give --autoscaler-namespace and --autoscaler-name: %w",
			p.flags.Namespace, viewer, howToEnable, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("you may not ask the leader: have the Role %s of namespace %s bound to you: %w", viewer, p.flags.Namespace, err)
	case err != nil:
		return fmt.Errorf("make a token of ServiceAccount %s/%s: %w", p.flags.Namespace, viewer, err)
	}
	p.token = &token.Status
	return nil
}

// refusal returns the HTTP code of the answer, 0 if there is none, and its text.
func refusal(err error) (code int, answer string) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0, err.Error()
	}
	code, answer = int(status.Status().Code), err.Error()
	if cause, ok := apierrors.StatusCause(err, metav1.CauseTypeUnexpectedServerResponse); ok && strings.TrimSpace(cause.Message) != "" {
		answer = strings.TrimSpace(cause.Message) // what the autoscaler said
	}
	return code, answer
}

// failed says what to do if the leader does not answer.
func (p *proxied) failed(code int, answer string, err error) error {
	service := p.flags.Namespace + "/" + p.flags.Name
	switch {
	case code == http.StatusMisdirectedRequest:
		return fmt.Errorf("no replica behind Service %s leads, or the one that does has only begun to; see `kubectl -n %s get leases`, and the log of the pods", service, p.flags.Namespace)
	case code == http.StatusNotImplemented:
		return errors.New(answer) // the leader says who knows it
	case code == http.StatusForbidden || code == http.StatusUnauthorized:
		return fmt.Errorf("the leader, or its Service %s, may not be asked: %s. The Role %s-viewer has the rights, and the autoscaler is to be of the same version as its manifests", service, answer, p.flags.Name)
	case code == http.StatusNotFound:
		return fmt.Errorf("there is no Service %s, or it has no such path: %s. %s The leader has to be of this version, too", service, answer, howToEnable)
	case code == http.StatusServiceUnavailable || code == http.StatusBadGateway:
		return fmt.Errorf("no replica answers behind Service %s: %s. See `kubectl -n %s get pods`, and whether a NetworkPolicy keeps the API server from port %s", service, answer, p.flags.Namespace, portName)
	}
	if code != 0 {
		return fmt.Errorf("ask the leader through Service %s: %s", service, answer)
	}
	return fmt.Errorf("ask the leader through Service %s: %w", service, err)
}

// beside is the autoscaler of this pod.
type beside struct {
	client    kubernetes.Interface
	flags     Flags
	tokenFile string
}

// Get asks the process beside this one, which has to be the leader.
func (b *beside) Get(ctx context.Context, path string, query map[string]string) ([]byte, error) {
	token, err := os.ReadFile(b.tokenFile)
	if err != nil {
		return nil, fmt.Errorf("read the token of this pod: %w", err)
	}
	values := url.Values{}
	for key, value := range query {
		values.Set(key, value)
	}
	target := url.URL{Scheme: "https", Host: b.flags.Address, Path: path, RawQuery: values.Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("--autoscaler-address: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	// The certificate is one that nobody can verify, and the connection does not leave the pod.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, fmt.Errorf("no autoscaler answers in this pod: %w. %s", err, howToEnable)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case response.StatusCode == http.StatusMisdirectedRequest:
		return nil, b.otherLeads(ctx)
	case response.StatusCode == http.StatusNotImplemented:
		return nil, errors.New(strings.TrimSpace(string(body)))
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the autoscaler of this pod answers %s: %s", response.Status, strings.TrimSpace(string(body)))
	}
	return body, nil
}

// otherLeads says in which pod the command has to run.
func (b *beside) otherLeads(ctx context.Context) error {
	switch leader := b.leader(ctx); leader {
	case "":
		return fmt.Errorf("this pod does not lead; run the command in the one that does (kubectl -n %s get leases)", b.flags.Namespace)
	case os.Getenv("POD_NAME"):
		return errors.New("this pod has only begun to lead: run the command again in some seconds")
	default:
		return fmt.Errorf("this pod does not lead; run the command in the one that does: kubectl -n %s exec %s", b.flags.Namespace, leader)
	}
}

// leader returns the pod that leads, "" if it is not known. The lease of a dry run has a name of its own.
func (b *beside) leader(ctx context.Context) string {
	for _, name := range []string{b.flags.Name, b.flags.Name + options.DryRunSuffix} {
		lease, err := b.client.CoordinationV1().Leases(b.flags.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && isHeld(lease.Spec, time.Now()) {
			return *lease.Spec.HolderIdentity
		}
	}
	return ""
}

// isHeld returns whether somebody holds the lease, and has renewed it in time.
func isHeld(lease coordinationv1.LeaseSpec, now time.Time) bool {
	if ptr.Deref(lease.HolderIdentity, "") == "" || lease.RenewTime == nil {
		return false
	}
	return now.Sub(lease.RenewTime.Time) < time.Duration(ptr.Deref(lease.LeaseDurationSeconds, 0))*time.Second
}
