package app

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// apiServer has objects that can be listed and read, and no more. Watches of it never tell of anything, and writes are noted.
type apiServer struct {
	*testing.T
	url string

	mu sync.Mutex
	// objects are by the path of their list in all namespaces, such as /api/v1/pods.
	objects map[string][]*unstructured.Unstructured
	writes  []string
}

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

func newAPIServer(t *testing.T) *apiServer {
	s := &apiServer{T: t, objects: map[string][]*unstructured.Unstructured{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	s.put("/api/v1/namespaces", `{metadata: {name: kube-system, uid: 0f0f0f0f-1111}}`)
	for _, name := range []string{"pytorchjobs.kubeflow.org", "jobsets.jobset.x-k8s.io", "rayjobs.ray.io", "rayclusters.ray.io", "jobs.batch.volcano.sh", "mpijobs.kubeflow.org", "leaderworkersets.leaderworkerset.x-k8s.io"} {
		s.put(definitionsPath, `{apiVersion: meta.k8s.io/v1, kind: PartialObjectMetadata, metadata: {name: `+name+`}}`)
	}
	return s
}

func (s *apiServer) config() *rest.Config {
	return &rest.Config{Host: s.url, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
}

// put adds an object to the list.
func (s *apiServer) put(list, document string) {
	s.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
		s.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[list] = append(s.objects[list], object)
}

func (s *apiServer) written() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method != http.MethodGet {
		s.write(w, r)
		return
	}
	if r.URL.Query().Get("watch") != "" {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	list, namespace, name := dividePath(r.URL.Path)
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*unstructured.Unstructured
	label := r.URL.Query().Get("labelSelector")
	for _, object := range s.objects[list] {
		_, labelled := object.GetLabels()[label]
		if (namespace == "" || object.GetNamespace() == namespace) && (name == "" || object.GetName() == name) && (label == "" || labelled) {
			found = append(found, object)
		}
	}
	var answer any
	switch resources := s.discovered(r.URL.Path); {
	case len(resources) > 0:
		answer = metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, APIResources: resources}
	case name != "" && len(found) == 0:
		w.WriteHeader(http.StatusNotFound)
		answer = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
	case name != "":
		answer = found[0]
	default:
		all := map[string]any{"metadata": map[string]any{"resourceVersion": "1"}, "items": found}
		if strings.Contains(list, ".") || strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList") || strings.HasPrefix(list, "/apis/batch/v1/jobs") {
			all["apiVersion"], all["kind"] = "v1", "List"
		}
		if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList") {
			all["apiVersion"], all["kind"] = "meta.k8s.io/v1", "PartialObjectMetadataList"
		}
		if isTyped := strings.HasPrefix(list, "/apis/storage.k8s.io") || strings.HasPrefix(list, "/apis/resource.k8s.io"); isTyped {
			delete(all, "apiVersion")
			delete(all, "kind")
		}
		if found == nil {
			all["items"] = []any{}
		}
		answer = all
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		s.Log(err)
	}
}

// write answers a write with the object that was sent. Pods get a toleration, as admission adds some.
func (s *apiServer) write(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	switch {
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		body = bytes.Replace(body, []byte(`"status":{"allowed":false}`), []byte(`"status":{"allowed":true}`), 1)
	case strings.HasSuffix(r.URL.Path, "/pods") && r.URL.Query().Get("dryRun") == metav1.DryRunAll:
		pod := &corev1.Pod{}
		if err := json.Unmarshal(body, pod); err != nil {
			s.Error(err)
		}
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: "admitted", Operator: corev1.TolerationOpExists})
		body, _ = json.Marshal(pod)
	default:
		s.mu.Lock()
		s.writes = append(s.writes, r.Method+" "+r.URL.Path)
		s.mu.Unlock()
	}
	_, _ = w.Write(body)
}

// discovered returns the resources of the group whose path is asked for.
func (s *apiServer) discovered(path string) (found []metav1.APIResource) {
	words := strings.Split(strings.Trim(path, "/"), "/")
	if len(words) != 3 || words[0] != "apis" {
		return nil
	}
	for _, definition := range s.objects[definitionsPath] {
		if name, ok := strings.CutSuffix(definition.GetName(), "."+words[1]); ok {
			found = append(found, metav1.APIResource{Name: name})
		}
	}
	return found
}

// dividePath divides the path of a request.
func dividePath(path string) (list, namespace, name string) {
	words := strings.Split(strings.Trim(path, "/"), "/")
	root := 2 // api/v1
	if words[0] == "apis" {
		root = 3
	}
	if len(words) < root {
		return path, "", "none"
	}
	rest := words[root:]
	if len(rest) > 2 && rest[0] == "namespaces" {
		namespace, rest = rest[1], rest[2:]
	}
	if len(rest) == 0 { // discovery
		return path, "", "none"
	}
	if len(rest) > 1 {
		name = rest[1]
	}
	return "/" + strings.Join(append(words[:root:root], rest[0]), "/"), namespace, name
}
