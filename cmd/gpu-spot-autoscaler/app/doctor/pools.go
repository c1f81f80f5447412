package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/autoscaler/cluster-autoscaler/core/scaledown/eligibility"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/problem"
	"gpu-spot-autoscaler/cloudprovider/ess/snapshot"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/lint"
)

// processScaleIn is the process of a scaling group that removes instances.
const processScaleIn = "ScaleIn"

// checkTags checks the tags of the scaling groups. Those that have only the tag of the cluster are not managed, and are checked too: the
// other tag may be misspelt.
func (e *cloudExam) checkTags(ctx context.Context) {
	groups := map[string]alicloud.ScalingGroup{}
	if e.ClusterName != "" {
		tagged, err := e.Cloud.ScalingGroups(ctx, alicloud.GroupFilter{Tags: map[string]string{e.clusterTag(): ""}})
		e.failed("", err)
		for _, group := range tagged {
			groups[group.ID] = group
		}
	}
	for _, group := range e.groups {
		groups[group.ID] = group
	}
	for _, id := range slices.Sorted(maps.Keys(groups)) {
		found := lint.Tags("", id, groups[id].Tags, true)
		if _, named := e.Nodes[id]; named { // it is managed whatever that tag says
			found = slices.DeleteFunc(found, func(f lint.Finding) bool { return f.Key == api.TagEnabled })
		}
		e.addLint(id, append(found, lint.Annotations("", id, e.overrides[id])...))
	}
}

func (e *cloudExam) addLint(group string, found []lint.Finding) {
	for _, f := range found {
		sentence := f.Message
		if f.Key != "" {
			sentence = f.Key + ": " + f.Message
		}
		e.report.add(Tags, Error, group, sentence, problem.Tags.Fix())
	}
}

// checkGroups checks what a scaling group does by itself, whether or not there is a pool of it.
func (e *cloudExam) checkGroups() {
	for _, group := range e.groups {
		if slices.Contains(group.SuspendedProcess, processScaleIn) {
			e.report.add(ScaleInSuspended, Error, group.ID, "its process ScaleIn is suspended, so that nothing can be given back", "Resume the process ScaleIn")
		}
		e.checkIdle(group.ID)
		configuration, known := e.read.configurations[group.ActiveScalingConfigurationID]
		if !known {
			continue
		}
		e.addLint(group.ID, lint.Tags("", group.ID, configuration.Tags, false))
		if configuration.Launch.Parameters["UserData"] == "" {
			e.report.add(NoUserData, Warning, group.ID,
				fmt.Sprintf("its scaling configuration %s has no user data, so that instances do not join the cluster, unless their image has them do so", configuration.ID),
				"Give the scaling configuration the user data that ACK shows for adding an existing node by hand")
		}
	}
}

// checkIdle checks the instances of a scaling group for states in which they are of no use, or stay for ever.
func (e *cloudExam) checkIdle(group string) {
	found := map[string][]string{}
	for _, id := range slices.Sorted(maps.Keys(e.instances)) {
		if instance := e.instances[id]; instance.ScalingGroupID == group {
			found[instance.LifecycleState] = append(found[instance.LifecycleState], id)
		}
	}
	for state, reason := range map[string]problem.Reason{alicloud.LifecycleStandby: problem.Standby, alicloud.LifecycleStopped: problem.Stopped} {
		if ids := found[state]; len(ids) > 0 {
			e.report.addProblem(reason, Warning, group, fmt.Sprintf("%d instances are %s in ESS: they hold room in the scaling group, and nothing is placed on them: %s",
				len(ids), state, snapshot.Abbreviate(ids)))
		}
	}
	if ids := found[alicloud.LifecycleProtected]; len(ids) > 0 {
		e.report.add(Protected, Warning, group,
			fmt.Sprintf("%d instances are protected from scale-in in ESS, and are never given back: %s", len(ids), snapshot.Abbreviate(ids)),
			"Call SetInstancesProtection with ProtectedFromScaleIn=false, and keep Nodes by the annotation "+eligibility.ScaleDownDisabledKey+" instead")
	}
}

// checkPools checks how the scaling groups buy.
func (e *cloudExam) checkPools() {
	for _, id := range slices.Sorted(maps.Keys(e.pools)) {
		p := e.pools[id]
		if p.Unbuyable != "" {
			e.report.addProblem(problem.Unbuyable, Error, id, p.Unbuyable)
		}
		hazards := p.Hazards()
		for _, reason := range slices.Sorted(maps.Keys(hazards)) {
			e.report.addProblem(reason, Error, id, hazards[reason])
		}
	}
}
