package reclaim

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/push"
)

const certURL = "https://cn-beijing-eventbridge.oss-accelerate.aliyuncs.com/x509_public_certificate.pem"

// bus is EventBridge: a key, and the host of its certificate as seen from here.
type bus struct {
	key *rsa.PrivateKey

	mu sync.Mutex
	// files are by URL; away is that no host can be reached.
	files   map[string][]byte
	away    bool
	fetched int
}

// Keys take long to find.
var (
	busKey   = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })
	otherKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })
)

func newBus(t *testing.T) *bus {
	t.Helper()
	key, err := busKey()
	require.NoError(t, err)
	return &bus{key: key, files: map[string][]byte{certURL: certificateOf(t, key)}}
}

func certificateOf(t *testing.T, key crypto.Signer) []byte {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func (b *bus) RoundTrip(request *http.Request) (*http.Response, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fetched++
	if b.away {
		return nil, errors.New("no route to host")
	}
	answer := &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Request: request}
	file, found := b.files[request.URL.String()]
	if !found {
		answer.StatusCode, answer.Status = http.StatusNotFound, "404 Not Found"
	}
	answer.Body = io.NopCloser(bytes.NewReader(file))
	return answer, nil
}

func (b *bus) setAway(away bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = away
}

// signs makes a request EventBridge's, with headers other than usual, and a tail behind the body that is signed.
func (b *bus) signs(t *testing.T, body, tail string, others map[string]string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Del("Authorization")
		r.Host = "notices.example.com"
		headers := map[string]string{
			"x-eventbridge-signature-timestamp": fmt.Sprint(time.Now().UnixMilli()), "x-eventbridge-hash-method": "SHA256",
			"x-eventbridge-signature-version": "1.0", "x-eventbridge-signature-url": certURL, "x-eventbridge-signature-token": token,
		}
		for name, value := range others {
			headers[name] = value
		}
		text := "https://notices.example.com/v1/notices\n"
		for _, name := range []string{"timestamp", "hash", "version", "url", "token"} {
			name = "x-eventbridge-signature-" + name
			if strings.HasSuffix(name, "hash") {
				name = "x-eventbridge-hash-method"
			}
			r.Header.Set(name, headers[name])
			text += name + ": " + headers[name] + "\n"
		}
		hash := sha256.Sum256([]byte(text + body + tail))
		signature, err := rsa.SignPKCS1v15(rand.Reader, b.key, crypto.SHA256, hash[:])
		require.NoError(t, err)
		r.Header.Set("x-eventbridge-signature-v2", base64.StdEncoding.EncodeToString(signature))
	}
}

func (w *world) signedSender(b *bus, policy push.Signatures) *sender {
	return w.sender(func(c *push.Config) { c.Transport, c.Signatures = b, policy })
}

func looked(t *testing.T, outcome string) float64 {
	t.Helper()
	return value(t, "gpu_spot_reclaim_push_signatures_total", outcome)
}

func TestWhatEventBridgeSignedIsTaken(t *testing.T) {
	for name, tail := range map[string]string{"as the page says": "", "as the SDK does": "\n"} {
		for _, policy := range []push.Signatures{push.SignaturesChecked, push.SignaturesRequired} {
			t.Run(name+", "+string(policy), func(t *testing.T) {
				inBubble(t, func(w *world) {
					w.addNode("a")
					b := newBus(t)
					s := w.signedSender(b, policy)
					before := looked(t, "valid")
					event := interrupted("a", time.Now())
					assert.Equal(t, http.StatusOK, s.push(event, b.signs(t, event, tail, nil)))
					assert.Contains(t, w.node("a").Annotations, api.AnnotationNoticePush)
					assert.Equal(t, before+1, looked(t, "valid"))
					for range 5 {
						assert.Equal(t, http.StatusOK, s.push(event, b.signs(t, event, tail, nil)))
					}
					assert.Equal(t, 1, b.fetched, "one certificate serves them all")
				})
			})
		}
	}
}

func TestWhatIsSignedWronglyIsRefused(t *testing.T) {
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	event := interrupted("a", now)
	at := func(d time.Duration) map[string]string {
		return map[string]string{"x-eventbridge-signature-timestamp": fmt.Sprint(now.Add(d).UnixMilli())}
	}
	from := func(url string) map[string]string { return map[string]string{"x-eventbridge-signature-url": url} }
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	const host = "cn-beijing-eventbridge.oss-accelerate.aliyuncs.com"
	for name, tc := range map[string]struct {
		signed  string
		headers map[string]string
		change  func(*http.Request)
	}{
		"another body":                  {signed: interrupted("b", now)},
		"another host":                  {signed: event, change: func(r *http.Request) { r.Host = "other.example.com" }},
		"another path":                  {signed: event, change: func(r *http.Request) { r.URL.RawQuery = "x=1" }},
		"a newer time":                  {signed: event, change: set("X-Eventbridge-Signature-Timestamp", fmt.Sprint(now.Add(time.Second).UnixMilli()))},
		"no base64":                     {signed: event, change: set("X-Eventbridge-Signature-V2", "%%%")},
		"replayed after a minute":       {signed: event, headers: at(-61 * time.Second)},
		"from the future":               {signed: event, headers: at(61 * time.Second)},
		"a time that is none":           {signed: event, headers: map[string]string{"x-eventbridge-signature-timestamp": "now"}},
		"another hash":                  {signed: event, headers: map[string]string{"x-eventbridge-hash-method": "MD5"}},
		"a certificate of another host": {signed: event, headers: from("https://evil.example.com/c.pem")},
		"of another's bucket":           {signed: event, headers: from("https://evil-eventbridge.oss-accelerate.aliyuncs.com/c.pem")},
		"of another region":             {signed: event, headers: from("https://cn-shanghai-eventbridge.oss-accelerate.aliyuncs.com/c.pem")},
		"of a host that begins alike":   {signed: event, headers: from("https://" + host + ".evil.example.com/c.pem")},
		"of another port":               {signed: event, headers: from("https://" + host + ":8443/c.pem")},
		"by a user of that name":        {signed: event, headers: from("https://" + host + "@evil.example.com/c.pem")},
		"without TLS":                   {signed: event, headers: from("http://" + host + "/c.pem")},
		"that is not there":             {signed: event, headers: from("https://" + host + "/missing.pem")},
		"that is none":                  {signed: event, headers: from("https://" + host + "/text.pem")},
		"with another kind of key":      {signed: event, headers: from("https://" + host + "/ecdsa.pem")},
		"of another key":                {signed: event, headers: from("https://" + host + "/other.pem")},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a")
				b := newBus(t)
				curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
				require.NoError(t, err)
				other, err := otherKey()
				require.NoError(t, err)
				b.files["https://"+host+"/text.pem"] = []byte("certificate")
				b.files["https://"+host+"/ecdsa.pem"] = certificateOf(t, curve)
				b.files["https://"+host+"/other.pem"] = certificateOf(t, other)
				for _, url := range []string{"https://evil.example.com/c.pem", "https://evil-eventbridge.oss-accelerate.aliyuncs.com/c.pem",
					"https://" + host + ".evil.example.com/c.pem", "https://" + host + ":8443/c.pem", "http://" + host + "/c.pem",
					"https://cn-shanghai-eventbridge.oss-accelerate.aliyuncs.com/c.pem", "https://" + host + "@evil.example.com/c.pem"} {
					b.files[url] = b.files[certURL]
				}
				before := looked(t, "wrong")
				change := tc.change
				if change == nil {
					change = func(*http.Request) {}
				}
				s := w.signedSender(b, push.SignaturesChecked)
				assert.Equal(t, http.StatusUnauthorized, s.push(event, b.signs(t, tc.signed, "", tc.headers), change))
				assert.NotContains(t, w.node("a").Annotations, api.AnnotationNoticePush)
				assert.Equal(t, before+1, looked(t, "wrong"))
			})
		})
	}
}

func TestASignatureStandsForNoToken(t *testing.T) {
	inBubble(t, func(w *world) {
		w.addNode("a")
		b := newBus(t)
		event := interrupted("a", time.Now())
		status := w.signedSender(b, push.SignaturesChecked).push(event, b.signs(t, event, "", map[string]string{"x-eventbridge-signature-token": "mine"}))
		assert.Equal(t, http.StatusUnauthorized, status, "anybody may have EventBridge send events here")
		assert.Zero(t, b.fetched, "nobody without the token has us fetch anything")
	})
}

func TestWithoutAWayOutSignaturesAreNotChecked(t *testing.T) {
	for policy, status := range map[push.Signatures]int{
		push.SignaturesChecked: http.StatusOK, push.SignaturesRequired: http.StatusServiceUnavailable, push.SignaturesIgnored: http.StatusOK,
	} {
		t.Run(string(policy), func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.addNode("a")
				b := newBus(t)
				b.setAway(true)
				s := w.signedSender(b, policy)
				before := looked(t, "unchecked")
				event := interrupted("a", time.Now())
				for range 5 {
					assert.Equal(t, status, s.push(event, b.signs(t, "another", "", nil)))
				}
				if policy == push.SignaturesIgnored {
					assert.Zero(t, b.fetched)
					return
				}
				assert.Equal(t, before+5, looked(t, "unchecked"), "it is counted")
				assert.Equal(t, 1, b.fetched, "no request waits for what the last one did not get")

				b.setAway(false)
				w.pass(certPause)
				assert.Equal(t, http.StatusUnauthorized, s.push(event, b.signs(t, "another", "", nil)))
				assert.Equal(t, http.StatusOK, s.push(event, b.signs(t, event, "", nil)))
			})
		})
	}
}

func TestWhatHasNoSignatureIsTakenUnlessOneIsRequired(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"a bearer": func(*http.Request) {},
		"EventBridge without one": func(r *http.Request) {
			r.Header.Del("Authorization")
			r.Header.Set("X-Eventbridge-Signature-Token", token)
		},
		"EventBridge by its older way": func(r *http.Request) {
			r.Header.Del("Authorization")
			r.Header.Set("X-Eventbridge-Signature-Token", token)
			r.Header.Set("x-eventbridge-signature", "c2lnbmF0dXJl")
			r.Header.Set("x-eventbridge-signature-secret", "c2VjcmV0")
		},
	} {
		for policy, status := range map[push.Signatures]int{
			push.SignaturesChecked: http.StatusOK, push.SignaturesIgnored: http.StatusOK, push.SignaturesRequired: http.StatusUnauthorized,
		} {
			t.Run(name+", "+string(policy), func(t *testing.T) {
				inBubble(t, func(w *world) {
					w.addNode("a")
					assert.Equal(t, status, w.signedSender(newBus(t), policy).push(interrupted("a", time.Now()), change))
				})
			})
		}
	}
}
