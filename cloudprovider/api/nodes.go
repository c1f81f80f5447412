package api

// What says that the instance of a Node is reclaimed. The reclaim controller writes all of it in one patch, and takes it off
// when the notice is withdrawn.
const (
	// TaintReclaim keeps new pods off; its value is the deadline in Unix seconds, its effect NoSchedule. Read by the
	// scheduler, and by the reclaim controller where the annotation cannot be read.
	//
	// Cluster Autoscaler strips taints with this prefix from the templates that it makes of Nodes (StatusTaintPrefix in
	// its utils/taints). Any other key would keep pods off the replacement as well.
	TaintReclaim = "status-taint.cluster-autoscaler.kubernetes.io/spot-reclaim"
	// LabelReclaiming is "true". Read by the provider and the job supervisor, and by node affinities: those keep away pods
	// that tolerate every taint.
	LabelReclaiming = "gpu-spot.autoscaling/reclaiming"
	// AnnotationReclaimDeadline is when the instance is released. Read by the reclaim controller and the node-agent.
	//
	// On a pod it is when the first of its job's nodes is released. The reclaim controller writes it there, and the job's
	// processes read it through the downward API.
	AnnotationReclaimDeadline = "gpu-spot.autoscaling/reclaim-deadline"
)

// Notes of the reclaim controller to itself on a Node: with them a new leader goes on where the last one stopped.
const (
	// AnnotationReclaimNoticed is when the notice was first seen.
	AnnotationReclaimNoticed = "gpu-spot.autoscaling/reclaim-noticed"
	// AnnotationReclaimStated is "true" where the source stated the deadline: it is not an estimate.
	AnnotationReclaimStated = "gpu-spot.autoscaling/reclaim-stated"
	// AnnotationReclaimSource is the source that the deadline is from: ecs-poll, node-agent, push or condition.
	AnnotationReclaimSource = "gpu-spot.autoscaling/reclaim-source"
	// AnnotationReclaimConfirmed is "true" where another source has confirmed a notice that was pushed first.
	AnnotationReclaimConfirmed = "gpu-spot.autoscaling/reclaim-confirmed"
	// AnnotationReclaimCordoned is "true" where the controller made the Node unschedulable, and may undo that.
	AnnotationReclaimCordoned = "gpu-spot.autoscaling/reclaim-cordoned"
	// AnnotationReclaimDrained is when the Node was first without pods.
	AnnotationReclaimDrained = "gpu-spot.autoscaling/reclaim-drained"
	// AnnotationReclaimForced is "true" where pods were deleted instead of evicted.
	AnnotationReclaimForced = "gpu-spot.autoscaling/reclaim-forced"
	// AnnotationReclaimCancelled is when the last notice was withdrawn. What sources said before counts no more: a condition
	// that nobody takes off, an event that is delivered again. For a while what is pushed is held until it is confirmed.
	AnnotationReclaimCancelled = "gpu-spot.autoscaling/reclaim-cancelled"
)

// What sources of notices write on a Node, so that it outlives whoever wrote it. The reclaim controller reads it.
const (
	// AnnotationNoticePush is the deadline of a pushed notice, AnnotationNoticePushReceived when that came in. Both are
	// written by the replica that it was pushed to.
	AnnotationNoticePush         = "gpu-spot.autoscaling/notice-push"
	AnnotationNoticePushReceived = "gpu-spot.autoscaling/notice-push-received"
	// AnnotationNoticeAgent is the deadline that the metadata of the instance state. The node-agent writes it, and takes it
	// off when they do not any more.
	AnnotationNoticeAgent = "gpu-spot.autoscaling/notice-agent"
	// ConditionInstanceExpired is True while the instance is to be released. The node-problem-detector of ACK writes it.
	ConditionInstanceExpired = "InstanceExpired"
)

const (
	// AnnotationGiveBack is on a Node that is cordoned to be given back: the job for which it was bought, and since when,
	// "<ref>@<time>". The job supervisor writes and reads it.
	AnnotationGiveBack = "gpu-spot.autoscaling/give-back"
	// AnnotationRemoved is when ESS accepted to remove the instance of the Node. The reclaim controller writes it, and deletes
	// the Node once ECS does not know the instance any more; the provider reads it to leave the Node out of account.
	AnnotationRemoved = "gpu-spot.autoscaling/removed"
	// AnnotationWholePool is on the template of a pool that cannot be targeted, and holds the scaling group. The provider
	// writes it, and reads it to price the template; it is never on a Node of the cluster.
	AnnotationWholePool = "gpu-spot.autoscaling/whole-pool"
	// LabelPurchaseOption is "spot" or "on-demand". Operators write it on Nodes that lack LabelSpotStrategy; the pricing
	// model, the poll for notices and the affinity of the node-agent read it.
	LabelPurchaseOption = "gpu-spot.autoscaling/purchase-option"
)
