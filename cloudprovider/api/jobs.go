package api

// What an owner says about a job, on its object or on its pod templates. The jobs framework reads it.
const (
	// AnnotationJob, on pods, makes those of a namespace with the same value one job, where no known system does.
	AnnotationJob = "gpu-spot.autoscaling/job"
	// AnnotationRole, on pods, is worker, host or launcher. It overrides what the system says.
	AnnotationRole = "gpu-spot.autoscaling/role"
	// AnnotationMinReplicas and AnnotationMaxReplicas bound the number of workers, and narrow what the system says.
	AnnotationMinReplicas = "gpu-spot.autoscaling/min-replicas"
	AnnotationMaxReplicas = "gpu-spot.autoscaling/max-replicas"
	// AnnotationAwaitCheckpoint, on pods, is "true", or for how long at most (a duration): no pod of the job is evicted
	// before the acknowledgement that a checkpoint is saved.
	AnnotationAwaitCheckpoint = "gpu-spot.autoscaling/await-checkpoint"
	// AnnotationMaxWait is how long the job may wait for capacity, a duration.
	AnnotationMaxWait = "gpu-spot.autoscaling/max-wait"
	// AnnotationRecovery is with how many workers a suspended job comes back: full (default) or dynamic.
	AnnotationRecovery = "gpu-spot.autoscaling/recovery"
	// LabelKeepOffReclaiming, on pods or namespaces, is "true": pods get a node affinity against LabelReclaiming. The
	// admission policy of the chart reads it.
	LabelKeepOffReclaiming = "gpu-spot.autoscaling/keep-off-reclaiming"
)

// A gang as its owner declares it, as labels or annotations of its pods. The processors read them.
const (
	// AnnotationGangName is the gang that the pod belongs to, AnnotationGangSize how many of its pods have to run together.
	AnnotationGangName = "gpu-spot.autoscaling/gang-name"
	AnnotationGangSize = "gpu-spot.autoscaling/gang-size"
)

// The handshake with a job whose nodes are reclaimed, on its pods; AnnotationReclaimDeadline belongs to it.
const (
	// AnnotationReclaimInstance is the instance that the pod is about to lose. The reclaim controller writes and reads it;
	// pods of the same job on other instances do not have it.
	AnnotationReclaimInstance = "gpu-spot.autoscaling/reclaim-instance"
	// AnnotationCheckpointRequest is the id of a request for a checkpoint, "<Unix seconds>-<random>". The reclaim controller
	// writes it, and the job's processes read it through the downward API.
	AnnotationCheckpointRequest = "gpu-spot.autoscaling/checkpoint-request"
	// AnnotationCheckpointAcknowledged acknowledges that the checkpoint is saved. The reclaim controller reads it.
	//
	// On any pod of the job it is the id of the request, written by the job. On a Node it is a list, written by the
	// node-agent for the pods of that Node: separated by commas, the oldest first, each "<id>@<caller>" or
	// "<namespace>/<pod>@<Unix seconds>@<caller>". The caller is the IP address that the acknowledgement came from, or
	// CallerHost.
	AnnotationCheckpointAcknowledged = "gpu-spot.autoscaling/checkpoint-acknowledged"
	// AnnotationAwaitedAcknowledgements, on a Node, is from whom there an acknowledgement is awaited, separated by commas:
	// "<caller>=<digest>" for each address of a pod that was asked, and for each of what it may say: the id of the request,
	// or "<namespace>/<pod>" if it is not on the node's network. A digest is the first 32 hexadecimal digits of the SHA-256.
	// The reclaim controller writes it, and the node-agent takes no other acknowledgements. The id itself is not in it, since
	// it is all that a pod on the node's network can show.
	AnnotationAwaitedAcknowledgements = "gpu-spot.autoscaling/awaited-acknowledgements"
	// CallerHost stands for the node's own address, which all pods on its network share.
	CallerHost = "host"
)

// What the jobs framework writes on the object of a job that it suspended or shrank, and takes off when the job is whole
// again. The job supervisor reads it.
const (
	// LabelHeld is "suspended" or "shrunk".
	LabelHeld = "gpu-spot.autoscaling/held"
	// AnnotationHeldReason is why: reclaim or max-wait.
	AnnotationHeldReason = "gpu-spot.autoscaling/held-reason"
	// AnnotationHeldSince is when the job was suspended, or last shrunk.
	AnnotationHeldSince = "gpu-spot.autoscaling/held-since"
	// AnnotationHeldReplicas is how many workers the job asked for before.
	AnnotationHeldReplicas = "gpu-spot.autoscaling/held-replicas"
	// AnnotationStopRequested is when the job was told to save its work and to stop, before it is suspended, and
	// AnnotationHeldRestarts how often it had been restarted by then: its end counts as a failure for its system.
	AnnotationStopRequested = "gpu-spot.autoscaling/stop-requested"
	AnnotationHeldRestarts  = "gpu-spot.autoscaling/held-restarts"
	// AnnotationHeldParts are the objects that the job consisted of, separated by commas: the pods of some outlive them.
	AnnotationHeldParts = "gpu-spot.autoscaling/held-parts"
)

// AnnotationHostsRefreshed, on the launcher of an MPIJob, is when it was last touched, so that its kubelet brings its
// ConfigMaps up to date. The jobs framework writes it; nobody reads it.
const AnnotationHostsRefreshed = "gpu-spot.autoscaling/hosts-refreshed"

// Annotations of Elastic-Job-Supervisor (job-supervisor.kube-ai.io) on a TrainingJob of et-operator.
const (
	// AnnotationSupervisorMaxWait is AnnotationMaxWait in seconds. `arena submit etjob --max-wait-time` writes it, the jobs
	// framework reads it on jobs of every system.
	AnnotationSupervisorMaxWait = "job-supervisor.kube-ai.io/max-wait-time"
	// AnnotationSupervisorSpot is "true" on a job, and on its pods, that is to be told on a port of its own to save its work and
	// to stop, before it is suspended. `arena submit etjob --spot-instance` writes it; the jobs framework and the reclaim
	// controller read it.
	AnnotationSupervisorSpot = "job-supervisor.kube-ai.io/spot-instance"
	// AnnotationSupervisorSuspended is "true" on a job that is to be suspended. Elastic-Job-Supervisor or the jobs framework
	// writes it, et-operator and the jobs framework read it.
	AnnotationSupervisorSuspended = "job-supervisor.kube-ai.io/job-suspended"
	// AnnotationSupervisorStatus is "timeout" on a job whose maximum wait was over. Elastic-Job-Supervisor or the jobs
	// framework writes it, for the owner to read.
	AnnotationSupervisorStatus = "job-supervisor.kube-ai.io/job-status"
)

// How others declare gangs, as labels or annotations of pods. The processors read them.
const (
	// AnnotationPodGroupName and AnnotationPodGroupMinAvailable are of the coscheduling plugin of
	// sigs.k8s.io/scheduler-plugins as ACK has it; `arena submit --gang` writes them.
	AnnotationPodGroupName         = "pod-group.scheduling.sigs.k8s.io/name"
	AnnotationPodGroupMinAvailable = "pod-group.scheduling.sigs.k8s.io/min-available"
	// AnnotationKoordinatorGangName and AnnotationKoordinatorGangMinAvailable are of koordinator.sh.
	AnnotationKoordinatorGangName         = "gang.scheduling.koordinator.sh/name"
	AnnotationKoordinatorGangMinAvailable = "gang.scheduling.koordinator.sh/min-available"
)

// LabelKueueQueue on a job says that Kueue (sigs.k8s.io/kueue) admits it: whether the job is suspended is Kueue's alone to
// say. Owners write it, the jobs framework reads it.
const LabelKueueQueue = "kueue.x-k8s.io/queue-name"

// LabelKueueJobUID on a Workload of Kueue's is the UID of its job. Kueue writes it, the jobs framework finds the Workload by it.
const LabelKueueJobUID = "kueue.x-k8s.io/job-uid"
