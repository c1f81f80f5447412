package doctor

import (
	"context"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/ess/problem"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/ack"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/jobsupervisor"
)

const (
	// nameClusterAutoscaler is in the name of the Deployment of Cluster Autoscaler, whose chart calls it <release>-<cloud>-cluster-autoscaler,
	// and the name of its Lease (--leader-elect-resource-name).
	nameClusterAutoscaler = "cluster-autoscaler"
	// freshLease is how old the last renewal of a Lease may be whose holder lives; leases of autoscalers are renewed every few seconds. It
	// leaves room for a clock that is wrong.
	freshLease = 5 * time.Minute

	sayOther  = "another autoscaler runs, so that both may buy for the same pods"
	mendOther = "Turn it off, or keep its nodes and these apart by taints, or by node selectors of the pods"
)

// checkOthers looks for controllers that do the same work.
func (e *clusterExam) checkOthers(ctx context.Context) {
	deployments, err := e.Kube.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if !e.failed("other controllers", err) {
		for _, deployment := range deployments.Items {
			e.checkOther(deployment)
		}
	}
	leases, err := e.Kube.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if !e.failed("other autoscalers that run outside of the cluster", err) {
		for _, lease := range leases.Items {
			e.checkLease(lease)
		}
	}
}

func (e *clusterExam) checkOther(deployment appsv1.Deployment) {
	name, object := deployment.Name, deployment.Namespace+"/"+deployment.Name
	if ptr.Deref(deployment.Spec.Replicas, 1) == 0 || deployment.Namespace == e.Namespace && name == e.Name {
		return
	}
	switch {
	case jobsupervisor.Is(&deployment):
		e.report.add(JobSupervisor, Error, object, jobsupervisor.Cause, jobsupervisor.Mend(deployment.Namespace, name))
	case name == ack.GOATScaler, strings.Contains(name, nameClusterAutoscaler) && runsAutoscaler(deployment) && !e.serves: // else it buys here
		e.report.add(OtherAutoscaler, Warning, object, sayOther, mendOther)
	}
}

// runsAutoscaler tells a Cluster Autoscaler from what goes with one, such as an exporter of its metrics.
func runsAutoscaler(deployment appsv1.Deployment) bool {
	return slices.ContainsFunc(deployment.Spec.Template.Spec.Containers, func(container corev1.Container) bool {
		return strings.Contains(container.Image, "autoscaler")
	})
}

// checkLease finds ACK's autoscalers, which run outside of managed clusters: only their Leases are seen in those.
func (e *clusterExam) checkLease(lease coordinationv1.Lease) {
	isOurs := lease.Namespace == e.Namespace && lease.Name == e.Name
	if isOurs || lease.Name != ack.GOATScaler && (lease.Name != nameClusterAutoscaler || e.serves) {
		return
	}
	if renewed := lease.Spec.RenewTime; renewed != nil && e.Clock.Since(renewed.Time) < freshLease {
		e.report.add(OtherAutoscaler, Warning, lease.Namespace+"/"+lease.Name, sayOther, mendOther)
	}
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
