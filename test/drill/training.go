package drill

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/test/rig"
	"gpu-spot-autoscaler/test/standin"
)

// createTraining makes the TrainingJob as Arena does. Its workers tolerate every taint, and are kept off reclaiming nodes by
// the affinity that the documentation recommends.
func (j Job) createTraining(ctx context.Context, r *rig.Rig) error {
	worker := j.template()
	worker.Spec.TerminationGracePeriodSeconds = ptr.To[int64](5)
	worker.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	worker.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: api.LabelReclaiming, Operator: corev1.NodeSelectorOpDoesNotExist}},
		}}},
	}}
	launcher := corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		NodeSelector: map[string]string{LabelSystem: "true"},
		Containers:   []corev1.Container{{Name: "et", Image: "train"}},
	}}
	replicas := func(template corev1.PodTemplateSpec) (map[string]any, error) {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&template)
		return map[string]any{"replicas": int64(1), "template": content}, err
	}
	launcherSpec, err := replicas(launcher)
	if err != nil {
		return err
	}
	workerSpec, err := replicas(worker)
	if err != nil {
		return err
	}
	workerSpec["replicas"], workerSpec["minReplicas"], workerSpec["maxReplicas"] = int64(j.Workers), int64(j.Min), int64(j.Workers)
	workerSpec["restartPolicy"] = "Always"
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": standin.TrainingJobs.GroupVersion().String(), "kind": "TrainingJob",
		"spec": map[string]any{
			"restartPolicy": "OnFailure", "backoffLimit": int64(backoffLimit), "cleanPodPolicy": "Running",
			"etReplicaSpecs": map[string]any{"launcher": launcherSpec, "worker": workerSpec},
		},
	}}
	return j.createObject(ctx, r, standin.TrainingJobs, object)
}
