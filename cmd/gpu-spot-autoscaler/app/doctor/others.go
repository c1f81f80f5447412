package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/ess/problem"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/ack"
)

const (
	// nameSupervisor is the name of the Deployment of Elastic-Job-Supervisor, and the value of its label app
	// (arena-artifacts/charts/elastic-job-supervisor in kubeflow/arena, which ACK installs).
	nameSupervisor = "elastic-job-supervisor"
	// nameClusterAutoscaler is in the name of the Deployment of Cluster Autoscaler: the chart of kubernetes/autoscaler names it
	// <release>-<cloud>-cluster-autoscaler, ACK cluster-autoscaler.
	nameClusterAutoscaler = "cluster-autoscaler"
	// nameGOATScaler is in the name of that of ACK's node instant scaling, where it runs in the cluster, such as in a dedicated one.
	nameGOATScaler = "goatscaler"
	// componentGOATScaler is the source of the Events ProvisionNode that it records on pods, wherever it runs: ACK runs it outside of
	// managed clusters ("Node instant scaling", help.aliyun.com/en/ack/ack-managed-and-ack-dedicated/user-guide/enable-node-instant-scaling,
	// has users look for these Events). The names are those in Events of real clusters.
	componentGOATScaler = "GOATScaler"
	reasonProvisionNode = "ProvisionNode"
)

const mendOther = "Turn it off, or keep its node pools and these apart by taints, or by node selectors of the pods"

// checkOthers looks for controllers that do the same work.
func (e *clusterExam) checkOthers(ctx context.Context) {
	list, err := e.Kube.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if !e.failed("other controllers", err) {
		for _, deployment := range list.Items {
			e.checkOther(deployment)
		}
	}
	events, err := e.Kube.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reasonProvisionNode})
	if e.failed("Events of GOATScaler", err) {
		return
	}
	for _, event := range events.Items {
		if event.Source.Component == componentGOATScaler || event.ReportingController == componentGOATScaler {
			e.report.add(OtherAutoscaler, Warning, componentGOATScaler, "ACK's node instant scaling (GOATScaler) buys nodes for pending pods of this cluster, so that both may buy for the same pods", mendOther)
		}
	}
}

func (e *clusterExam) checkOther(deployment appsv1.Deployment) {
	name, object := deployment.Name, deployment.Namespace+"/"+deployment.Name
	if ptr.Deref(deployment.Spec.Replicas, 1) == 0 || deployment.Namespace == e.Namespace && name == e.Name {
		return
	}
	switch {
	case name == nameSupervisor || deployment.Labels["app"] == nameSupervisor || deployment.Labels["app.kubernetes.io/name"] == nameSupervisor:
		e.report.add(JobSupervisor, Error, object, "Elastic-Job-Supervisor runs, too, and suspends and resumes the same jobs by the same annotations",
			fmt.Sprintf("Stop it: kubectl -n %s scale deployment %s --replicas=0. The autoscaler does its work", deployment.Namespace, name))
	case strings.Contains(name, nameGOATScaler), strings.Contains(name, nameClusterAutoscaler) && isAutoscaler(deployment):
		e.report.add(OtherAutoscaler, Warning, object, "another autoscaler runs, so that both may buy for the same pods", mendOther)
	}
}

// isAutoscaler tells a Cluster Autoscaler from what goes with one, such as an exporter of metrics or its Prometheus.
func isAutoscaler(deployment appsv1.Deployment) bool {
	return slices.ContainsFunc(deployment.Spec.Template.Spec.Containers, func(container corev1.Container) bool {
		return strings.Contains(container.Image, "autoscaler")
	})
}

// checkACK checks whether ACK's autoscaler manages a pool.
func (e *clusterExam) checkACK(ctx context.Context, cloud *cloudExam) {
	meta, err := e.Kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, ack.Meta, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || e.failed("whether ACK's autoscaler manages a pool", err) {
		return
	}
	for _, group := range cloud.groups {
		if cause := ack.Manages(meta, group.ID); cause != "" {
			e.report.addProblem(problem.ACKAutoscaler, Error, group.ID, cause)
		}
	}
}
