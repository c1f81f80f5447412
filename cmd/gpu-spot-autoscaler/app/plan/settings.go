package plan

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

const (
	// containerName is that of the chart.
	containerName = "autoscaler"
	// serveCommand is the name of the command that serves another Cluster Autoscaler.
	serveCommand = "serve"
)

// ArgumentsOf returns the command line of the autoscaler's Deployment, with the flags that it has from its environment. It fails for one that
// serves another Cluster Autoscaler, which decides by flags of its own.
func ArgumentsOf(ctx context.Context, client kubernetes.Interface, namespace, name string) ([]string, error) {
	deployment, err := client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the settings of the autoscaler from its Deployment %s/%s: %w", namespace, name, err)
	}
	containers := deployment.Spec.Template.Spec.Containers
	at := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == containerName })
	if at < 0 && len(containers) > 0 {
		at = 0
	}
	if at < 0 {
		return nil, fmt.Errorf("no container is in Deployment %s/%s", namespace, name)
	}
	env := map[string]string{}
	for _, each := range containers[at].Env {
		env[each.Name] = each.Value
	}
	arguments := []string{"--namespace=" + namespace}
	if region := env["ALIBABA_CLOUD_REGION_ID"]; region != "" {
		arguments = append(arguments, "--region="+region)
	}
	mapping := expansion.MappingFuncFor(env)
	words := containers[at].Args
	if command := containers[at].Command; len(command) > 0 {
		words = slices.Concat(command[1:], words)
	}
	if args := containers[at].Args; len(args) > 0 && args[0] == serveCommand {
		return nil, fmt.Errorf("the autoscaler of Deployment %s/%s serves another Cluster Autoscaler, and it is not known here what that one would buy", namespace, name)
	}
	for _, word := range words {
		arguments = append(arguments, expansion.Expand(word, mapping))
	}
	return arguments, nil
}
