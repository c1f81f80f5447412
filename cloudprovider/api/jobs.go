package api

// Settings of a job. Its owner writes them on its object or on its pod templates, and the jobs framework reads them.
const (
	// AnnotationJob, on pods, is a name: pods of a namespace with the same name are one job, unless a job system that is
	// known owns them.
	AnnotationJob = "gpu-spot.autoscaling/job"
	// AnnotationRole, on pods, is worker, host or launcher. It overrides the role that the job system gives them.
	AnnotationRole = "gpu-spot.autoscaling/role"
	// AnnotationMinReplicas is the least number of workers, in place of that which the job's object states. It has no effect below what the
	// job system can do with. AnnotationMaxReplicas is the most, and has no effect above that of the job's object.
	AnnotationMinReplicas = "gpu-spot.autoscaling/min-replicas"
	AnnotationMaxReplicas = "gpu-spot.autoscaling/max-replicas"
	// AnnotationAwaitCheckpoint, on pods, is "true" or a duration: no pod of the job is evicted before the acknowledgement that
	// a checkpoint is saved, or before the duration is over.
	AnnotationAwaitCheckpoint = "gpu-spot.autoscaling/await-checkpoint"
	// AnnotationMaxWait is how long the job may wait for capacity, a duration.
	AnnotationMaxWait = "gpu-spot.autoscaling/max-wait"
	// AnnotationRecovery is with how many workers a suspended job is resumed: full (default) or dynamic.
	AnnotationRecovery = "gpu-spot.autoscaling/recovery"
	// LabelGrow, on the object of a job, is whether the job gets more workers than it asks for, up to its maximum: GrowNever (default), GrowFree
	// where nodes that exist have room for them, or GrowBuy, for which spot instances are bought, too.
	LabelGrow = "gpu-spot.autoscaling/grow"
	GrowNever = "never"
	GrowFree  = "free"
	GrowBuy   = "buy"
	// LabelKeepOffReclaiming, on pods or namespaces, is "true" if pods are to get a node affinity against LabelReclaiming.
	// The admission policy of the chart reads it.
	LabelKeepOffReclaiming = "gpu-spot.autoscaling/keep-off-reclaiming"
)

// The declaration of a gang. Its owner writes it as labels or annotations of the pods, and the processors read it.
const (
	// AnnotationGangName is the gang of the pod, AnnotationGangSize how many pods of the gang have to run together.
	AnnotationGangName = "gpu-spot.autoscaling/gang-name"
	AnnotationGangSize = "gpu-spot.autoscaling/gang-size"
	// AnnotationGangZones is GangZonesAny if the gang may be bought in several zones. It goes with any declaration of a gang.
	AnnotationGangZones = "gpu-spot.autoscaling/gang-zones"
	// GangZonesAny allows several zones.
	GangZonesAny = "any"
	// GangZonesOne is the default.
	GangZonesOne = "one"
)

// AnnotationOnDemandAfter, on a pod, is TagOnDemandAfter for this pod and all pools, or OnDemandNever. The owner of the pod writes it, and the
// processors read it.
const (
	AnnotationOnDemandAfter = "gpu-spot.autoscaling/on-demand-after"
	OnDemandNever           = "never"
	// AnnotationDeadline, on a pod, is when its job has to be over, in RFC 3339; AnnotationWork is how much useful time the job needs from the creation
	// of the pod on, such as 24h. With both, on-demand instances are bought in time. The owner writes them, and the processors read them.
	AnnotationDeadline = "gpu-spot.autoscaling/deadline"
	AnnotationWork     = "gpu-spot.autoscaling/work"
	// AnnotationMoveToSpot, on a pod, is TagMoveToSpot for its job. The owner writes it, and the processors read it.
	AnnotationMoveToSpot = "gpu-spot.autoscaling/move-to-spot"
	// AnnotationCapacity, on a pod, is what may be bought for it: CapacitySpotOnly, which is OnDemandNever, CapacitySpotFirst (default) or
	// CapacityOnDemand. The owner writes it, and the processors read it.
	AnnotationCapacity = "gpu-spot.autoscaling/capacity"
	CapacitySpotOnly   = "spot-only"
	CapacitySpotFirst  = "spot-then-on-demand"
	CapacityOnDemand   = "on-demand"
	// AnnotationOnDemandFloor, on the pods of a job, is how many of them are to be on on-demand nodes: a number, or a share of them, such as 25%,
	// rounded up. The owner writes it, and the processors read it.
	AnnotationOnDemandFloor = "gpu-spot.autoscaling/on-demand-floor"
	// AnnotationValueOfTime, on a pod, is TagValueOfTime for this pod and all pools. The owner writes it, and the pricing model and package spotfirst
	// read it.
	AnnotationValueOfTime = "gpu-spot.autoscaling/value-of-time"
)

// How often a job is to save a checkpoint.
const (
	// AnnotationCheckpointTime, on a pod, is how long a checkpoint takes, a duration. Its owner writes it.
	AnnotationCheckpointTime = "gpu-spot.autoscaling/checkpoint-time"
	// AnnotationCheckpointInterval, on such a pod, is how long the job is advised to train from one checkpoint to the next, a duration. The
	// autoscaler writes it, and the job's processes read it through the downward API.
	AnnotationCheckpointInterval = "gpu-spot.autoscaling/checkpoint-interval"
	// AnnotationCheckpointIntervals, on a Node, lists the same of its pods, separated by commas: "<caller>=<duration>" by the address of the
	// pod, or CallerHost for those on the Node's network. The autoscaler writes it, and the node-agent reads it.
	AnnotationCheckpointIntervals = "gpu-spot.autoscaling/checkpoint-intervals"
)

// The handshake with a job whose nodes are reclaimed, on its pods. AnnotationReclaimDeadline belongs to it as well.
const (
	// AnnotationReclaimInstance is the reclaiming instance that the pod is on. Pods of the same job on other instances do not
	// have it. The reclaim controller writes and reads it.
	AnnotationReclaimInstance = "gpu-spot.autoscaling/reclaim-instance"
	// AnnotationCheckpointRequest is the id of a request for a checkpoint, "<Unix seconds>-<random>", with "-drill" after it if that is
	// a rehearsal, and "-last" at the end if it is the last request before the pods have to go. The reclaim controller writes it, and the
	// job's processes read it through the downward API.
	AnnotationCheckpointRequest = "gpu-spot.autoscaling/checkpoint-request"
	// AnnotationCheckpointAcknowledged acknowledges that the checkpoint is saved. The reclaim controller reads it.
	//
	// On any pod of the job it is the id of the request; the job writes it. On a Node it is a list that the node-agent writes
	// for the pods of that Node, separated by commas, the oldest first: "<id>@<caller>" or
	// "<namespace>/<pod>@<Unix seconds>@<caller>". The caller is the IP address that the acknowledgement came from, or
	// CallerHost.
	AnnotationCheckpointAcknowledged = "gpu-spot.autoscaling/checkpoint-acknowledged"
	// AnnotationAwaitedAcknowledgements, on a Node, lists the acknowledgements that are awaited from its pods, separated by
	// commas: "<caller>=<digest>" for each address of a pod that was asked, and for each text that it may send. That is the
	// id of the request, or "<namespace>/<pod>" for a pod that is not on the node's network. A digest is the first 32
	// hexadecimal digits of the SHA-256. The reclaim controller writes it, and the node-agent accepts no other
	// acknowledgements. The id itself is not in it, because it is the only proof that a pod on the node's network has.
	AnnotationAwaitedAcknowledgements = "gpu-spot.autoscaling/awaited-acknowledgements"
	// AnnotationTrainingStep, on a pod, is the step that its job has reached, and AnnotationCheckpointStep that of the last checkpoint that
	// is saved, both as whole numbers. A job that can write its pods may report them; the command drill reads them.
	AnnotationTrainingStep   = "gpu-spot.autoscaling/training-step"
	AnnotationCheckpointStep = "gpu-spot.autoscaling/checkpoint-step"
	// CallerHost stands for the node's own address, which all pods on the node's network share.
	CallerHost = "host"
)

// What the jobs framework writes on the object of a job that it suspends or shrinks, and removes when the job has all its
// workers again. The job supervisor reads it.
const (
	// LabelHeld is "suspended" or "shrunk".
	LabelHeld = "gpu-spot.autoscaling/held"
	// AnnotationHeldReason is why the job is held: reclaim or max-wait.
	AnnotationHeldReason = "gpu-spot.autoscaling/held-reason"
	// AnnotationHeldSince is when the job was suspended, or last shrunk.
	AnnotationHeldSince = "gpu-spot.autoscaling/held-since"
	// AnnotationHeldReplicas is how many workers the job asked for before it was held.
	AnnotationHeldReplicas = "gpu-spot.autoscaling/held-replicas"
	// AnnotationStopRequested is when the job was told to save its work and to stop, before it is suspended.
	// AnnotationHeldRestarts is how often it had been restarted by then, because its job system counts the stop as a failure.
	AnnotationStopRequested = "gpu-spot.autoscaling/stop-requested"
	AnnotationHeldRestarts  = "gpu-spot.autoscaling/held-restarts"
	// AnnotationHeldParts are the objects that the job consisted of, separated by commas. Some of their pods outlive them.
	AnnotationHeldParts = "gpu-spot.autoscaling/held-parts"
)

// How much of its work a job with a deadline has saved, on its object. Package jobs/progress writes and reads it; the owner may write it, too. On a pod,
// AnnotationWorkSaved counts in place of what is on the object: stand-ins have it, and the owner may write it.
const (
	// AnnotationWorkSaved is how much useful work is saved in checkpoints, a duration.
	AnnotationWorkSaved = "gpu-spot.autoscaling/work-saved"
	// AnnotationWorkSavedOf is AnnotationWork of its pods then. If they state another value since, all of that is left.
	AnnotationWorkSavedOf = "gpu-spot.autoscaling/work-saved-of"
	// AnnotationWorkSavedAt is when it was saved.
	AnnotationWorkSavedAt = "gpu-spot.autoscaling/work-saved-at"
)

// AnnotationGrownTo, on the object of a job, is to how many workers the job was grown last beyond what it asked for. The jobs framework
// writes it, and the job supervisor reads it: a job that has fewer since was made smaller by somebody, and is not grown again.
const AnnotationGrownTo = "gpu-spot.autoscaling/grown-to"

// AnnotationHostsRefreshed, on the launcher of an MPIJob, is when it was last written. The jobs framework writes it, because a
// change of the pod makes the kubelet update the files of its ConfigMaps. The value is not read.
const AnnotationHostsRefreshed = "gpu-spot.autoscaling/hosts-refreshed"

// Annotations of Elastic-Job-Supervisor (job-supervisor.kube-ai.io) on a TrainingJob of et-operator.
const (
	// AnnotationSupervisorMaxWait is AnnotationMaxWait in seconds. `arena submit etjob --max-wait-time` writes it, the jobs
	// framework reads it on jobs of every system.
	AnnotationSupervisorMaxWait = "job-supervisor.kube-ai.io/max-wait-time"
	// AnnotationSupervisorSpot, on a job and its pods, is "true" if the job listens on a port for the request to save its work
	// and to stop, which it gets before it is suspended. `arena submit etjob --spot-instance` writes it; the jobs framework and
	// the reclaim controller read it.
	AnnotationSupervisorSpot = "job-supervisor.kube-ai.io/spot-instance"
	// AnnotationSupervisorSuspended is "true" on a job that et-operator is to suspend. Elastic-Job-Supervisor or the jobs
	// framework writes it, et-operator and the jobs framework read it.
	AnnotationSupervisorSuspended = "job-supervisor.kube-ai.io/job-suspended"
	// AnnotationSupervisorStatus is "timeout" on a job whose maximum wait is over. Elastic-Job-Supervisor or the jobs framework
	// writes it, for the owner to read.
	AnnotationSupervisorStatus = "job-supervisor.kube-ai.io/job-status"
)

// Declarations of gangs by other projects, as labels or annotations of pods. The processors read them.
const (
	// AnnotationPodGroupName and AnnotationPodGroupMinAvailable are of ACK's version of the coscheduling plugin of
	// sigs.k8s.io/scheduler-plugins. `arena submit --gang` writes them.
	AnnotationPodGroupName         = "pod-group.scheduling.sigs.k8s.io/name"
	AnnotationPodGroupMinAvailable = "pod-group.scheduling.sigs.k8s.io/min-available"
	// AnnotationKoordinatorGangName and AnnotationKoordinatorGangMinAvailable are of koordinator.sh.
	AnnotationKoordinatorGangName         = "gang.scheduling.koordinator.sh/name"
	AnnotationKoordinatorGangMinAvailable = "gang.scheduling.koordinator.sh/min-available"
)

// LabelKueueQueue, on a job, is the queue of Kueue (sigs.k8s.io/kueue) that admits it. Only Kueue suspends and resumes such a
// job. Owners write it, the jobs framework reads it.
const LabelKueueQueue = "kueue.x-k8s.io/queue-name"

// LabelKueueJobUID, on a Workload of Kueue, is the UID of its job. Kueue writes it, and the jobs framework finds the Workload
// by it.
const LabelKueueJobUID = "kueue.x-k8s.io/job-uid"
