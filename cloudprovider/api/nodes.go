package api

// The mark of a reclaiming Node. The reclaim controller writes all of it in one patch, and removes it when the notice is
// withdrawn.
const (
	// TaintReclaim keeps new pods off the Node. Its value is the deadline in Unix seconds, its effect NoSchedule. The scheduler
	// reads it, and so does the reclaim controller if the annotation cannot be parsed.
	//
	// Cluster Autoscaler strips taints with this prefix from the templates that it makes of Nodes (StatusTaintPrefix in
	// its utils/taints). A taint with any other key would keep pods off the replacement as well.
	TaintReclaim = "status-taint.cluster-autoscaler.kubernetes.io/spot-reclaim"
	// LabelReclaiming is "true". The provider and the job supervisor read it, and so do node affinities, which keep off pods
	// that tolerate every taint.
	LabelReclaiming = "gpu-spot.autoscaling/reclaiming"
	// AnnotationReclaimDeadline, on a Node, is when its instance is released. The reclaim controller and the node-agent read it.
	//
	// On a pod it is when the first of its job's nodes is released. The reclaim controller writes it there, and the job's
	// processes read it through the downward API.
	AnnotationReclaimDeadline = "gpu-spot.autoscaling/reclaim-deadline"
)

// IsReclaiming returns whether the labels are those of a reclaiming Node. It is for those who do not know the notices; whether a Node
// has any of the marks is for cluster.IsMarked to say.
func IsReclaiming(labels map[string]string) bool { return labels[LabelReclaiming] == "true" }

// IsOnDemand returns whether the labels, ACK's or else ours, say that the Node's instance is pay-as-you-go.
func IsOnDemand(labels map[string]string) bool {
	if strategy := labels[LabelSpotStrategy]; strategy != "" {
		return strategy == SpotStrategyNoSpot
	}
	return labels[LabelPurchaseOption] == PurchaseOnDemand
}

// What the reclaim controller stores on a Node for its own use, so that a new leader continues where the last one stopped.
const (
	// AnnotationReclaimNoticed is when the notice was first seen.
	AnnotationReclaimNoticed = "gpu-spot.autoscaling/reclaim-noticed"
	// AnnotationReclaimStated is "true" if a source stated the deadline. Without it the deadline is an estimate.
	AnnotationReclaimStated = "gpu-spot.autoscaling/reclaim-stated"
	// AnnotationReclaimSource is the source that announced the notice first: ecs-poll, node-agent, push, condition, fault, move, drill,
	// or unknown.
	AnnotationReclaimSource = "gpu-spot.autoscaling/reclaim-source"
	// ReclaimSourceMove is the source of a move. The pods of such a Node are to get spot instances, which the processors see to.
	ReclaimSourceMove = "move"
	// AnnotationReclaimConfirmed is "true" if another source has confirmed a notice that was pushed first.
	AnnotationReclaimConfirmed = "gpu-spot.autoscaling/reclaim-confirmed"
	// AnnotationReclaimCordoned is "true" if the controller made the Node unschedulable, and may undo that. The job supervisor writes it
	// on a reclaiming Node that it had cordoned to give it back.
	AnnotationReclaimCordoned = "gpu-spot.autoscaling/reclaim-cordoned"
	// AnnotationReclaimDrained is when the Node was first without pods.
	AnnotationReclaimDrained = "gpu-spot.autoscaling/reclaim-drained"
	// AnnotationReclaimForced is "true" if pods were deleted instead of evicted.
	AnnotationReclaimForced = "gpu-spot.autoscaling/reclaim-forced"
	// AnnotationReclaimCancelled is when the last notice was withdrawn. Older notices are ignored, such as a condition that
	// was not removed or an event that is delivered again. For a while, pushed notices are held until they are confirmed.
	AnnotationReclaimCancelled = "gpu-spot.autoscaling/reclaim-cancelled"
)

// What sources of notices write on a Node, so that a notice survives a restart of its source. The reclaim controller reads it.
const (
	// AnnotationNoticePush is the deadline of a pushed notice, AnnotationNoticePushReceived when the notice was received. The
	// replica that received the notice writes both.
	AnnotationNoticePush         = "gpu-spot.autoscaling/notice-push"
	AnnotationNoticePushReceived = "gpu-spot.autoscaling/notice-push-received"
	// AnnotationNoticeAgent is the deadline in the metadata of the instance. The node-agent writes it, and removes it when the
	// metadata no longer have it.
	AnnotationNoticeAgent = "gpu-spot.autoscaling/notice-agent"
	// AnnotationDrill is a rehearsal of a reclaim, "<checkpoint or drain> <begin>/<end>" with times in RFC 3339. The command drill writes
	// it. The reclaim controller acts upon it until its end, and removes it when it takes off the marks, or when a notice comes that is
	// none of a drill. An admission policy lets nobody set it but those who may start drills.
	AnnotationDrill = "gpu-spot.autoscaling/drill"
	// ConditionInstanceExpired is True while the instance is to be released. The node-problem-detector of ACK writes it.
	ConditionInstanceExpired = "InstanceExpired"
)

const (
	// AnnotationGiveBack, on a Node that was cordoned to be given back, is "<ref>@<time>": the job for which the Node was bought,
	// and when the Node was cordoned. The job supervisor writes and reads it.
	AnnotationGiveBack = "gpu-spot.autoscaling/give-back"
	// AnnotationRemoved is when ESS accepted the request to remove the instance of the Node. The reclaim controller writes it,
	// and deletes the Node once neither ESS nor ECS lists the instance. The provider reads it, and does not count such a Node
	// once ESS no longer lists the instance.
	AnnotationRemoved = "gpu-spot.autoscaling/removed"
	// AnnotationWholePool, on the node template of a pool that cannot be targeted, is the scaling group. The provider writes it,
	// and reads it to price the template. It is never on a Node of the cluster.
	AnnotationWholePool = "gpu-spot.autoscaling/whole-pool"
	// LabelPurchaseOption is "spot" or "on-demand". Operators write it on Nodes that lack LabelSpotStrategy. The pricing model,
	// all parts of the reclaim and the affinity of the node-agent read it.
	LabelPurchaseOption = "gpu-spot.autoscaling/purchase-option"
	// PurchaseSpot and PurchaseOnDemand are the values of LabelPurchaseOption.
	PurchaseSpot     = "spot"
	PurchaseOnDemand = "on-demand"
)
