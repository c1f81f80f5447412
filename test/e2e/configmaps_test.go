package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"gpu-spot-autoscaler/test/rig"
	"gpu-spot-autoscaler/test/standin"
)

func TestAutoscalerMayDeleteTheListOfHostsOfATrainingJobAndNoOtherConfigMap(t *testing.T) {
	s := newJobSuiteWithoutAutoscaler(t, newWorld())
	operator, err := standin.NewETOperator(s.Cluster.AdminConfig())
	require.NoError(t, err)
	require.NoError(t, operator.Install(t.Context(), s.Cluster))
	s.submit(`{apiVersion: kai.alibabacloud.com/v1alpha1, kind: TrainingJob, metadata: {name: et}, spec: {etReplicaSpecs: {launcher: {}, worker: {}}}}`)
	job, err := s.getObject(t.Context(), standin.TrainingJobs, "et")
	require.NoError(t, err)
	owner := *metav1.NewControllerRef(job, job.GroupVersionKind())
	otherGroup := owner
	otherGroup.APIVersion = "kai.alibabacloud.com.example.org/v1alpha1"

	cases := map[string]struct {
		namespace, name string
		owner           *metav1.OwnerReference
		allowed         bool
	}{
		"list of hosts":                 {metav1.NamespaceDefault, "et-config", &owner, true},
		"own status":                    {rig.Namespace, "cluster-autoscaler-status", nil, true},
		"own ledger":                    {rig.Namespace, "gpu-spot-autoscaler-ledger", nil, false},
		"own memory of the market":      {rig.Namespace, "gpu-spot-autoscaler-market", nil, false},
		"status of another":             {metav1.NamespaceDefault, "cluster-autoscaler-status", nil, false},
		"other one of the TrainingJob":  {metav1.NamespaceDefault, "et-results", &owner, false},
		"named like that of another":    {metav1.NamespaceDefault, "other-config", &owner, false},
		"of another kind of job":        {metav1.NamespaceDefault, "et-config", &otherGroup, false},
		"named like one, but of nobody": {metav1.NamespaceDefault, "et-config", nil, false},
		"of the cluster":                {rig.Namespace, "coredns", nil, false},
	}
	const denial = "the autoscaler deletes no ConfigMap but"
	autoscaler := autoscalerClient(s.suite)
	for what, c := range cases {
		createConfigMap(s.suite, c.namespace, c.name, c.owner)
		err := autoscaler.CoreV1().ConfigMaps(c.namespace).Delete(t.Context(), c.name, metav1.DeleteOptions{})
		if c.allowed {
			assert.NoError(t, err, what)
			continue
		}
		assert.True(t, apierrors.IsForbidden(err), "%s: %v", what, err)
		assert.ErrorContains(t, err, denial, what)
		err = s.Client.CoreV1().ConfigMaps(c.namespace).Delete(t.Context(), c.name, metav1.DeleteOptions{})
		assert.NoError(t, err, "%s, by somebody else", what)
	}
	maps := autoscaler.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	err = maps.Delete(t.Context(), "gone-config", metav1.DeleteOptions{})
	assert.True(t, apierrors.IsNotFound(err), "a job is resumed once more whose list is gone: %v", err)
	err = maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	assert.True(t, apierrors.IsForbidden(err), "all at once: %v", err)
}

func TestStatusOfClusterAutoscalerIsWrittenWhereItIsAskedFor(t *testing.T) {
	s := newSuite(t, newWorld(singleOfferingPool("asg-1", 10)))
	s.RunAutoscaler(t, "--write-status-configmap=true")
	var first string
	status := func(ctx context.Context) (string, error) {
		found, err := s.Client.CoreV1().ConfigMaps(rig.Namespace).Get(ctx, "cluster-autoscaler-status", metav1.GetOptions{})
		return found.Data["status"], err
	}
	s.eventually("it is there", func(ctx context.Context) (_ bool, err error) {
		first, err = status(ctx)
		return first != "", err
	})
	s.eventually("it is kept up to date", func(ctx context.Context) (bool, error) {
		now, err := status(ctx)
		return now != first, err
	})
}

// createConfigMap makes one.
func createConfigMap(s *suite, namespace, name string, owner *metav1.OwnerReference) {
	s.t.Helper()
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if owner != nil {
		made.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	_, err := s.Client.CoreV1().ConfigMaps(namespace).Create(s.t.Context(), made, metav1.CreateOptions{})
	require.NoError(s.t, err)
}

// autoscalerClient is a client that may do what the autoscaler may.
func autoscalerClient(s *suite) kubernetes.Interface {
	s.t.Helper()
	client, err := kubernetes.NewForConfig(autoscalerConfig(s))
	require.NoError(s.t, err)
	return client
}

// autoscalerConfig has the autoscaler's token.
func autoscalerConfig(s *suite) *rest.Config {
	s.t.Helper()
	kubeconfig, err := s.Cluster.ServiceAccountKubeconfig(s.t.Context(), rig.Namespace, rig.ServiceAccount)
	require.NoError(s.t, err)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(s.t, err)
	config.QPS = -1
	return config
}
