package reclaim

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

// Signatures says what becomes of the signatures of EventBridge.
type Signatures string

const (
	// SignaturesChecked refuses a request of EventBridge whose signature is wrong. One whose signature cannot be checked,
	// because the certificate cannot be had or it has none, is taken by its token. It is the default.
	SignaturesChecked Signatures = "check"
	// SignaturesRequired takes nothing but what EventBridge has signed. While the certificate cannot be had requests are to be
	// sent again.
	SignaturesRequired Signatures = "require"
	// SignaturesIgnored takes requests by their token alone.
	SignaturesIgnored Signatures = "ignore"
)

// Headers of EventBridge. Source: "Signature algorithm", EventBridge user guide (help.aliyun.com/en/eventbridge/user-guide/
// signature-algorithm): the sender computes a SHA256 hash of the string to sign, signs it with an RSA key, and names the URL of
// the certificate. The receiver refuses what is older than 60 s, and certificates of other hosts than
// https://[RegionId]-eventbridge.oss-accelerate.aliyuncs.com.
//
// The older scheme of the same page (x-eventbridge-signature-secret, HMAC-SHA1) is no proof: with the public certificate
// everybody who ever got a request of EventBridge reads the secret that was "encrypted" with the private key, and signs with it.
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

// signedHeaders are part of the string to sign, in this order; those that were not sent are left out.
var signedHeaders = []string{timestampHeader, hashMethodHeader, versionHeader, certURLHeader, tokenHeader}

const (
	certTimeout = 2 * time.Second // a sender waits for four
	certMost    = 64 << 10        // bytes
	// certAge is how long a certificate is kept, certPause how long to do without after it could not be had.
	certAge   = time.Hour
	certPause = 30 * time.Second
	certsMost = 16
)

// What is wrong with a signature.
var (
	errSignature   = errors.New("wrong signature")
	errUnsigned    = errors.New("no signature that proves anything")
	errCertificate = errors.New("the certificate cannot be had")
)

// verifier checks signatures. It is safe for concurrent use.
type verifier struct {
	// host is where the certificate must be. It is a bucket of OSS, and its name that of one region: other names that look alike
	// may be buckets of anybody.
	host  string
	http  *http.Client
	clock clock.PassiveClock

	fetching singleflight.Group
	mu       sync.Mutex
	// certs are by URL; lost is when the host last could not be reached.
	certs map[string]certificate
	lost  time.Time
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

// check is nil for a request that EventBridge has signed less than a minute ago. Other errors than errSignature and errUnsigned
// wrap errCertificate.
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
		return fmt.Errorf("%w: its time cannot be read", errSignature)
	}
	if age := v.clock.Since(time.UnixMilli(millis)); age.Abs() > signatureAge {
		return fmt.Errorf("%w: it is %v old", errSignature, age)
	}
	key, err := v.key(ctx, r.Header.Get(certURLHeader))
	if err != nil {
		return err
	}
	// The page ends the string with the body. Alibaba Cloud's Java SDK, StringToSignBuilder of com.aliyun.eventbridge.signature,
	// puts a line feed behind that.
	signed := stringToSign(r, body)
	for _, text := range [][]byte{signed, append(signed[:len(signed):len(signed)], '\n')} {
		hash := sha256.Sum256(text)
		if rsa.VerifyPKCS1v15(key, crypto.SHA256, hash[:], signature) == nil {
			return nil
		}
	}
	return errSignature
}

// stringToSign is the URL, as the sender has it, the headers and the body.
func stringToSign(r *http.Request, body []byte) []byte {
	lines := []string{"https://" + r.Host + r.URL.RequestURI()}
	for _, name := range signedHeaders {
		if value := r.Header.Get(name); value != "" {
			lines = append(lines, strings.ToLower(name)+": "+value)
		}
	}
	return append([]byte(strings.Join(lines, "\n")+"\n"), body...)
}

// key is that of the certificate at the URL.
func (v *verifier) key(ctx context.Context, address string) (*rsa.PublicKey, error) {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "https" || parsed.Host != v.host || parsed.User != nil {
		return nil, fmt.Errorf("%w: its certificate is not of %s: %.200q", errSignature, v.host, address)
	}
	v.mu.Lock()
	known, lost := v.certs[address], v.lost
	v.mu.Unlock()
	switch {
	case known.key != nil && v.clock.Since(known.got) < certAge:
		return known.key, nil
	case !lost.IsZero() && v.clock.Since(lost) < certPause:
		return nil, fmt.Errorf("%w: %s could not be reached at %v", errCertificate, v.host, lost)
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
	v.lost = time.Time{}
	if err != nil {
		if errors.Is(err, errCertificate) {
			v.lost = v.clock.Now()
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
	if len(v.certs) >= certsMost {
		clear(v.certs)
	}
	v.certs[address] = certificate{key: key, got: v.clock.Now()}
	return key, nil
}

// download wraps errCertificate where the host does not answer, and errSignature where it has no such file.
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
	text, err := io.ReadAll(io.LimitReader(response.Body, certMost))
	if err != nil {
		return nil, fmt.Errorf("%w: reading %s: %w", errCertificate, address, err)
	}
	return text, nil
}

// Outcomes of a look at a signature.
const (
	signatureValid     = "valid"
	signatureWrong     = "wrong"
	signatureMissing   = "missing"
	signatureUnchecked = "unchecked"
)

// verify says whether the request may be taken by its signature, and by the error why not. What does not come from
// EventBridge, by the header of its token, has none to show, and needs none unless signatures are required.
func (h *pushHandler) verify(ctx context.Context, r *http.Request, body []byte) error {
	claims := r.Header.Get(tokenHeader) != "" || r.Header.Get(signatureHeader) != ""
	if h.Signatures == SignaturesIgnored || h.Signatures == SignaturesChecked && !claims {
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
	pushSignatures.WithLabelValues(outcome).Inc()
	if err == nil {
		return nil
	}
	klog.FromContext(ctx).Info("A pushed request is not proven to be EventBridge's", "signature", outcome, "reason", err.Error(), "policy", h.Signatures)
	if h.Signatures == SignaturesChecked && outcome != signatureWrong {
		return nil
	}
	return err
}
