package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// tokenLifetime outlasts every test; nobody renews the tokens.
const tokenLifetime = 24 * time.Hour

// ServiceAccountKubeconfig writes a kubeconfig with a real token of the ServiceAccount, which must exist, and returns its
// path: whoever uses it may do what RBAC allows the ServiceAccount, and no more. Without a pod around it, the kubeconfig
// names the ServiceAccount's namespace as its own.
func (c *Cluster) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) (path string, err error) {
	return c.writeKubeconfig(ctx, namespace, name, fmt.Sprintf("serviceaccount-%s-%s", namespace, name), nil)
}

// PodKubeconfig is [Cluster.ServiceAccountKubeconfig] with the token that the pod itself would have: it is of the pod's
// ServiceAccount, says on which Node the pod runs, and ends with the pod.
func (c *Cluster) PodKubeconfig(ctx context.Context, pod *corev1.Pod) (path string, err error) {
	return c.writeKubeconfig(ctx, pod.Namespace, pod.Spec.ServiceAccountName, fmt.Sprintf("pod-%s-%s", pod.Namespace, pod.Name),
		&authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID})
}

// writeKubeconfig writes a kubeconfig with a token of the ServiceAccount, bound to an object or to nothing else.
func (c *Cluster) writeKubeconfig(ctx context.Context, namespace, name, file string, boundTo *authenticationv1.BoundObjectReference) (path string, err error) {
	seconds := int64(tokenLifetime.Seconds())
	token, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, BoundObjectRef: boundTo}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("cluster: token of ServiceAccount %s/%s: %w", namespace, name, err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["cluster"] = &clientcmdapi.Cluster{Server: c.config.Host, CertificateAuthorityData: c.config.CAData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: name, Namespace: namespace}
	config.CurrentContext = name
	path = filepath.Join(c.info.Dir, file+".kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}
