package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors/explain"
	"gpu-spot-autoscaler/cloudprovider/status"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/serving"
	"gpu-spot-autoscaler/test/rig"
)

const (
	secureInstall = "deploy/manifests/optional/secure-serving.yaml"
	viewer        = "gpu-spot-autoscaler-viewer"
	viaProxy      = "X-Gpu-Spot-Authorization"
)

func TestMetricsAndStatusAreForThoseWhomKubernetesAllowsThem(t *testing.T) {
	s := newSuite(t, newWorld(spotPool("asg-1", 10)))
	s.InstallManifest(t, secureInstall)
	address := ownAddress(s.t)
	port, err := rig.FreePort(t.Context(), address)
	require.NoError(t, err)
	secure := net.JoinHostPort(address, port)
	autoscaler := s.RunAutoscaler(t, "--secure-address="+secure)
	base := "https://" + secure
	allowed, other := tokenOf(s, rig.Namespace, viewer), tokenOf(s, metav1.NamespaceDefault, "default")
	s.eventually("the autoscaler answers whom it should", func(ctx context.Context) (bool, error) {
		code, _, err := httpGet(ctx, s, base+status.Path, "Authorization", "Bearer "+allowed)
		return code == http.StatusOK, err
	})
	s.eventually("the leader is ready", func(ctx context.Context) (bool, error) {
		ready, text, err := autoscaler.Readyz(ctx)
		if !ready || err != nil {
			return false, err
		}
		assert.Equal(t, "ok", text, "what stands in the way is in the status")
		return true, nil
	})
	for _, path := range []string{"/metrics", status.Path, serving.CostsPath, explain.Path + "?namespace=default&name=none"} {
		for name, c := range map[string]struct {
			header, token string
			want          int
		}{
			"no token":                                     {"Accept", "*/*", http.StatusUnauthorized},
			"a token that nobody issued":                   {"Authorization", "Bearer secret", http.StatusUnauthorized},
			"a ServiceAccount that may not":                {"Authorization", "Bearer " + other, http.StatusForbidden},
			"one that may":                                 {"Authorization", "Bearer " + allowed, http.StatusOK},
			"a caller that says who it is, and proves not": {"X-Remote-User", "system:admin", http.StatusUnauthorized},
		} {
			code, body, err := httpGet(t.Context(), s, base+path, c.header, c.token)
			require.NoError(t, err, name)
			assert.Equal(t, c.want, code, "%s of %s: %.200s", name, path, body)
		}
	}
	for path, want := range map[string]int{"/metrics": http.StatusNotFound, "/healthz": http.StatusOK} {
		code, _, err := httpGet(t.Context(), s, "http://"+autoscaler.Address()+path, "Accept", "*/*")
		require.NoError(t, err)
		assert.Equal(t, want, code, "%s without a token", path)
	}
	require.NoError(t, s.Client.RbacV1().ClusterRoleBindings().Delete(t.Context(), viewer, metav1.DeleteOptions{}))
	s.eventually("who may no more gets no more", func(ctx context.Context) (bool, error) {
		code, _, err := httpGet(ctx, s, base+"/metrics", "Authorization", "Bearer "+allowed)
		return code == http.StatusForbidden, err
	})
}

func TestStatusIsReadThroughTheProxyOfTheAPIServer(t *testing.T) {
	w := newWorld(spotPool("asg-1", 10))
	w.NoticePeriod = metav1.Duration{Duration: 4 * time.Minute} // longer than this test waits for anything
	s := newSuite(t, w)
	s.InstallManifest(t, secureInstall)
	runReplicas(s)
	person := viewerConfig(s)

	said := awaitStatus(s, person, "replica-a")
	require.Len(t, said.Pools, 1)
	assert.Equal(t, "asg-1", said.Pools[0].ID)
	assert.Len(t, said.Pools[0].Offerings, 3)
	redirected := awaitStatus(s, person, "replica-b")
	assert.Equal(t, "replica-a", redirected.Leader)
	assert.Empty(t, redirected.Pools)
	code, body := statusThroughProxy(s, person, "")
	assert.Equal(t, http.StatusUnauthorized, code, "the right to the proxy is no identity: %s", body)

	pods := gpuPods("train", 1)
	pods[0].Annotations = map[string]string{api.AnnotationAwaitCheckpoint: "true"}
	s.Submit(t, pods...)
	s.awaitRunning(pods...)
	node := nodeOfPod(s, pods[0].Name)
	require.NoError(t, s.Cloud.Reclaim(instanceOf(node)))
	s.eventually("the status tells of the reclaim", func(context.Context) (bool, error) {
		said = awaitStatus(s, person, "replica-a")
		return len(said.Reclaims) == 1 && len(said.Jobs) == 1 && said.Jobs[0].Phase == status.JobPhaseWaiting && said.Pools[0].Reclaiming == 1, nil
	})
	assert.Equal(t, node.Name, said.Reclaims[0].Node)
	assert.Equal(t, status.PhaseDraining, said.Reclaims[0].Phase)
	assert.Equal(t, 1, said.Reclaims[0].Pods)
	assert.WithinDuration(t, time.Now().Add(4*time.Minute), said.Reclaims[0].Deadline, 90*time.Second)
	assert.Equal(t, pods[0].Name, said.Jobs[0].Name)
	assert.Equal(t, said.Reclaims[0].Deadline, said.Jobs[0].Deadline)
	pod, err := s.pod(t.Context(), pods[0].Name)
	require.NoError(t, err)
	_, body = statusThroughProxy(s, person, tokenOf(s, rig.Namespace, viewer))
	assert.NotContains(t, body, pod.Annotations[api.AnnotationCheckpointRequest], "the id of a request is its job's secret")
}

// runReplicas runs replica-a, which leads, and replica-b behind the Service.
func runReplicas(s *suite) {
	s.t.Helper()
	leader := runReplica(s, "replica-a")
	s.eventually("it leads", func(ctx context.Context) (bool, error) {
		lease, err := s.Client.CoordinationV1().Leases(rig.Namespace).Get(ctx, rig.ServiceAccount, metav1.GetOptions{})
		return err == nil && *lease.Spec.HolderIdentity == "replica-a", err
	})
	standby := runReplica(s, "replica-b")
	createService(s, leader, standby)
}

// runReplica starts a candidate for the lease, and returns where it is reached.
func runReplica(s *suite, name string) *corev1.Pod {
	s.t.Helper()
	address := ownAddress(s.t)
	port, err := rig.FreePort(s.t.Context(), address)
	require.NoError(s.t, err)
	s.RunAutoscalerWithEnv(s.t, []string{"POD_NAME=" + name}, "--leader-elect=true", "--secure-address="+net.JoinHostPort(address, port))
	number, err := strconv.Atoi(port)
	require.NoError(s.t, err)
	pod, err := s.Client.CoreV1().Pods(rig.Namespace).Create(s.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{
			Name: "autoscaler", Image: "autoscaler", Ports: []corev1.ContainerPort{{Name: "https", ContainerPort: int32(number)}},
		}}},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.GivePodAddress(s.t, pod, address) // the API server proxies to pods only
	return pod
}

// createService makes the Service of the chart, and its endpoints, which are the processes of the pods.
func createService(s *suite, pods ...*corev1.Pod) {
	s.t.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: rig.ServiceAccount},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}},
	}
	_, err := s.Client.CoreV1().Services(rig.Namespace).Create(s.t.Context(), service, metav1.CreateOptions{})
	require.NoError(s.t, err)
	//lint:ignore SA1019 the API server's proxy goes by them, and nobody mirrors EndpointSlices into them
	endpoints := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: service.Name}}
	for _, pod := range pods {
		//lint:ignore SA1019 as above
		endpoints.Subsets = append(endpoints.Subsets, corev1.EndpointSubset{
			Addresses: []corev1.EndpointAddress{{
				IP: ownAddress(s.t), TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name},
			}},
			Ports: []corev1.EndpointPort{{Name: "https", Port: pod.Spec.Containers[0].Ports[0].ContainerPort}},
		})
	}
	_, err = s.Client.CoreV1().Endpoints(rig.Namespace).Create(s.t.Context(), endpoints, metav1.CreateOptions{})
	require.NoError(s.t, err)
}

// viewerConfig is bound to the Role for people, and to nothing else.
func viewerConfig(s *suite) *rest.Config {
	s.t.Helper()
	const name = "person"
	_, err := s.Client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(s.t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	_, err = s.Client.RbacV1().RoleBindings(rig.Namespace).Create(s.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: viewer},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: name}},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	path, err := s.Cluster.ServiceAccountKubeconfig(s.t.Context(), metav1.NamespaceDefault, name)
	require.NoError(s.t, err)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	require.NoError(s.t, err)
	return config
}

// awaitStatus asks through the proxy until the replica answers.
func awaitStatus(s *suite, person *rest.Config, replica string) (said status.Status) {
	s.t.Helper()
	client, err := kubernetes.NewForConfig(person)
	require.NoError(s.t, err)
	token, err := client.CoreV1().ServiceAccounts(rig.Namespace).CreateToken(s.t.Context(), viewer, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.eventually(replica+" answers", func(context.Context) (bool, error) {
		code, body := statusThroughProxy(s, person, token.Status.Token)
		said = status.Status{}
		if err := json.Unmarshal([]byte(body), &said); err != nil {
			return false, err
		}
		leads := said.Replica == said.Leader
		return said.Replica == replica && leads == (code == http.StatusOK) && leads == (said.Refreshed != nil), nil
	})
	return said
}

// statusThroughProxy asks for the status as the person, with a token for the autoscaler.
func statusThroughProxy(s *suite, person *rest.Config, token string) (code int, body string) {
	s.t.Helper()
	client, err := rest.HTTPClientFor(person)
	require.NoError(s.t, err)
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet,
		person.Host+"/api/v1/namespaces/"+rig.Namespace+"/services/https:"+rig.ServiceAccount+":https/proxy"+status.Path, nil)
	require.NoError(s.t, err)
	if token != "" {
		request.Header.Set(viaProxy, "Bearer "+token)
	}
	response, err := client.Do(request)
	require.NoError(s.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	return response.StatusCode, string(text)
}

// httpGet asks without verifying the certificate, which the autoscaler has made itself.
func httpGet(ctx context.Context, s *suite, url, header, value string) (code int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	request.Header.Set(header, value)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

func tokenOf(s *suite, namespace, name string) string {
	s.t.Helper()
	token, err := s.Client.CoreV1().ServiceAccounts(namespace).CreateToken(s.t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	return token.Status.Token
}
