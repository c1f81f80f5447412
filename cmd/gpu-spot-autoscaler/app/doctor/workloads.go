package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	v1helper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	kubepod "k8s.io/kubernetes/pkg/api/v1/pod"
	storageutil "k8s.io/kubernetes/pkg/apis/storage/util"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// workloads examines the pods that there are.
type workloads struct {
	*clusterExam
	// pools are nil if the cloud was not examined.
	pools   map[string]*pool.Pool
	systems []jobs.System
	// classes are the storage classes, nil if they could not be read.
	classes *storagev1.StorageClassList
}

func (w *workloads) examine(ctx context.Context) {
	classes, err := w.Kube.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if !w.failed("storage classes", err) {
		w.classes = classes
	}
	pods := pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) {
		return w.Kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
	}))
	w.failed("pods", pods.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		if pod := object.(*corev1.Pod); !kubepod.IsPodTerminal(pod) {
			w.examinePod(ctx, pod)
		}
		return nil
	}))
}

func (w *workloads) examinePod(ctx context.Context, pod *corev1.Pod) {
	job, role := w.member(pod)
	if role == jobs.RoleLauncher {
		w.checkLauncher(job, pod)
	}
	if awaited := pod.Annotations[api.AnnotationAwaitCheckpoint]; awaited != "" && awaited != "false" && w.lacksAgent {
		w.checkDownwardAPI(job, pod)
	}
	if pod.Spec.NodeName == "" {
		w.checkClaims(ctx, pod)
	}
}

// member returns the job of the pod, as an object of a finding, and its role.
func (w *workloads) member(pod *corev1.Pod) (job string, role jobs.Role) {
	job, role = pod.Namespace+"/"+pod.Name, jobs.RoleWorker
	for _, system := range w.systems {
		if name, known, ok := system.Member(pod); ok {
			job, role = jobs.NewRef(system.Name(), pod.Namespace, name).String(), known
			break
		}
	}
	if own := jobs.Role(pod.Annotations[api.AnnotationRole]); own != "" {
		role = own
	}
	return job, role
}

// checkLauncher checks that the launcher of a job is kept off spot nodes.
func (w *workloads) checkLauncher(job string, pod *corev1.Pod) {
	for _, p := range w.pools {
		if p.Spot && slices.ContainsFunc(p.Offerings, func(o *pool.Offering) bool { return mayLandOn(pod, o.Template) }) {
			w.report.add(LauncherOnSpot, Warning, job, "its launcher may be placed on spot nodes, and the job ends or is suspended with the loss of it",
				fmt.Sprintf("Give the launcher a node selector or an affinity for other nodes (arena: --launcher-selector), such as against the label %s", api.LabelSpotStrategy))
			return
		}
	}
}

// mayLandOn returns whether neither the affinity of the pod nor taints of the node keep it off.
func mayLandOn(pod *corev1.Pod, node *corev1.Node) bool {
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	if err != nil || !matches {
		return false
	}
	_, repelled := v1helper.FindMatchingUntoleratedTaint(node.Spec.Taints, pod.Spec.Tolerations, func(taint *corev1.Taint) bool {
		return taint.Effect != corev1.TaintEffectPreferNoSchedule
	})
	return !repelled
}

// checkDownwardAPI checks that a pod for whose acknowledgement its eviction waits can read that it was asked. Without the node-agent the only
// way is a volume: variables of the environment are never refreshed.
func (w *workloads) checkDownwardAPI(job string, pod *corev1.Pod) {
	volume, found := requestVolume(pod)
	const mend = "Mount the annotation " + api.AnnotationCheckpointRequest + " by a downward API volume, as in docs/jobs.md, or install the node-agent"
	switch {
	case !found:
		w.report.add(NoDownwardAPI, Warning, job, "its eviction waits for an acknowledgement, and it mounts no file in which the request for one appears", mend)
	case !isRefreshed(pod, volume):
		w.report.add(NoDownwardAPI, Warning, job, fmt.Sprintf("its eviction waits for an acknowledgement, and the volume %s, in which the request for one appears, is mounted nowhere or with subPath, "+
			"so that the file is never refreshed", volume), mend)
	}
}

// requestVolume returns the name of the volume in which a request for a checkpoint appears.
func requestVolume(pod *corev1.Pod) (name string, found bool) {
	hasRequest := func(items []corev1.DownwardAPIVolumeFile) bool {
		return slices.ContainsFunc(items, func(item corev1.DownwardAPIVolumeFile) bool {
			if item.FieldRef == nil {
				return false
			}
			path := item.FieldRef.FieldPath
			return path == "metadata.annotations" || strings.Contains(path, api.AnnotationCheckpointRequest) || strings.Contains(path, api.AnnotationReclaimDeadline)
		})
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.DownwardAPI != nil && hasRequest(volume.DownwardAPI.Items) {
			return volume.Name, true
		}
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.DownwardAPI != nil && hasRequest(source.DownwardAPI.Items) {
				return volume.Name, true
			}
		}
	}
	return "", false
}

// isRefreshed returns whether a container sees changes of the volume, which it does not with subPath
// (kubernetes.io/docs/concepts/storage/volumes/#downwardapi).
func isRefreshed(pod *corev1.Pod, volume string) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(container corev1.Container) bool {
		return slices.ContainsFunc(container.VolumeMounts, func(mount corev1.VolumeMount) bool {
			return mount.Name == volume && mount.SubPath == "" && mount.SubPathExpr == ""
		})
	})
}

// checkClaims checks that the claims of a pending pod can be bound.
func (w *workloads) checkClaims(ctx context.Context, pod *corev1.Pod) {
	if w.classes == nil {
		return
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim == nil {
			continue
		}
		claim, err := w.Kube.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, volume.PersistentVolumeClaim.ClaimName, metav1.GetOptions{})
		if w.failed("PersistentVolumeClaims of pending pods", err) || claim.Status.Phase == corev1.ClaimBound || claim.Spec.VolumeName != "" {
			continue
		}
		w.checkClaim(claim, pod)
	}
}

// checkClaim checks the storage class of an unbound claim. One whose class is "" waits for a volume that somebody makes.
func (w *workloads) checkClaim(claim *corev1.PersistentVolumeClaim, pod *corev1.Pod) {
	object := claim.Namespace + "/" + claim.Name
	const mend = "Name a storage class that exists; see kubectl get storageclass"
	switch class := claim.Spec.StorageClassName; {
	case class == nil && !slices.ContainsFunc(w.classes.Items, isDefault):
		w.report.add(NoStorageClass, Error, object, fmt.Sprintf("the claim names no storage class and none is the default, so that pod %s stays pending whatever is bought", pod.Name), mend)
	case class != nil && *class != "" && !slices.ContainsFunc(w.classes.Items, func(c storagev1.StorageClass) bool { return c.Name == *class }):
		w.report.add(NoStorageClass, Error, object, fmt.Sprintf("the claim names the storage class %s, which does not exist, so that pod %s stays pending whatever is bought", *class, pod.Name), mend)
	}
}

func isDefault(class storagev1.StorageClass) bool {
	return storageutil.IsDefaultAnnotation(class.ObjectMeta)
}
