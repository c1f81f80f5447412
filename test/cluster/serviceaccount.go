package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
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
	seconds := int64(tokenLifetime.Seconds())
	token, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("cluster: token of ServiceAccount %s/%s: %w", namespace, name, err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["cluster"] = &clientcmdapi.Cluster{Server: c.config.Host, CertificateAuthorityData: c.config.CAData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: name, Namespace: namespace}
	config.CurrentContext = name
	path = filepath.Join(c.info.Dir, fmt.Sprintf("serviceaccount-%s-%s.kubeconfig", namespace, name))
	return path, clientcmd.WriteToFile(*config, path)
}
