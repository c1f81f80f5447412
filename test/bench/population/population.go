// Package population fills a test cluster with Nodes and pods as a big cluster has them.
package population

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/test/alisim/market"
	"gpu-spot-autoscaler/test/alisim/nodes"
	"gpu-spot-autoscaler/test/cluster"
	"gpu-spot-autoscaler/test/rig"
)

const (
	// daemonsPerNode of a node's pods are of DaemonSets, one trains on all GPUs of the node, the others are of ReplicaSets.
	daemonsPerNode = 6
	// podsPerReplicaSet spreads the latter over as many ReplicaSets as a big cluster has.
	podsPerReplicaSet = 250
	// registrars is how many Nodes are registered at once.
	registrars = 64
	// idleOneIn is of how many nodes one has no pod that uses its GPUs. Scale-down looks at those.
	idleOneIn = 20
)

// RegisterNodes makes a Node, as ACK would, of every instance of the cloud, and returns them when they are ready.
func RegisterNodes(ctx context.Context, r *rig.Rig) ([]corev1.Node, error) {
	client, err := kubernetes.NewForConfig(nodes.Tune(r.Cluster.AdminConfig()))
	if err != nil {
		return nil, err
	}
	registrar := nodes.NewRegistrar(client, clock.RealClock{})
	catalogue := market.Catalogue()
	instances := r.Cloud.Instances()
	var registrations errgroup.Group
	registrations.SetLimit(registrars)
	for _, instance := range instances {
		registrations.Go(func() error {
			t := catalogue[instance.InstanceType]
			return registrar.Up(ctx, nodes.Machine{
				InstanceID: instance.ID, Region: r.World.Region, Zone: instance.Zone, InstanceType: t.ID,
				SpotStrategy: instance.SpotStrategy, PoolID: instance.ScalingGroupID, VCPU: t.VCPU, MemoryGiB: t.MemoryGiB,
				GPUs: t.GPUs, GPUModel: t.GPUModel, GPUMemGiB: t.GPUMemGiB,
			})
		})
	}
	if err := registrations.Wait(); err != nil {
		return nil, err
	}
	var list *corev1.NodeList
	err = wait.PollUntilContextTimeout(ctx, time.Second, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err = client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == len(instances) && !slices.ContainsFunc(list.Items, IsUnready), err
	})
	if err != nil {
		return nil, fmt.Errorf("wait for %d nodes: %w", len(instances), err)
	}
	return list.Items, nil
}

// AwaitGPUs returns the Nodes when there are n and each has so many GPUs.
func AwaitGPUs(ctx context.Context, r *rig.Rig, n, gpus int) (nodes []corev1.Node, err error) {
	err = wait.PollUntilContextTimeout(ctx, time.Second, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err := r.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		nodes = slices.DeleteFunc(list.Items, func(node corev1.Node) bool {
			has := node.Status.Allocatable["nvidia.com/gpu"]
			return IsUnready(node) || has.Value() != int64(gpus)
		})
		return len(nodes) == n, nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for %d nodes with GPUs, there are %d: %w", n, len(nodes), err)
	}
	return nodes, nil
}

// Fill makes Nodes of all instances, with perNode pods on each. Once the nodes are up, what would take the pods apart or run them is
// stopped for good, and the scheduler until they are there, since it would only slow things down.
func Fill(ctx context.Context, r *rig.Rig, perNode int, logf func(format string, args ...any)) error {
	began := time.Now()
	nodes, err := RegisterNodes(ctx, r)
	if err != nil {
		return err
	}
	logf("%d nodes are up after %.0f s", len(nodes), time.Since(began).Seconds())
	for _, component := range []string{cluster.ControllerManager, cluster.Kwok, cluster.Scheduler} {
		if err := r.Cluster.Kill(ctx, component); err != nil {
			return err
		}
	}
	if err := CreatePods(ctx, r, nodes, perNode); err != nil {
		return err
	}
	logf("%d pods are on them after %.0f s", len(nodes)*perNode, time.Since(began).Seconds())
	return r.Cluster.Restart(ctx, cluster.Scheduler)
}

// IsUnready says whether a Node is not ready for pods. A new one has a taint until the controller-manager has seen that it is ready.
func IsUnready(node corev1.Node) bool {
	return len(node.Spec.Taints) > 0 || !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// CreatePods puts pods on all nodes. Nobody runs them, so they have no status, which the autoscaler would not keep anyway, and
// nobody looks after them: the controllers have to be stopped before.
func CreatePods(ctx context.Context, r *rig.Rig, nodes []corev1.Node, perNode int) error {
	for service := range perNode {
		pods, err := residents(ctx, r.Client, nodes, service)
		if err != nil {
			return err
		}
		if err := r.Cluster.CreatePods(ctx, pods); err != nil {
			return err
		}
	}
	return nil
}

// residents are the pods of one service, one on each node.
func residents(ctx context.Context, client kubernetes.Interface, nodes []corev1.Node, service int) (pods []*corev1.Pod, err error) {
	var owner *metav1.OwnerReference
	for i := range nodes {
		if i == 0 || service >= daemonsPerNode && i%podsPerReplicaSet == 0 {
			if owner, err = createOwner(ctx, client, service, i); err != nil {
				return nil, err
			}
		}
		pod := newResident(&nodes[i], service)
		pod.OwnerReferences = []metav1.OwnerReference{*owner}
		if service == daemonsPerNode && i%idleOneIn != 0 {
			trainOn(pod, &nodes[i])
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

// createOwner makes the DaemonSet of a service on all nodes, or the ReplicaSet of a service from node i on.
func createOwner(ctx context.Context, client kubernetes.Interface, service, i int) (*metav1.OwnerReference, error) {
	name := fmt.Sprintf("service-%d-%d", service, i)
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"set": name}},
		Spec:       corev1.PodSpec{Containers: newResident(&corev1.Node{}, service).Spec.Containers},
	}
	meta := metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault}
	selector := &metav1.LabelSelector{MatchLabels: template.Labels}
	if service < daemonsPerNode {
		set, err := client.AppsV1().DaemonSets(meta.Namespace).Create(ctx, &appsv1.DaemonSet{
			ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template},
		}, metav1.CreateOptions{})
		return metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("DaemonSet")), err
	}
	set, err := client.AppsV1().ReplicaSets(meta.Namespace).Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](podsPerReplicaSet), Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	return metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet")), err
}

// newResident is a pod as a service in a big cluster has it: labels, annotations, some environment, requests, a probe.
func newResident(node *corev1.Node, i int) *corev1.Pod {
	var env []corev1.EnvVar
	for n := range 8 {
		env = append(env, corev1.EnvVar{Name: fmt.Sprintf("SERVICE_SETTING_%d", n), Value: fmt.Sprintf("value-of-setting-%d.example.internal", n)})
	}
	app := fmt.Sprintf("service-%d", i)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%s", app, node.Name), Namespace: metav1.NamespaceDefault,
			Labels:      map[string]string{"app.kubernetes.io/name": app, "app.kubernetes.io/instance": app, "pod-template-hash": "6d4cf56db6"},
			Annotations: map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
		},
		Spec: corev1.PodSpec{
			NodeName: node.Name,
			Containers: []corev1.Container{{
				Name: "service", Image: "registry.example.internal/services/" + app + ":v1.24.3", Env: env,
				Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("20m"), corev1.ResourceMemory: resource.MustParse("48Mi"),
				}},
			}},
		},
	}
}

// trainOn has the pod use all GPUs of its node.
func trainOn(pod *corev1.Pod, node *corev1.Node) {
	const gpu = corev1.ResourceName("nvidia.com/gpu")
	pod.Spec.Containers[0].Resources.Requests[gpu] = node.Status.Allocatable[gpu]
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{gpu: node.Status.Allocatable[gpu]}
}
