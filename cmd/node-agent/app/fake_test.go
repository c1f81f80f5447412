package app

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// fakeMetadata is the metadata service of one instance.
type fakeMetadata struct {
	*httptest.Server
	asked atomic.Int32 // times for the termination time

	mu     sync.Mutex
	answer func(w http.ResponseWriter, r *http.Request)
}

// newFakeMetadata has no notice.
func newFakeMetadata(t *testing.T) *fakeMetadata {
	m := &fakeMetadata{answer: http.NotFound}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			fmt.Fprint(w, "token")
			return
		}
		m.asked.Add(1)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.answer(w, r)
	}))
	t.Cleanup(m.Close)
	return m
}

func (m *fakeMetadata) set(deadline time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answer = func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, deadline.UTC().Format(time.RFC3339)) }
}

// fakeAPI is an API server with one Node, named self.
type fakeAPI struct {
	*httptest.Server

	mu      sync.Mutex
	object  metav1.PartialObjectMetadata
	version int
	// fail answers instead, if it is set.
	fail http.HandlerFunc
}

func newFakeAPI(t *testing.T, created time.Time) *fakeAPI {
	a := &fakeAPI{}
	a.object.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
	a.object.ObjectMeta = metav1.ObjectMeta{Name: "self", CreationTimestamp: metav1.NewTime(created), Annotations: map[string]string{}}
	a.Server = httptest.NewTLSServer(http.HandlerFunc(a.serve))
	t.Cleanup(a.Close)
	return a
}

func (a *fakeAPI) serve(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fail != nil {
		a.fail(w, r)
		return
	}
	if r.URL.Path != "/api/v1/nodes/self" {
		http.NotFound(w, r)
		return
	}
	if r.Method == http.MethodPatch && !a.patch(w, r) {
		return
	}
	a.object.ResourceVersion = strconv.Itoa(a.version)
	w.Header().Set("Content-Type", "application/json")
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		_ = json.NewEncoder(w).Encode(a.object)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": a.object.ObjectMeta,
		"spec":   map[string]any{"podCIDR": "10.1.2.0/24", "podCIDRs": []string{"10.1.2.0/24"}, "providerID": "cn-hangzhou.i-1"},
		"status": map[string]any{"images": images()},
	})
}

// images are as many as a Node lists at most, with names as long as those of a registry in the cloud.
func images() (images []corev1.ContainerImage) {
	for i := range 50 {
		name := fmt.Sprintf("registry-cn-hangzhou-vpc.ack.aliyuncs.com/acs/image-with-a-long-name-%d", i)
		images = append(images, corev1.ContainerImage{
			Names: []string{name + "@sha256:" + strings.Repeat("0", 64), name + ":v1.2.3-aliyun.1"}, SizeBytes: 123456789,
		})
	}
	return images
}

// patch is false if it has answered.
func (a *fakeAPI) patch(w http.ResponseWriter, r *http.Request) bool {
	var patch struct {
		Metadata struct {
			Annotations     map[string]*string
			ResourceVersion string
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil || r.Header.Get("Content-Type") != "application/merge-patch+json" {
		http.Error(w, fmt.Sprint("not a merge patch: ", err), http.StatusBadRequest)
		return false
	}
	version := patch.Metadata.ResourceVersion
	if version != "" && version != strconv.Itoa(a.version) {
		w.WriteHeader(http.StatusConflict)
		_ = json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict})
		return false
	}
	a.version++
	for key, value := range patch.Metadata.Annotations {
		if value == nil {
			delete(a.object.Annotations, key)
		} else {
			a.object.Annotations[key] = *value
		}
	}
	return true
}

func (a *fakeAPI) annotation(key string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.object.Annotations[key]
}

// kubeconfig leads to it.
func (a *fakeAPI) kubeconfig(t *testing.T) string {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
	config := clientcmdapi.NewConfig()
	config.Clusters["fake"] = &clientcmdapi.Cluster{Server: a.URL, CertificateAuthorityData: ca}
	config.AuthInfos["self"] = &clientcmdapi.AuthInfo{Token: "token"}
	config.Contexts["fake"] = &clientcmdapi.Context{Cluster: "fake", AuthInfo: "self"}
	config.CurrentContext = "fake"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}
