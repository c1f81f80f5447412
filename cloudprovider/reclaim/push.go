package reclaim

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// maxPushed bounds the body of a request, in bytes: some thousand events.
	maxPushed = 1 << 20
	// pushTimeout bounds one request. CloudMonitor waits for five seconds.
	pushTimeout = 4 * time.Second
	// pushWorkers is how many events of one request are dealt with at once.
	pushWorkers = 16
	// pushSkew is how far ahead of ours the clock of a sender may be.
	pushSkew = time.Minute

	// tokenHeader is what EventBridge sends the token of an HTTP target in.
	tokenHeader = "X-Eventbridge-Signature-Token"
)

// Outcomes of a pushed event or request.
const (
	pushAccepted     = "accepted"
	pushDuplicate    = "duplicate"
	pushUnknown      = "unknown"
	pushForeign      = "foreign"
	pushOnDemand     = "on-demand"
	pushStale        = "stale"
	pushOther        = "other"
	pushUnauthorized = "unauthorized"
	pushMalformed    = "malformed"
	pushFailed       = "failed"
)

// PushConfig is what a push handler is made of. Client and TokenFile are required.
type PushConfig struct {
	// Client lists and patches Nodes. A crowd of notices is one list per second and one patch for each.
	Client kubernetes.Interface
	// TokenFile holds the token that senders have to show. It is read for each request, so that it can be replaced.
	TokenFile string
	// TokenInURL has the token taken from the query parameter "token" too, for senders that can set nothing but the URL, as
	// CloudMonitor. URLs are written into logs on their way.
	TokenInURL bool
	// Signatures says what becomes of those of EventBridge; default: SignaturesChecked.
	Signatures Signatures
	// Transport fetches EventBridge's certificate. It defaults to http.DefaultTransport.
	Transport http.RoundTripper
	// Region is ours; events of other regions are not for us. Empty takes all, but for signatures, which are checked for a region.
	Region string
	// NoticePeriod is how long an instance lives from the time of the event; default: DefaultNoticePeriod.
	NoticePeriod time.Duration
	// Clock defaults to the real one.
	Clock clock.PassiveClock
}

// pushHandler serves pushed notices.
type pushHandler struct {
	PushConfig
	nodes    *directory
	verifier *verifier
}

// NewPushHandler takes the events Instance:PreemptibleInstanceInterruption that CloudMonitor and EventBridge push. What
// it takes it writes on the Nodes (api.AnnotationNoticePush), where the leader finds it, so that any replica can serve it.
//
// A request is a POST of one event or an array of them, in any form in which these two send it: see pushedEvent. The
// token is a bearer token, or what EventBridge sends as the token of an HTTP target, or, where that is asked for, in the URL.
//
// The answer is 200 once every notice in the request that is for one of our Nodes stands there. Events that are not for
// us, have come before or are too old are only counted: it would be no use to send them again. 400 and 413 mean that the
// request cannot be read, 401 that the token or the signature is wrong, 503 that it should be sent again.
//
// The error names what is missing, or says why the token cannot be read.
func NewPushHandler(config PushConfig) (http.Handler, error) {
	if config.Client == nil || config.TokenFile == "" {
		return nil, errors.New("reclaim: Client and TokenFile are required")
	}
	config.NoticePeriod = cmp.Or(config.NoticePeriod, DefaultNoticePeriod)
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	config.Signatures = cmp.Or(config.Signatures, SignaturesChecked)
	if config.Region == "" && config.Signatures != SignaturesIgnored {
		return nil, errors.New("reclaim: Region is required where signatures are checked")
	}
	h := &pushHandler{
		PushConfig: config, nodes: newDirectory(config.Client, config.Region, config.Clock),
		verifier: newVerifier(config.Region, config.Transport, config.Clock),
	}
	if _, err := h.token(); err != nil {
		return nil, fmt.Errorf("reclaim: %w", err)
	}
	return h, nil
}

func (h *pushHandler) token() (string, error) {
	text, err := os.ReadFile(h.TokenFile)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("%s is empty", h.TokenFile)
	}
	return token, nil
}

// ServeHTTP answers one request.
func (h *pushHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), pushTimeout)
	defer cancel()
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "POST events", http.StatusMethodNotAllowed)
		return
	}
	token, err := h.token()
	if err != nil {
		h.fail(ctx, w, err)
		return
	}
	if !h.shows(r, token) {
		pushedEvents.WithLabelValues(pushUnauthorized).Inc()
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "wrong token", http.StatusUnauthorized)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPushed))
	if err != nil {
		refuse(w, err)
		return
	}
	switch err := h.verify(ctx, r, body); {
	case errors.Is(err, errCertificate):
		h.fail(ctx, w, err)
		return
	case err != nil:
		pushedEvents.WithLabelValues(pushUnauthorized).Inc()
		http.Error(w, "not signed by EventBridge", http.StatusUnauthorized)
		return
	}
	events, malformed := readPushed(body)
	if err := h.take(ctx, events); err != nil {
		h.fail(ctx, w, err)
		return
	}
	if malformed != nil {
		refuse(w, malformed)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// shows compares in a time that tells nothing of the token, its length included.
func (h *pushHandler) shows(r *http.Request, token string) bool {
	shown := r.Header.Get(tokenHeader)
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		shown = bearer
	} else if shown == "" && h.TokenInURL {
		shown = r.URL.Query().Get("token")
	}
	want, got := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(shown))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

func refuse(w http.ResponseWriter, err error) {
	pushedEvents.WithLabelValues(pushMalformed).Inc()
	status := http.StatusBadRequest
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		status = http.StatusRequestEntityTooLarge
	}
	http.Error(w, err.Error(), status)
}

// fail keeps the reason to the log: it may speak of our insides.
func (h *pushHandler) fail(ctx context.Context, w http.ResponseWriter, err error) {
	pushedEvents.WithLabelValues(pushFailed).Inc()
	klog.FromContext(ctx).Error(err, "A pushed notice could not be taken; the sender will try again")
	w.Header().Set("Retry-After", "1")
	http.Error(w, "try again", http.StatusServiceUnavailable)
}

// take writes the notices among the events on their Nodes. One that fails does not keep the others back.
func (h *pushHandler) take(ctx context.Context, events []pushedEvent) error {
	errs := make([]error, len(events))
	var group errgroup.Group
	group.SetLimit(pushWorkers)
	for i, event := range events {
		group.Go(func() error {
			outcome, err := h.takeOne(ctx, event)
			if err != nil {
				errs[i] = fmt.Errorf("notice of %s: %w", event.instanceID, err)
				return nil
			}
			pushedEvents.WithLabelValues(outcome).Inc()
			klog.FromContext(ctx).V(1).Info("Pushed event", "instance", event.instanceID, "time", event.time, "outcome", outcome)
			return nil
		})
	}
	_ = group.Wait() // the errors are kept one by one
	return errors.Join(errs...)
}

func (h *pushHandler) takeOne(ctx context.Context, event pushedEvent) (outcome string, err error) {
	now := h.Clock.Now()
	switch {
	case !event.isInterruption:
		return pushOther, nil
	case h.Region != "" && event.region != "" && event.region != h.Region:
		return pushForeign, nil
	case now.Sub(event.time) > h.NoticePeriod || event.time.Sub(now) > pushSkew:
		return pushStale, nil // replayed, or too late to do anything
	}
	return h.nodes.note(ctx, event, event.time.Add(h.NoticePeriod).UTC().Truncate(time.Second))
}
