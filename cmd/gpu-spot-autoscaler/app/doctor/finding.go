package doctor

import (
	"cmp"
	"slices"
	"strings"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/problem"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/jobsupervisor"
)

// Code names a kind of finding. It never changes its meaning, so that scripts may go by it. docs/doctor.md explains each.
type Code string

// Calls that fail: the codes are the reasons that the autoscaler itself would report.
const (
	NoCredentials = Code(alicloud.NoCredentials)
	UnknownKey    = Code(alicloud.UnknownKey)
	WrongSecret   = Code(alicloud.WrongSecret)
	ExpiredToken  = Code(alicloud.ExpiredToken)
	WrongRole     = Code(alicloud.WrongRole)
	ClockSkew     = Code(alicloud.ClockSkew)
	NotAllowed    = Code(alicloud.NotAllowed)
	WrongRegion   = Code(alicloud.WrongRegion)
	Throttled     = Code(alicloud.Throttling)
	Unreachable   = Code(alicloud.Unreachable)
	Refused       = Code(alicloud.Refused)
)

// Pools: these codes are the reasons of the problems that the autoscaler itself would report.
const (
	NoPools                = Code(problem.NoPools)
	NotFound               = Code(problem.NotFound)
	Tags                   = Code(problem.Tags)
	Configuration          = Code(problem.Configuration)
	InstanceType           = Code(problem.InstanceType)
	VSwitch                = Code(problem.VSwitch)
	SharedGPU              = Code(problem.SharedGPU)
	LeftOut                = Code(problem.LeftOut)
	Unbuyable              = Code(problem.Unbuyable)
	DesiredCapacity        = Code(problem.DesiredCapacity)
	CompensateWithOnDemand = Code(problem.CompensateWithOnDemand)
	SpotInstanceRemedy     = Code(problem.SpotInstanceRemedy)
	OnDemandBase           = Code(problem.OnDemandBase)
	OnDemandPercentage     = Code(problem.OnDemandPercentage)
	SpotAutoReplace        = Code(problem.SpotAutoReplace)
	Standby                = Code(problem.Standby)
	Stopped                = Code(problem.Stopped)
	ACKAutoscaler          = Code(problem.ACKAutoscaler)
)

// What the autoscaler itself does not report, or only once it is too late.
const (
	// ScaleInSuspended: nothing can be given back.
	ScaleInSuspended Code = "scale_in_suspended"
	// Protected: instances are protected from scale-in, and are never given back.
	Protected Code = "protected"
	// NoUserData: instances would not join the cluster.
	NoUserData Code = "no_user_data"
	// GroupMaximum: the scaling group is full, or it or the pool may hold nothing.
	GroupMaximum Code = "group_maximum"
	// NoReserve: a reclaiming instance keeps its replacement from being bought.
	NoReserve Code = "no_reserve"
	// VCPUQuota: the quota of vCPUs of spot instances ends before the pools do.
	VCPUQuota Code = "vcpu_quota"
	// FewAddresses: the vSwitches have too few addresses.
	FewAddresses Code = "few_addresses"
)

// The cluster.
const (
	// ClusterUnreachable: the API server does not answer.
	ClusterUnreachable Code = "cluster_unreachable"
	// KubernetesVersion: the version of Kubernetes is too old, or newer than those that were tested.
	KubernetesVersion Code = "kubernetes_version"
	// UnknownPool: a ConfigMap has settings of a scaling group that is not managed.
	UnknownPool Code = "unknown_pool"
	// OtherAutoscaler: another autoscaler buys for the same pending pods.
	OtherAutoscaler Code = "another_autoscaler"
	// JobSupervisor: Elastic-Job-Supervisor suspends and resumes the same jobs.
	JobSupervisor Code = jobsupervisor.Reason
	// PolicyMissing: an admission policy of the chart, or its binding, is missing or denies nothing.
	PolicyMissing Code = "policy_missing"
	// NodeAgent: the node-agent does not run on all of its nodes.
	NodeAgent Code = "node_agent"
	// PushUnreachable: notices cannot be pushed.
	PushUnreachable Code = "push_unreachable"
	// NoNotices: nothing tells of reclaims.
	NoNotices Code = "no_notices"
	// TemplateLabels: Nodes of a pool lack labels that its tags promise.
	TemplateLabels Code = "template_labels"
	// TemplateTaints: Nodes of a pool have taints that none of its tags announces.
	TemplateTaints Code = "template_taints"
	// LauncherOnSpot: the launcher of a job may be placed on a spot node.
	LauncherOnSpot Code = "launcher_on_spot"
	// NoDownwardAPI: a job awaits an acknowledgement, and cannot learn that it is asked for one.
	NoDownwardAPI Code = "no_downward_api"
	// NoStorageClass: a claim of a pending pod will never be bound.
	NoStorageClass Code = "no_storage_class"
)

// Codes are all of them.
var Codes = []Code{
	NoCredentials, UnknownKey, WrongSecret, ExpiredToken, WrongRole, ClockSkew,
	NotAllowed, WrongRegion, Throttled, Unreachable, Refused, NoPools,
	NotFound, Tags, Configuration, InstanceType, VSwitch,
	SharedGPU, LeftOut, Unbuyable, DesiredCapacity, CompensateWithOnDemand, SpotInstanceRemedy,
	OnDemandBase, OnDemandPercentage, SpotAutoReplace, Standby, Stopped, ACKAutoscaler,
	ScaleInSuspended, Protected, NoUserData, GroupMaximum, NoReserve, VCPUQuota,
	FewAddresses, ClusterUnreachable, KubernetesVersion, UnknownPool, OtherAutoscaler, JobSupervisor,
	PolicyMissing, NodeAgent, PushUnreachable, NoNotices, TemplateLabels, TemplateTaints,
	LauncherOnSpot, NoDownwardAPI, NoStorageClass,
}

// Severity says how bad a finding is.
type Severity string

const (
	// Error: something of what the autoscaler is for will not work, or costs money unasked.
	Error Severity = "error"
	// Warning: it works, and less well than it could, or not in every case.
	Warning Severity = "warning"
)

// Finding is one thing that is wrong with a set-up. Its JSON is what -o json prints.
type Finding struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	// Object is what it is about, such as a scaling group, or the namespace and name of a pod. It is empty for the account or the cluster.
	Object string `json:"object,omitempty"`
	// Sentence says what is wrong, Mend what to do about it.
	Sentence string `json:"sentence"`
	Mend     string `json:"mend"`
}

func (f Finding) String() string {
	text := string(f.Severity) + " " + string(f.Code)
	if f.Object != "" {
		text += " " + f.Object
	}
	return text + ": " + ended(f.Sentence) + " " + ended(f.Mend)
}

// ended returns the text with a full stop, unless it ends with a sentence.
func ended(text string) string {
	if strings.HasSuffix(text, "?") {
		return text
	}
	return strings.TrimSuffix(text, ".") + "."
}

// Report is what an examination found.
type Report struct {
	Findings []Finding `json:"findings"`
	// NotProven are the things that could not be found out, with the reason. None of them is known to be wrong.
	NotProven []string `json:"notProven"`
}

// add enters a finding, once.
func (r *Report) add(code Code, severity Severity, object, sentence, mend string) {
	found := Finding{code, severity, object, sentence, mend}
	if !slices.Contains(r.Findings, found) {
		r.Findings = append(r.Findings, found)
	}
}

// addProblem enters a problem that the autoscaler would report of a pool. The text of some problems has in its last sentence what to do.
func (r *Report) addProblem(reason problem.Reason, severity Severity, pool, cause string) {
	mend := reason.Fix()
	if mend == "" {
		cause, mend, _ = strings.Cut(cause, ". ")
	}
	r.add(Code(reason), severity, pool, cause, mend)
}

// addFailure enters a call that failed.
func (r *Report) addFailure(object string, err error) {
	d := alicloud.Diagnose(err)
	r.add(Code(d.Reason), Error, object, d.Cause, d.Fix)
}

// notProven notes what could not be found out.
func (r *Report) notProven(what string) {
	if !slices.Contains(r.NotProven, what) {
		r.NotProven = append(r.NotProven, what)
	}
}

// hasFor returns whether there is such a finding about the object.
func (r *Report) hasFor(code Code, object string) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Code == code && f.Object == object })
}

// sort puts errors before warnings.
func (r *Report) sort() {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Code, b.Code))
	})
	slices.Sort(r.NotProven)
}
