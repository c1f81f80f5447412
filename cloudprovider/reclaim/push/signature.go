package push

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Signatures says how the signatures of EventBridge are treated.
type Signatures string

const (
	// SignaturesChecked refuses a request of EventBridge whose signature is wrong. If it has none, or if the certificate cannot be
	// downloaded, the token decides. It is the default.
	SignaturesChecked Signatures = "check"
	// SignaturesRequired refuses everything that EventBridge has not signed. While the certificate cannot be downloaded, requests
	// have to be sent again.
	SignaturesRequired Signatures = "require"
	// SignaturesIgnored decides by the token alone.
	SignaturesIgnored Signatures = "ignore"
)

// Headers of EventBridge. Source: "Signature algorithm", EventBridge user guide (help.aliyun.com/en/eventbridge/user-guide/
// signature-algorithm): the sender computes a SHA256 hash of the string to sign, signs it with an RSA key, and names the URL of
// the certificate. The receiver refuses what is older than 60 s, and certificates of other hosts than
// https://[RegionId]-eventbridge.oss-accelerate.aliyuncs.com.
//
// The older scheme of the same page (x-eventbridge-signature-secret, HMAC-SHA1) proves nothing: its secret is "encrypted" with
// the private key, so whoever has received a request of EventBridge can decrypt it with the public certificate, and sign with it.
const (
	signatureHeader  = "X-Eventbridge-Signature-V2"
	timestampHeader  = "X-Eventbridge-Signature-Timestamp"
	hashMethodHeader = "X-Eventbridge-Hash-Method"
	versionHeader    = "X-Eventbridge-Signature-Version"
	certURLHeader    = "X-Eventbridge-Signature-Url"

	hashMethod = "SHA256"
	// signatureAge is how far the time of a signed request may be from ours.
	signatureAge = time.Minute
)

// signedHeaders are part of the string to sign, in this order, except those that were not sent.
var signedHeaders = []string{timestampHeader, hashMethodHeader, versionHeader, certURLHeader, tokenHeader}

const (
	certTimeout = 2 * time.Second // less than requestTimeout
	maxCertSize = 64 << 10        // bytes
	maxCerts    = 16
	// certAge is how long a certificate is kept, certPause how soon it is downloaded again after that failed.
	certAge   = time.Hour
	certPause = 30 * time.Second
)

// What is wrong with a signature.
var (
	errSignature   = errors.New("wrong signature")
	errUnsigned    = errors.New("no signature that proves the sender")
	errCertificate = errors.New("the certificate cannot be downloaded")
)

// verifier checks signatures. It is safe for concurrent use.
type verifier struct {
	// host is the only one from which a certificate is accepted. It is an OSS bucket, so similar names may be anybody's.
	host  string
	http  *http.Client
	clock clock.PassiveClock

	fetching singleflight.Group
	mu       sync.Mutex
	// certs are by URL. failed is when the host last could not be reached.
	certs  map[string]certificate
	failed time.Time
}

type certificate struct {
	key *rsa.PublicKey
	got time.Time
}

func newVerifier(region string, transport http.RoundTripper, clk clock.PassiveClock) *verifier {
	return &verifier{
		host: region + "-eventbridge.oss-accelerate.aliyuncs.com",
		http: &http.Client{
			Transport: transport, Timeout: certTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		clock: clk, certs: map[string]certificate{},
	}
}

// check returns nil for a request that EventBridge signed less than a minute ago. Its errors wrap errSignature, errUnsigned or
// errCertificate.
func (v *verifier) check(ctx context.Context, r *http.Request, body []byte) error {
	encoded := r.Header.Get(signatureHeader)
	if encoded == "" {
		return errUnsigned
	}
	signature, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return fmt.Errorf("%w: %w", errSignature, err)
	}
	if method := r.Header.Get(hashMethodHeader); method != hashMethod {
		return fmt.Errorf("%w: by %.20q, and not %s", errSignature, method, hashMethod)
	}
	millis, err := strconv.ParseInt(r.Header.Get(timestampHeader), 10, 64)
	if err != nil {
		return fmt.Errorf("%w: its time cannot be parsed", errSignature)
	}
	if age := v.clock.Since(time.UnixMilli(millis)); age.Abs() > signatureAge {
		return fmt.Errorf("%w: it is %v old", errSignature, age)
	}
	key, err := v.key(ctx, r.Header.Get(certURLHeader))
	if err != nil {
		return err
	}
	// By the page, the string ends with the body. Alibaba Cloud's Java SDK (StringToSignBuilder of
	// com.aliyun.eventbridge.signature) adds a line feed.
	signed := stringToSign(r, body)
	for _, text := range [][]byte{signed, append(signed[:len(signed):len(signed)], '\n')} {
		hash := sha256.Sum256(text)
		if rsa.VerifyPKCS1v15(key, crypto.SHA256, hash[:], signature) == nil {
			return nil
		}
	}
	return errSignature
}

// stringToSign returns the URL as the sender has it, the headers and the body.
func stringToSign(r *http.Request, body []byte) []byte {
	lines := []string{"https://" + r.Host + r.URL.RequestURI()}
	for _, name := range signedHeaders {
		if value := r.Header.Get(name); value != "" {
			lines = append(lines, strings.ToLower(name)+": "+value)
		}
	}
	return append([]byte(strings.Join(lines, "\n")+"\n"), body...)
}

// key returns the key of the certificate at the URL.
func (v *verifier) key(ctx context.Context, address string) (*rsa.PublicKey, error) {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "https" || parsed.Host != v.host || parsed.User != nil {
		return nil, fmt.Errorf("%w: its certificate is not of %s: %.200q", errSignature, v.host, address)
	}
	v.mu.Lock()
	known, failed := v.certs[address], v.failed
	v.mu.Unlock()
	switch {
	case known.key != nil && v.clock.Since(known.got) < certAge:
		return known.key, nil
	case !failed.IsZero() && v.clock.Since(failed) < certPause:
		return nil, fmt.Errorf("%w: %s could not be reached at %v", errCertificate, v.host, failed)
	}
	key, err, _ := v.fetching.Do(address, func() (any, error) { return v.fetch(context.WithoutCancel(ctx), address) })
	if err != nil {
		return nil, err
	}
	return key.(*rsa.PublicKey), nil
}

func (v *verifier) fetch(ctx context.Context, address string) (*rsa.PublicKey, error) {
	text, err := v.download(ctx, address)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.failed = time.Time{}
	if err != nil {
		if errors.Is(err, errCertificate) {
			v.failed = v.clock.Now()
		}
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%w: %s is no PEM", errSignature, address)
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errSignature, address, err)
	}
	key, ok := parsed.PublicKey.(*rsa.PublicKey)
	if !ok {
		return nil, fmt.Errorf("%w: the key of %s is not RSA", errSignature, address)
	}
	if len(v.certs) >= maxCerts {
		clear(v.certs)
	}
	v.certs[address] = certificate{key: key, got: v.clock.Now()}
	return key, nil
}

// download returns an error that wraps errCertificate if the host does not answer, and errSignature if it has no such file.
func (v *verifier) download(ctx context.Context, address string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSignature, err)
	}
	response, err := v.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCertificate, err)
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode >= http.StatusInternalServerError || response.StatusCode == http.StatusTooManyRequests:
		return nil, fmt.Errorf("%w: %s: %s", errCertificate, address, response.Status)
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%w: its certificate %s: %s", errSignature, address, response.Status)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxCertSize))
	if err != nil {
		return nil, fmt.Errorf("%w: reading %s: %w", errCertificate, address, err)
	}
	return text, nil
}

// Outcomes of checking a signature.
const (
	signatureValid     = "valid"
	signatureWrong     = "wrong"
	signatureMissing   = "missing"
	signatureUnchecked = "unchecked"
)

// verify returns an error if the request is to be refused for its signature. A request without EventBridge's headers needs none,
// unless signatures are required.
func (h *handler) verify(ctx context.Context, r *http.Request, body []byte) error {
	claims := r.Header.Get(tokenHeader) != "" || r.Header.Get(signatureHeader) != ""
	if h.config.Signatures == SignaturesIgnored || h.config.Signatures == SignaturesChecked && !claims {
		return nil
	}
	err := h.verifier.check(ctx, r, body)
	outcome := signatureWrong
	switch {
	case err == nil:
		outcome = signatureValid
	case errors.Is(err, errUnsigned):
		outcome = signatureMissing
	case errors.Is(err, errCertificate):
		outcome = signatureUnchecked
	}
	signaturesByOutcome.WithLabelValues(outcome).Inc()
	if err == nil {
		return nil
	}
	klog.FromContext(ctx).Info("Could not prove that EventBridge sent a pushed request", "signature", outcome, "reason", err.Error(), "policy", h.config.Signatures)
	if h.config.Signatures == SignaturesChecked && outcome != signatureWrong {
		return nil
	}
	return err
}
