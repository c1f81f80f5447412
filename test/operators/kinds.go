package operators

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The resources of the systems.
var (
	JobSets           = schema.GroupVersionResource{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"}
	TrainJobs         = schema.GroupVersionResource{Group: "trainer.kubeflow.org", Version: "v1alpha1", Resource: "trainjobs"}
	LeaderWorkerSets  = schema.GroupVersionResource{Group: "leaderworkerset.x-k8s.io", Version: "v1", Resource: "leaderworkersets"}
	RayClusters       = schema.GroupVersionResource{Group: "ray.io", Version: "v1", Resource: "rayclusters"}
	RayJobs           = schema.GroupVersionResource{Group: "ray.io", Version: "v1", Resource: "rayjobs"}
	Workloads         = schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta1", Resource: "workloads"}
	MPIJobs           = schema.GroupVersionResource{Group: "kubeflow.org", Version: "v2beta1", Resource: "mpijobs"}
	PyTorchJobs       = schema.GroupVersionResource{Group: "kubeflow.org", Version: "v1", Resource: "pytorchjobs"}
	TFJobs            = schema.GroupVersionResource{Group: "kubeflow.org", Version: "v1", Resource: "tfjobs"}
	JAXJobs           = schema.GroupVersionResource{Group: "kubeflow.org", Version: "v1", Resource: "jaxjobs"}
	KubeflowMPIJobsV1 = schema.GroupVersionResource{Group: "kubeflow.org", Version: "v1", Resource: "mpijobs"}
)

// Labels that the operators read or write.
const (
	// LabelJobSet names the JobSet of a batch Job and of its pods.
	LabelJobSet = "jobset.sigs.k8s.io/jobset-name"
	// LabelQueue names the queue of Kueue that a job is in.
	LabelQueue = "kueue.x-k8s.io/queue-name"
	// LabelLeaderWorkerSet names the LeaderWorkerSet of a pod.
	LabelLeaderWorkerSet = "leaderworkerset.sigs.k8s.io/name"
)

const queue = `
{apiVersion: kueue.x-k8s.io/v1beta1, kind: ResourceFlavor, metadata: {name: %[1]s}}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: %[1]s}
spec:
  namespaceSelector: {}
  resourceGroups: [{coveredResources: [nvidia.com/gpu], flavors: [{name: %[1]s, resources: [{name: nvidia.com/gpu, nominalQuota: %[3]d}]}]}]
---
{apiVersion: kueue.x-k8s.io/v1beta1, kind: LocalQueue, metadata: {name: %[1]s, namespace: %[2]s}, spec: {clusterQueue: %[1]s}}
`

// Queue returns, as YAML, a queue of Kueue's in the namespace that has room for so many GPUs.
func Queue(name, namespace string, gpus int) string { return fmt.Sprintf(queue, name, namespace, gpus) }
