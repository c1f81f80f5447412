package temper

// Rules are where clouds may differ. The zero value of each rule is its kindest form.
//
// Sources: DOC are Alibaba's documentation pages (help.aliyun.com, alibabacloud.com/help; in 2021 also on GitHub as
// AlibabaCloudDocs), META is aliyun/aliyun-openapi-meta, CS are the comments of aliyun/alibabacloud-csharp-sdk
// ess-20220222, SDK is alibaba-cloud-sdk-go v1.63.107, TF is aliyun/terraform-provider-alicloud, CCM is
// kubernetes/cloud-provider-alibaba-cloud, KARP is cloudpilot-ai/karpenter-provider-alibabacloud. GUESS marks what no
// source tells: such a rule is to be corrected by whoever has an account and looks.
type Rules struct {
	// Base is Strict or Lenient: what the rules are before any is overridden.
	Base string `json:"base"`

	// RollBack is what happens to the instances that an activity has created when it comes short of others. Rolled back
	// instances were listed as Pending, and are released before the activity ends as Warning, or as Failed where none
	// is left; ErrorMessages[].FailedInstanceIds names them.
	// Source: DOC "Instance rollback" ("the system rolls back ECS instances, not the scaling activity") and "Activity
	// status"; SDK ErrorMessagesItem. GUESS: that a purchase that comes short rolls any back.
	RollBack RollBack `json:"rollBack"`
	// RolledBackStayNamed counts and names rolled-back instances among those that the activity created. Source: GUESS; CS
	// calls them "the instances that are created during the scale-out event".
	RolledBackStayNamed bool `json:"rolledBackStayNamed"`
	// CodesInText leaves ErrorCode and ErrorMessage of an activity empty, StatusMessage at "-", and tells the code in
	// Detail alone, once for each attempt.
	// Source: TF issue 3301; CS tells of ErrorCode.
	CodesInText bool `json:"codesInText"`
	// OldestFirst lists activities in the order in which they began. Source: GUESS, no order is documented.
	OldestFirst bool `json:"oldestFirst"`
	// OneAtATime ignores ParallelTask: while any activity of a group is in progress, be it a scale-in, a removal by the
	// health check or one of the group's own, others are refused with ScalingActivityInProgress.
	// Source: DOC "Considerations" ("only one scaling activity can be executed at a time in a scaling group"), DOC
	// ScaleWithAdjustment of September 2026. CS knows ParallelTask in one line of 2022-02-22; 2014-08-28 has it in SDK only.
	OneAtATime bool `json:"oneAtATime"`
	// LoseNoteOf has the ActivityMetadata of one in so many activities vanish; 0 keeps all. Source: GUESS.
	LoseNoteOf int `json:"loseNoteOf"`
	// NotesHoldStrings keeps of ActivityMetadata only the values that are strings, and nothing of what is no JSON object.
	// Source: GUESS; the example in CS is {"key":"value"}.
	NotesHoldStrings bool `json:"notesHoldStrings"`

	// ForgetTokens forgets a ClientToken after Durations.TokenLife instead of after a day. Source: GUESS; DOC tells of no
	// time.
	ForgetTokens bool `json:"forgetTokens"`
	// SlotBeforeToken looks for an activity in progress first and for the ClientToken second, so that a request sent again
	// is refused while its own activity runs. Source: GUESS.
	SlotBeforeToken bool `json:"slotBeforeToken"`

	// RefuseNoChange answers an adjustment that changes nothing, such as one at the group's maximum, with HTTP 400
	// IncorrectCapacity.NoChange instead of a Rejected activity. One that goes beyond the maximum ends at it, in every
	// temper. Source: META, DOC error codes of ScaleWithAdjustment; DOC ScaleWithAdjustment for the latter.
	RefuseNoChange bool `json:"refuseNoChange"`
	// Expectation has ScaleWithAdjustment only change the desired capacity of a group that has one, unless SyncActivity
	// is true. The desired capacity becomes the number of stable instances plus the adjustment, whatever was on its way.
	// Source: META, CS SyncActivity and ActivityType, DOC "Expected number of instances".
	Expectation bool `json:"expectation"`
	// PolicyDecides has CompensateWithOnDemand and SpotInstanceRemedy act in COST_OPTIMIZED groups alone.
	// Source: META and CS CreateScalingGroup, TF.
	PolicyDecides bool `json:"policyDecides"`
	// Targeting is what ScaleWithAdjustment makes of InstanceType.N, VSwitchId.N and SpotStrategy. Source: SDK has them,
	// META and DOC do not; GUESS: that they are honoured.
	Targeting Targeting `json:"targeting"`
	// BuysPlans has ScaleWithAdjustment not know ExecutionMode: what should be a plan is bought.
	// Source: CS and DOC describe PlanOnly; GUESS: that it is there in every region and version.
	BuysPlans bool `json:"buysPlans"`

	// ListLags has DescribeScalingInstances fall behind activities that have ended, by Durations.ListLag: of new
	// instances every other one is not listed until then, and removed ones still are. Source: GUESS.
	ListLags bool `json:"listLags"`
	// BareNewcomers lists Pending instances without type, zone and spot strategy. Source: GUESS.
	BareNewcomers bool `json:"bareNewcomers"`

	// LaunchLags has DescribeInstances fall behind RunInstances by Durations.ListLag: every other instance is not listed until
	// then. Source: GUESS; DOC RunInstances tells only that the call is asynchronous.
	LaunchLags bool `json:"launchLags"`
	// VanishOneIn has one in so many of the instances that RunInstances promised vanish before it runs, as if there had been no
	// stock for it; 0 has all run. Source: DOC RunInstances, "Prerequisites" (SystemFailure.Delete); GUESS for the rate.
	VanishOneIn int `json:"vanishOneIn"`
	// EntrustedOnly has a scaling group release of the instances that were attached to it only those that were entrusted to it.
	// Source: DOC AttachInstances, Entrusted.
	EntrustedOnly bool `json:"entrustedOnly"`

	// PendingStay refuses to remove Pending instances, with IncorrectInstanceStatus.
	// Source: KARP does not try because of an error; TF retries the code.
	PendingStay bool `json:"pendingStay"`
	// WarnOfInvalid ends a removal as Warning where IgnoreInvalidInstance left some instances out. Source: CS.
	WarnOfInvalid bool `json:"warnOfInvalid"`
	// AwaitStop has a removal without StopInstanceTimeout wait until its instances have stopped: where one does not, all
	// stay and the activity fails. With StopInstanceTimeout it goes on when that is over. Source: CS, META.
	AwaitStop bool `json:"awaitStop"`
	// HangOneIn has one in so many removed instances not stop by itself; 0 has all stop. Source: GUESS for the rate.
	HangOneIn int `json:"hangOneIn"`
	// StayOneIn has the first try to release one in so many removed instances fail: the activity ends as Warning, or as
	// Failed where it has no other, and the instance serves on; 0 has all go.
	// Source: CS and DOC "Activity status" for Warning, GUESS for the rate.
	StayOneIn int `json:"stayOneIn"`

	// RecyclingIsStopped shows the status Stopped of instances that are about to be reclaimed.
	// Source: the sample output of DOC "Query the interruption events of spot instances".
	RecyclingIsStopped bool `json:"recyclingIsStopped"`
	// LockReason is the one spelling of "recycling" that the filter of DescribeInstances knows and its answers use; any
	// other finds nothing. Empty takes every spelling. Source: META and CS say "recycling", the Chinese pages and the
	// Java SDK "Recycling"; GUESS: that case counts.
	LockReason string `json:"lockReason"`

	// WrongStockPercent has DescribeAvailableResource and DescribeElasticStrength say the opposite of so many percent of what they are
	// asked, each anew each minute; 0 has them always tell the truth. Source: GUESS; DOC promises nothing.
	WrongStockPercent int `json:"wrongStockPercent"`

	// NodeController deletes Nodes as Alibaba's cloud controller does: it looks every Durations.NodeController, and
	// deletes a Node only if its instance is absent and Ready is Unknown, which it becomes Durations.NodeGrace after the
	// machine fell silent. Source: CCM node_controller.go.
	NodeController bool `json:"nodeController"`
}

// RollBack says which instances of an activity that comes short are released again.
type RollBack string

// Extents of a roll-back.
const (
	RollBackNone RollBack = ""
	// RollBackSome releases half of them, rounded up.
	RollBackSome RollBack = "some"
	RollBackAll  RollBack = "all"
)

// Targeting says what becomes of the parameters that name an offering.
type Targeting string

// Ways to take targeting parameters.
const (
	TargetingHonoured Targeting = ""
	// TargetingIgnored buys as if they had not been given.
	TargetingIgnored Targeting = "ignored"
	// TargetingRefused answers HTTP 400 InvalidParameter.
	TargetingRefused Targeting = "refused"
)
