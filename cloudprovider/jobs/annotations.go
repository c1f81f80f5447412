package jobs

// Annotations and labels that users set on a job or on its pod templates.
const (
	// AnnotationJob makes pods of no known system one job: pods of a namespace with the same value belong together.
	AnnotationJob = "gpu-spot.autoscaling/job"
	// AnnotationRole is worker, host or launcher. It overrides what the system says.
	AnnotationRole = "gpu-spot.autoscaling/role"
	// AnnotationMinReplicas and AnnotationMaxReplicas bound the workers of a job whose system does not say.
	AnnotationMinReplicas = "gpu-spot.autoscaling/min-replicas"
	AnnotationMaxReplicas = "gpu-spot.autoscaling/max-replicas"
	// AnnotationAwaitCheckpoint on a pod is "true", or for how long at most (a Go duration): eviction waits for the word
	// that a checkpoint was saved.
	AnnotationAwaitCheckpoint = "gpu-spot.autoscaling/await-checkpoint"
	// AnnotationMaxWait is how long the job may wait for capacity, a Go duration; AnnotationSupervisorMaxWait is the same
	// in seconds, as Elastic-Job-Supervisor has it.
	AnnotationMaxWait           = "gpu-spot.autoscaling/max-wait"
	AnnotationSupervisorMaxWait = "job-supervisor.kube-ai.io/max-wait-time"
	// AnnotationRecovery is full (default) or dynamic.
	AnnotationRecovery = "gpu-spot.autoscaling/recovery"
)

// Annotations that are written on pods.
const (
	// AnnotationDeadline is when the first of the job's nodes is released, RFC 3339 UTC; the same key as on Nodes.
	AnnotationDeadline = "gpu-spot.autoscaling/reclaim-deadline"
	// AnnotationCheckpointRequest is the id of the request; the job answers by AnnotationCheckpointDone with the same
	// value on any of its pods.
	AnnotationCheckpointRequest = "gpu-spot.autoscaling/checkpoint-request"
	AnnotationCheckpointDone    = "gpu-spot.autoscaling/checkpoint-done"
)

// What is written on a job's object.
const (
	// LabelHeld is "suspended" on a job that we suspended, "shrunk" on one that we shrank; it is taken off when the job
	// is whole again.
	LabelHeld = "gpu-spot.autoscaling/held"
	// AnnotationHeldReason is a Reason. AnnotationHeldSince, RFC 3339, is when the job was suspended, or last shrunk.
	AnnotationHeldReason = "gpu-spot.autoscaling/held-reason"
	AnnotationHeldSince  = "gpu-spot.autoscaling/held-since"
	// AnnotationHeldReplicas is how many workers the job asked for before.
	AnnotationHeldReplicas = "gpu-spot.autoscaling/held-replicas"
	// AnnotationHeldParts are the Parts that the job had, separated by commas: the pods of some outlive them.
	AnnotationHeldParts = "gpu-spot.autoscaling/held-parts"

	HeldSuspended = "suspended"
	HeldShrunk    = "shrunk"
)
