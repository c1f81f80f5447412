// Package push is the source of notices that Alibaba Cloud pushes: the HTTP handler for the events of CloudMonitor and EventBridge.
package push

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

	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

const (
	// maxBody bounds the body of a request, in bytes: some thousand events.
	maxBody = 1 << 20
	// requestTimeout bounds one request. CloudMonitor waits for five seconds.
	requestTimeout = 4 * time.Second
	// eventWorkers is how many events of one request are handled at once.
	eventWorkers = 16
	// maxSkew is how far ahead of ours the clock of a sender may be.
	maxSkew = time.Minute

	// tokenHeader is the header in which EventBridge sends the token of an HTTP target.
	tokenHeader = "X-Eventbridge-Signature-Token"
)

// Outcomes of a pushed event or request.
const (
	outcomeAccepted     = "accepted"
	outcomeDuplicate    = "duplicate"
	outcomeUnknown      = "unknown"
	outcomeForeign      = "foreign"
	outcomeOnDemand     = "on-demand"
	outcomeStale        = "stale"
	outcomeOther        = "other"
	outcomeUnauthorized = "unauthorized"
	outcomeMalformed    = "malformed"
	outcomeFailed       = "failed"
)

// Config is what a handler is made of. Client and TokenFile are required.
type Config struct {
	// Client lists and patches Nodes. For many notices at once it makes one list per second, and one patch for each.
	Client kubernetes.Interface
	// TokenFile has the token that senders must present. It is read for each request, so that it can be replaced.
	TokenFile string
	// TokenInURL also accepts the token from the query parameter "token", for senders that can set nothing but the URL, such as
	// CloudMonitor. URLs are written into logs on their way.
	TokenInURL bool
	// Signatures says how EventBridge's signatures are treated. It defaults to SignaturesChecked.
	Signatures Signatures
	// Transport downloads EventBridge's certificate. It defaults to http.DefaultTransport.
	Transport http.RoundTripper
	// Region is that of our Nodes. Events of other regions are ignored. If it is empty, those of all regions are taken, and
	// signatures cannot be checked.
	Region string
	// NoticePeriod is how long an instance lives from the time of the event. It defaults to notice.DefaultPeriod.
	NoticePeriod time.Duration
	// Clock defaults to the real one.
	Clock clock.PassiveClock
}

type handler struct {
	config   Config
	nodes    *directory
	verifier *verifier
}

// NewHandler returns a handler for the events Instance:PreemptibleInstanceInterruption that CloudMonitor and EventBridge push. It
// writes each notice on its Node (api.AnnotationNoticePush), where the leader finds it. So any replica can serve it.
//
// A request is a POST of one event or an array of them, in any form in which these two send it: see envelope. The token is a
// bearer token, or what EventBridge sends as the token of an HTTP target, or in the URL if Config.TokenInURL is set.
//
// The answer is 200 once every notice in the request that is for one of our Nodes is written there. Events for others, duplicates
// and events that are too old are only counted, because it would be of no use to send them again. 400 and 413 mean that the
// request cannot be parsed, 401 that the token or the signature is wrong, 503 that it should be sent again.
//
// The error of NewHandler names what is missing, or says why the token cannot be read.
func NewHandler(config Config) (http.Handler, error) {
	if config.Client == nil || config.TokenFile == "" {
		return nil, errors.New("push: Client and TokenFile are required")
	}
	config.NoticePeriod = cmp.Or(config.NoticePeriod, notice.DefaultPeriod)
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	config.Signatures = cmp.Or(config.Signatures, SignaturesChecked)
	if config.Region == "" && config.Signatures != SignaturesIgnored {
		return nil, errors.New("push: Region is required if signatures are checked")
	}
	h := &handler{
		config: config, nodes: newDirectory(config.Client, config.Region, config.Clock),
		verifier: newVerifier(config.Region, config.Transport, config.Clock),
	}
	if _, err := h.token(); err != nil {
		return nil, fmt.Errorf("push: read the token: %w", err)
	}
	return h, nil
}

func (h *handler) token() (string, error) {
	text, err := os.ReadFile(h.config.TokenFile)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("%s is empty", h.config.TokenFile)
	}
	return token, nil
}

// ServeHTTP answers one request.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
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
		eventsByOutcome.WithLabelValues(outcomeUnauthorized).Inc()
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "wrong token", http.StatusUnauthorized)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		refuse(w, err)
		return
	}
	switch err := h.verify(ctx, r, body); {
	case errors.Is(err, errCertificate):
		h.fail(ctx, w, err)
		return
	case err != nil:
		eventsByOutcome.WithLabelValues(outcomeUnauthorized).Inc()
		http.Error(w, "not signed by EventBridge", http.StatusUnauthorized)
		return
	}
	events, malformed := parseEvents(body)
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

// shows returns whether the request presents the token. It compares in constant time, so that the time tells nothing about the
// token or its length.
func (h *handler) shows(r *http.Request, token string) bool {
	shown := r.Header.Get(tokenHeader)
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		shown = bearer
	} else if shown == "" && h.config.TokenInURL {
		shown = r.URL.Query().Get("token")
	}
	want, got := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(shown))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

func refuse(w http.ResponseWriter, err error) {
	eventsByOutcome.WithLabelValues(outcomeMalformed).Inc()
	status := http.StatusBadRequest
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		status = http.StatusRequestEntityTooLarge
	}
	http.Error(w, err.Error(), status)
}

// fail writes the reason to the log only, because it may have details of the cluster.
func (h *handler) fail(ctx context.Context, w http.ResponseWriter, err error) {
	eventsByOutcome.WithLabelValues(outcomeFailed).Inc()
	klog.FromContext(ctx).Error(err, "Could not take a pushed notice; the sender will try again")
	w.Header().Set("Retry-After", "1")
	http.Error(w, "try again", http.StatusServiceUnavailable)
}

// take writes the notices among the events on their Nodes. If one fails, the others are still written.
func (h *handler) take(ctx context.Context, events []event) error {
	errs := make([]error, len(events))
	var group errgroup.Group
	group.SetLimit(eventWorkers)
	for i, e := range events {
		group.Go(func() error {
			outcome, err := h.takeOne(ctx, e)
			if err != nil {
				errs[i] = fmt.Errorf("notice of %s: %w", e.instanceID, err)
				return nil
			}
			eventsByOutcome.WithLabelValues(outcome).Inc()
			klog.FromContext(ctx).V(1).Info("Pushed event", "instance", e.instanceID, "time", e.time, "outcome", outcome)
			return nil
		})
	}
	_ = group.Wait() // the errors are kept one by one
	return errors.Join(errs...)
}

func (h *handler) takeOne(ctx context.Context, e event) (outcome string, err error) {
	now := h.config.Clock.Now()
	switch {
	case !e.isInterruption:
		return outcomeOther, nil
	case h.config.Region != "" && e.region != "" && e.region != h.config.Region:
		return outcomeForeign, nil
	case now.Sub(e.time) > h.config.NoticePeriod || e.time.Sub(now) > maxSkew:
		return outcomeStale, nil // replayed, or too late to do anything
	}
	return h.nodes.note(ctx, e, e.time.Add(h.config.NoticePeriod).UTC().Truncate(time.Second))
}
