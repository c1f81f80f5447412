package doctor

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/alicloud/client"
	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/ram"
	"gpu-spot-autoscaler/test/alisim/temper"
)

const (
	region      = "ap-southeast-1"
	clusterName = "my-cluster" // as in the shipped policy
	group       = "asg-1"
	a10         = "ecs.gn7i-c8g1.2xlarge" // 8 vCPUs, one GPU
	repository  = "../../../../"

	labelTag = "k8s.io/cluster-autoscaler/node-template/label/team"
	taintTag = "k8s.io/cluster-autoscaler/node-template/taint/gpu"
)

// setup is a cloud and a cluster. Tests change a part of one that is sound.
type setup struct {
	t       *testing.T
	world   alisim.World
	objects []runtime.Object
	// version is that of Kubernetes.
	version string
	// region, keyID, secret and nodes are what the command is given.
	region, keyID, secret string
	nodes                 map[string]pool.Bounds
	clusterName           string
	// credentials sign instead of keyID and secret, if set.
	credentials func(*setup, *alisim.Server) credentials.CredentialsProvider
	// running changes the cloud once it runs, and makes the Nodes of its instances.
	running []func(*alisim.Server)
	// refused are the resources of the cluster that may not be read.
	refused []string
}

// soundSetup has one pool of two instances, the autoscaler with all its parts, and pods that are as they should be.
func soundSetup(t *testing.T) *setup {
	t.Helper()
	w := alisim.NewWorld(region, region+"a", region+"b")
	w.Temper = temper.Lenient()
	for _, vswitch := range w.VSwitches {
		w.Sell(a10, vswitch.Zone, 4, 10)
	}
	w.RAMPolicy = policyOf(t, "deploy/ram-policy.json")
	w.RAMPolicy.Statement = append(w.RAMPolicy.Statement, documentedPolicy(t).Statement...)
	w.Pools = []alisim.Pool{{
		ID: group, MaxSize: 10, Instances: 2, InstanceTypes: []string{a10}, VSwitches: []string{"vsw-a", "vsw-b"},
		SpotStrategy: alisim.SpotAsPriceGo, CompensateWithOnDemand: ptr.To(false),
		Tags: map[string]string{
			"k8s.io/cluster-autoscaler/enabled": "true", "k8s.io/cluster-autoscaler/" + clusterName: "owned",
			"gpu-spot.autoscaling/max-size": "8", labelTag: "ml", taintTag: "true:NoSchedule",
		},
	}}
	s := &setup{t: t, world: w, version: "v1.36.1", region: region, clusterName: clusterName}
	s.objects = append(shippedPolicies(t),
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "gpu-spot-autoscaler"}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "gpu-spot-autoscaler-node-agent",
			Labels: map[string]string{"app.kubernetes.io/name": "gpu-spot-node-agent"}},
			Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 2, NumberReady: 2}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "essd", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}}},
		// Deployments that are nobody's business.
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"}},
		launcher(), awaiting(), claiming(), claim(nil),
	)
	s.running = []func(*alisim.Server){s.addNodes}
	return s
}

// object returns the object of the type, and of the name if one is given, so that a test can change it.
func object[T any, P interface {
	*T
	metav1.Object
	runtime.Object
}](s *setup, name string) P {
	s.t.Helper()
	for _, o := range s.objects {
		if typed, ok := o.(P); ok && typed.GetName() == name {
			return typed
		}
	}
	s.t.Fatalf("there is no %T %s", P(nil), name)
	return nil
}

// drop removes the object of the type and name.
func drop[T any, P interface {
	*T
	metav1.Object
	runtime.Object
}](s *setup, name string) {
	s.t.Helper()
	dropped := object[T, P](s, name)
	var kept []runtime.Object
	for _, o := range s.objects {
		if o != runtime.Object(dropped) {
			kept = append(kept, o)
		}
	}
	s.objects = kept
}

// addNodes makes the Nodes of all instances.
func (s *setup) addNodes(cloud *alisim.Server) {
	for _, instance := range cloud.Instances() {
		s.objects = append(s.objects, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: instance.ID, Labels: map[string]string{"team": "ml"}},
			Spec: corev1.NodeSpec{ProviderID: region + "." + instance.ID, Taints: []corev1.Taint{
				{Key: "gpu", Value: "true", Effect: corev1.TaintEffectNoSchedule},
				{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule},
				{Key: "status-taint.cluster-autoscaler.kubernetes.io/spot-reclaim", Value: "1", Effect: corev1.TaintEffectNoSchedule},
			}},
		})
	}
}

// doctor starts the cloud, and returns the Doctor of the set-up.
func (s *setup) doctor() *Doctor {
	s.t.Helper()
	cloud, err := alisim.Start(s.t.Context(), s.world, alisim.Options{})
	require.NoError(s.t, err)
	s.t.Cleanup(cloud.Stop)
	for _, change := range s.running {
		change(cloud)
	}
	key := cloud.AccessKey()
	key.ID, key.Secret = cmp.Or(s.keyID, key.ID), cmp.Or(s.secret, key.Secret)
	var provider credentials.CredentialsProvider = credentials.NewStaticAKCredentialsProvider(key.ID, key.Secret)
	if s.credentials != nil {
		provider = s.credentials(s, cloud)
	}
	connection, err := client.New(rpc.Options{
		Region: s.region, Scheme: "http", Credentials: provider,
		Endpoints: rpc.Endpoints{ESS: cloud.Endpoint(), ECS: cloud.Endpoint(), VPC: cloud.Endpoint(), STS: cloud.STSEndpoint()},
		Retry:     wait.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 2},
	})
	require.NoError(s.t, err)
	s.t.Cleanup(connection.Close)
	return &Doctor{Cloud: connection, Kube: s.kube(), Clock: clock.RealClock{}, Region: s.region, ClusterName: s.clusterName, Nodes: s.nodes,
		Namespace: "kube-system", Name: "gpu-spot-autoscaler"}
}

// noCredentials is what there is where neither a Secret nor a role gives any.
func noCredentials(*setup, *alisim.Server) credentials.CredentialsProvider {
	return credentials.NewEnvironmentVariableCredentialsProvider()
}

// expiredToken is a temporary key that nobody renewed.
func expiredToken(_ *setup, cloud *alisim.Server) credentials.CredentialsProvider {
	const id, secret, token = "STS.old", "secret", "token"
	cloud.AddKey(id, secret, token, time.Now().Add(-time.Minute))
	return credentials.NewStaticSTSCredentialsProvider(id, secret, token)
}

// assumedRole is a role that a ServiceAccount assumes by RRSA.
func assumedRole(s *setup, cloud *alisim.Server) credentials.CredentialsProvider {
	authority, err := os.ReadFile(cloud.CAFile())
	require.NoError(s.t, err)
	roots := x509.NewCertPool()
	require.True(s.t, roots.AppendCertsFromPEM(authority))
	transport := http.DefaultTransport.(*http.Transport)
	before := transport.TLSClientConfig
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	s.t.Cleanup(func() { transport.TLSClientConfig = before })

	// The simulated STS reads the claims, and does not check who signed them.
	claims := fmt.Sprintf(`{"iss":"https://kubernetes","aud":["sts.aliyuncs.com"],"sub":"system:serviceaccount:kube-system:gpu-spot-autoscaler","exp":%d}`,
		time.Now().Add(time.Hour).Unix())
	token := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256"}`)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".signature"
	file := filepath.Join(s.t.TempDir(), "token")
	require.NoError(s.t, os.WriteFile(file, []byte(token), 0o600))
	const account = "acs:ram::1234567890123456:"
	provider, err := credentials.NewOIDCCredentialsProviderBuilder().WithSTSEndpoint(cloud.STSEndpoint()).WithRoleSessionName("doctor").
		WithOIDCTokenFilePath(file).WithOIDCProviderARN(account + "oidc-provider/ack-rrsa").WithRoleArn(account + "role/autoscaler").Build()
	require.NoError(s.t, err)
	return provider
}

func (s *setup) kube() *fake.Clientset {
	kube := fake.NewClientset(s.objects...)
	kube.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: s.version}
	refuse(kube, s.refused)
	return kube
}

// refuse has the API server refuse to show the resources.
func refuse(kube *fake.Clientset, resources []string) {
	for _, resource := range resources {
		kube.PrependReactor("*", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(corev1.Resource(resource), "", errors.New("no RBAC policy matched"))
		})
	}
}

// policyOf returns a shipped RAM policy.
func policyOf(t *testing.T, path string) *ram.Policy {
	t.Helper()
	text, err := os.ReadFile(repository + path)
	require.NoError(t, err)
	policy, err := ram.Parse(text)
	require.NoError(t, err)
	return policy
}

// documentedPolicy returns the RAM policy that docs/doctor.md shows, for what only the doctor asks.
func documentedPolicy(t *testing.T) *ram.Policy {
	t.Helper()
	text, err := os.ReadFile(repository + "docs/doctor.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```json\n(\\{\n  \"Version\".*?)```").FindSubmatch(text)
	require.NotNil(t, block, "docs/doctor.md shows a policy")
	policy, err := ram.Parse(block[1])
	require.NoError(t, err)
	return policy
}

// shippedPolicies are the admission policies and bindings of the manifests.
func shippedPolicies(t *testing.T) (objects []runtime.Object) {
	t.Helper()
	text, err := os.ReadFile(repository + "deploy/manifests/policies.yaml")
	require.NoError(t, err)
	for _, document := range strings.Split(string(text), "\n---\n") {
		if !strings.Contains(document, "kind: ") {
			continue
		}
		decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(document), nil, nil)
		require.NoError(t, err)
		objects = append(objects, decoded)
	}
	require.NotEmpty(t, objects)
	return objects
}

// launcher is one of an MPIJob that is kept off spot nodes.
func launcher() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "mpi-launcher", Labels: map[string]string{
			"training.kubeflow.org/operator-name": "mpi-operator", "training.kubeflow.org/job-name": "mpi", "training.kubeflow.org/job-role": "launcher",
		}, OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "mpi-launcher", Controller: ptr.To(true)}}},
		Spec: corev1.PodSpec{NodeName: "elsewhere", NodeSelector: map[string]string{"alibabacloud.com/nodepool-id": "system"},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}},
	}
}

// awaiting is a pod whose eviction waits for an acknowledgement, and that can read the request for one.
func awaiting() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "train", Annotations: map[string]string{"gpu-spot.autoscaling/await-checkpoint": "true"}},
		Spec: corev1.PodSpec{
			NodeName:   "elsewhere",
			Containers: []corev1.Container{{Name: "trainer", VolumeMounts: []corev1.VolumeMount{{Name: "podinfo", MountPath: "/etc/podinfo"}}}},
			Volumes: []corev1.Volume{{Name: "podinfo", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "checkpoint-request", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['gpu-spot.autoscaling/checkpoint-request']"}},
			}}}}},
		},
	}
}

// claiming is a pending pod with a claim.
func claiming() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pending"},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}}},
	}
}

func claim(class *string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: class},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
}
