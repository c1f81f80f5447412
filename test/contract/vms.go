package main

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

func vmQuestions() []question {
	return []question{{
		name:    "lock-reason",
		asks:    "Which spelling of Recycling does the LockReason filter of DescribeInstances take, and which do replies have?",
		matters: "The poll for reclaim notices is blind, without an error, where the spelling does not match.",
		source:  metadata + " and the C# SDK spell the filter recycling; Alibaba's Chinese pages and sample replies Recycling",
		rules:   []string{"lockReason"},
		believed: facts{
			"filter Recycling": "accepted", "filter recycling": "accepted", "Recycling finds a locked instance": "no",
			"recycling finds a locked instance": "yes", "spelt in replies": "recycling",
		},
		ask: askLockReason,
	}, {
		name:     "locked-status",
		asks:     "What status has an instance that is locked as Recycling?",
		matters:  "One that is shown as Stopped already still has its reclaim to be handled.",
		source:   "Sample reply of DescribeInstances in Alibaba's API reference: Stopped and Recycling together",
		rules:    []string{"recyclingIsStopped"},
		believed: facts{"status": "Stopped"},
		ask:      askLockedStatus,
	}, {
		name:     "no-permission",
		asks:     "Does a DryRun of DescribeInstances tell that the permission is there?",
		matters:  "Without the permission DescribeInstances answers with an empty list and no error, as if every instance were gone.",
		source:   "API reference of ECS, DescribeInstances, 2024-10-21: a RAM user who lacks the permission gets an empty list; DryRun tells",
		believed: facts{"DryRun": "refused with DryRunOperation"},
		ask: func(ctx context.Context, a *account) (facts, error) {
			_, err := a.ecs(ctx, "DescribeInstances", parameters{"DryRun": "true"})
			word, err := verdict(err)
			return facts{"DryRun": word}, err
		},
	}, {
		name:     "no-ids",
		asks:     "Does DescribeInstances with an empty list of ids list nothing, or everything?",
		matters:  "Everything would be taken for what was asked after.",
		source:   "API reference of ECS, DescribeInstances, 2024-10-21: an empty JSON array is a filter that matches nothing",
		believed: facts{"InstanceIds=[]": "nothing"},
		ask:      askNoIDs,
	}, {
		name:    "vm-fields",
		asks:    "Which of the fields that the autoscaler reads does an instance have in ECS?",
		matters: "Price and label of a node follow the instance, never the group.",
		source:  "DescribeInstances in " + goSDK,
		believed: facts{
			"Status": "known", "InstanceType": "ecs.…", "ZoneId": "of the region", "SpotStrategy": "known", "CreationTime": "minutes, UTC",
			"OperationLocks": "list LockReason",
		},
		ask: askVMFields,
	}, {
		name:     "interruption-behavior",
		asks:     "Does an instance tell whether it is released or only stopped when it is interrupted?",
		matters:  "One that is only stopped stays, and may come back, after its reclaim.",
		source:   metadata + ": SpotInterruptionBehavior of RunInstances is Terminate or Stop; scaling configurations know Terminate only",
		believed: facts{"of a spot instance": "Terminate"},
		ask:      askInterruptionBehavior,
	}}
}

func listLocked(ctx context.Context, a *account, spelling string) ([]object, error) {
	body, err := a.ecs(ctx, "DescribeInstances", parameters{"LockReason": spelling, "MaxResults": "100"})
	return body.list("Instances"), err
}

// lockedAs returns how the reply spells the lock of a spot instance that is about to be released, "" where it has none.
func lockedAs(vm object) string {
	for _, lock := range vm.list("OperationLocks") {
		if reason := lock.text("LockReason"); strings.EqualFold(reason, "recycling") {
			return reason
		}
	}
	return ""
}

// listLockedNow returns the instances that are locked, whatever spelling finds them.
func listLockedNow(ctx context.Context, a *account) ([]object, error) {
	var found []object
	token := ""
	for range 20 { // 2000 instances: enough to find one
		body, err := a.ecs(ctx, "DescribeInstances", parameters{"MaxResults": "100", "NextToken": token})
		if err != nil {
			return nil, err
		}
		for _, vm := range body.list("Instances") {
			if lockedAs(vm) != "" {
				found = append(found, vm)
			}
		}
		if token = body.text("NextToken"); token == "" {
			break
		}
	}
	return found, nil
}

func askLockReason(ctx context.Context, a *account) (facts, error) {
	found := facts{}
	listed := map[string][]object{}
	for _, spelling := range []string{"Recycling", "recycling"} {
		list, err := listLocked(ctx, a, spelling)
		word, err := verdict(err)
		if err != nil {
			return found, err
		}
		found["filter "+spelling], listed[spelling] = word, list
	}
	now, err := listLockedNow(ctx, a)
	if err != nil || len(now) == 0 {
		return found, err
	}
	for spelling, list := range listed {
		found[spelling+" finds a locked instance"] = yesNo(len(list) > 0)
	}
	found["spelt in replies"] = lockedAs(now[0])
	return found, nil
}

func askLockedStatus(ctx context.Context, a *account) (facts, error) {
	now, err := listLockedNow(ctx, a)
	if err != nil {
		return nil, err
	}
	if len(now) == 0 {
		return nil, cannotTell("no instance is about to be released")
	}
	seen := sets.New[string]()
	for _, vm := range now {
		seen.Insert(vm.text("Status"))
	}
	return facts{"status": strings.Join(sets.List(seen), " and ")}, nil
}

func askNoIDs(ctx context.Context, a *account) (facts, error) {
	all, err := a.ecs(ctx, "DescribeInstances", parameters{"MaxResults": "10"})
	if err != nil {
		return nil, err
	}
	if len(all.list("Instances")) == 0 {
		return nil, cannotTell("there is no instance in the region")
	}
	body, err := a.ecs(ctx, "DescribeInstances", parameters{"MaxResults": "10", "InstanceIds": "[]"})
	word, err := verdict(err)
	switch {
	case err != nil:
		return nil, err
	case word == "accepted" && len(body.list("Instances")) == 0:
		word = "nothing"
	case word == "accepted":
		word = "everything"
	}
	return facts{"InstanceIds=[]": word}, nil
}

func findVM(ctx context.Context, a *account, wanted func(object) bool) (object, error) {
	body, err := a.ecs(ctx, "DescribeInstances", parameters{"MaxResults": "100"})
	if err != nil {
		return nil, err
	}
	for _, vm := range body.list("Instances") {
		if wanted(vm) {
			return vm, nil
		}
	}
	return nil, cannotTell("there is no such instance among the first hundred of the region")
}

func askVMFields(ctx context.Context, a *account) (facts, error) {
	vm, err := findVM(ctx, a, func(object) bool { return true })
	if err != nil {
		return nil, err
	}
	return facts{
		"Status":         known(vm.text("Status"), "Pending", "Starting", "Running", "Stopping", "Stopped"),
		"InstanceType":   prefixed(vm.text("InstanceType"), "ecs."),
		"ZoneId":         zoneForm(vm.text("ZoneId"), a.region),
		"SpotStrategy":   known(vm.text("SpotStrategy"), alicloud.NoSpot, alicloud.SpotAsPriceGo, alicloud.SpotWithPriceLimit),
		"CreationTime":   timeForm(vm.text("CreationTime")),
		"OperationLocks": vm.kind("OperationLocks"),
	}, nil
}

func askInterruptionBehavior(ctx context.Context, a *account) (facts, error) {
	vm, err := findVM(ctx, a, func(vm object) bool {
		return vm.text("SpotStrategy") != "" && vm.text("SpotStrategy") != alicloud.NoSpot
	})
	if err != nil {
		return nil, err
	}
	word := vm.text("SpotInterruptionBehavior")
	if word == "" {
		word = "absent"
	}
	return facts{"of a spot instance": word}, nil
}
