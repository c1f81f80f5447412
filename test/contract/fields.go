package main

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

func fieldQuestions() []question {
	return []question{{
		name:    "group-fields",
		asks:    "Which of the fields that the autoscaler reads does a scaling group have, and of what kind?",
		matters: "A field that is absent reads as 0 or false: a group with a desired capacity would be taken for one without.",
		source:  "DescribeScalingGroups in " + goSDK + "; " + metadata,
		believed: facts{
			"ScalingGroupId": "string", "MinSize": "number", "MaxSize": "number", "TotalCapacity": "number",
			"EnableDesiredCapacity": "boolean", "LifecycleState": "string", "SystemSuspended": "boolean",
			"SuspendedProcesses": "list SuspendedProcess", "ActiveScalingConfigurationId": "string", "VSwitchIds": "list VSwitchId",
			"MultiAZPolicy": "string", "HealthCheckType": "string", "DefaultCooldown": "number",
			"SpotInstanceRemedy": "boolean", "CompensateWithOnDemand": "boolean", "Tags": "list Tag",
			"a tag": "TagKey, TagValue",
		},
		ask: askGroupFields,
	}, {
		name:    "group-capacities",
		asks:    "Does a scaling group tell how many of its instances are in each lifecycle state?",
		matters: "Standby and Stopped instances are in the group and serve nothing; those that are being created count already.",
		source:  "DescribeScalingGroups in " + goSDK,
		believed: facts{
			"ActiveCapacity": "number", "PendingCapacity": "number", "PendingWaitCapacity": "number", "RemovingCapacity": "number",
			"RemovingWaitCapacity": "number", "ProtectedCapacity": "number", "StandbyCapacity": "number", "StoppedCapacity": "number",
			"InitCapacity": "number",
		},
		ask: func(ctx context.Context, a *account) (facts, error) {
			g, err := a.describeGroup(ctx, a.group)
			return kinds(g, "ActiveCapacity", "PendingCapacity", "PendingWaitCapacity", "RemovingCapacity", "RemovingWaitCapacity",
				"ProtectedCapacity", "StandbyCapacity", "StoppedCapacity", "InitCapacity"), err
		},
	}, {
		name:    "group-policy",
		asks:    "Does a scaling group tell by which policy it buys, and how much of that pay-as-you-go unasked?",
		matters: "A group may buy pay-as-you-go instances where spot was asked for; the autoscaler warns of it by these fields.",
		source:  metadata + ", CreateScalingGroup: OnDemandPercentageAboveBaseCapacity is 100 by default where MultiAZPolicy is COMPOSABLE; DescribeScalingGroups in " + goSDK,
		believed: facts{
			"MultiAZPolicy": "known", "OnDemandBaseCapacity": "number", "OnDemandPercentageAboveBaseCapacity": "number", "CapacityOptions": "object",
		},
		ask: func(ctx context.Context, a *account) (facts, error) {
			g, err := a.describeGroup(ctx, a.group)
			if err != nil {
				return nil, err
			}
			found := kinds(g, "OnDemandBaseCapacity", "OnDemandPercentageAboveBaseCapacity", "CapacityOptions")
			found["MultiAZPolicy"] = known(g.text("MultiAZPolicy"), "PRIORITY", "BALANCE", "COST_OPTIMIZED", "COMPOSABLE")
			return found, nil
		},
	}, {
		name:    "configuration-fields",
		asks:    "Which of the fields that the autoscaler reads does a scaling configuration have, and of what kind?",
		matters: "Node templates and prices come from it; its tags are named otherwise than the group's.",
		source:  "DescribeScalingConfigurations in " + goSDK,
		believed: facts{
			"ScalingConfigurationId": "string", "ScalingGroupId": "string", "types": "yes", "SpotStrategy": "string",
			"SpotDuration": "number", "SystemDiskSize": "number", "Tags": "list Tag", "a tag": "Key, Value",
		},
		ask: askConfigurationFields,
	}, {
		name:    "instance-fields",
		asks:    "Which of the fields that the autoscaler reads does an instance of a group have, and in what form?",
		matters: "An instance without type, zone or activity cannot be counted for a purchase.",
		source:  "DescribeScalingInstances in " + goSDK + "; " + essPages,
		believed: facts{
			"InstanceId": "i-…", "ScalingGroupId": "asg-…", "ScalingActivityId": "asa-…", "LifecycleState": "known", "HealthStatus": "known",
			"InstanceType": "ecs.…", "ZoneId": "of the region", "SpotStrategy": "known", "CreationTime": "minutes, UTC", "CreationType": "known",
		},
		ask: askInstanceFields,
	}, {
		name:    "type-fields",
		asks:    "Which of the fields that the autoscaler reads does an instance type have, and of what kind?",
		matters: "The resources of a node template are made of them.",
		source:  "DescribeInstanceTypes in " + goSDK,
		believed: facts{
			"CpuCoreCount": "number", "MemorySize": "number", "GPUAmount": "number", "GPUSpec": "NVIDIA …", "CpuArchitecture": "known",
		},
		ask: askTypeFields,
	}, {
		name:     "vswitch-fields",
		asks:     "Does a vSwitch tell its zone and how many addresses it has left?",
		matters:  "The zone of an offering is that of its vSwitch.",
		source:   "DescribeVSwitches in " + goSDK,
		believed: facts{"ZoneId": "of the region", "AvailableIpAddressCount": "number"},
		ask:      askVSwitchFields,
	}}
}

// kinds names the kind of each field.
func kinds(o object, names ...string) facts {
	if o == nil {
		return nil
	}
	found := facts{}
	for _, name := range names {
		found[name] = o.kind(name)
	}
	return found
}

func askGroupFields(ctx context.Context, a *account) (facts, error) {
	g, err := a.describeGroup(ctx, a.group)
	if err != nil {
		return nil, err
	}
	found := kinds(g, "ScalingGroupId", "MinSize", "MaxSize", "TotalCapacity", "EnableDesiredCapacity", "LifecycleState",
		"SystemSuspended", "SuspendedProcesses", "ActiveScalingConfigurationId", "VSwitchIds", "MultiAZPolicy", "HealthCheckType",
		"DefaultCooldown", "SpotInstanceRemedy", "CompensateWithOnDemand", "Tags")
	namesOfTags(g, found)
	return found, nil
}

// namesOfTags adds which fields a tag has.
func namesOfTags(o object, found facts) {
	for _, tag := range o.list("Tags") {
		if tag.text("TagKey") != "" {
			found["a tag"] = "TagKey, TagValue"
		} else if tag.text("Key") != "" {
			found["a tag"] = "Key, Value"
		}
	}
}

func askConfigurationFields(ctx context.Context, a *account) (facts, error) {
	c, err := a.describeConfiguration(ctx)
	if err != nil {
		return nil, err
	}
	found := kinds(c, "ScalingConfigurationId", "ScalingGroupId", "SpotStrategy", "SpotDuration", "SystemDiskSize", "Tags")
	found["types"] = yesNo(len(c.texts("InstanceTypes")) > 0 || c.text("InstanceType") != "")
	namesOfTags(c, found)
	return found, nil
}

var lifecycleStates = []string{
	alicloud.LifecycleInService, alicloud.LifecyclePending, alicloud.LifecyclePendingWait, alicloud.LifecycleProtected,
	alicloud.LifecycleStandby, alicloud.LifecycleStopped, alicloud.LifecycleRemoving, alicloud.LifecycleRemovingWait,
}

func askInstanceFields(ctx context.Context, a *account) (facts, error) {
	body, err := a.ess(ctx, "DescribeScalingInstances", parameters{"PageSize": "50"})
	if err != nil {
		return nil, err
	}
	instances := body.list("ScalingInstances")
	if len(instances) == 0 {
		return nil, cannotTell("there is no instance in any scaling group")
	}
	return formsOfInstance(instances[0], a.region), nil
}

func formsOfInstance(i object, region string) facts {
	return facts{
		"InstanceId":        prefixed(i.text("InstanceId"), "i-"),
		"ScalingGroupId":    prefixed(i.text("ScalingGroupId"), "asg-"),
		"ScalingActivityId": prefixed(i.text("ScalingActivityId"), "asa-"),
		"LifecycleState":    known(i.text("LifecycleState"), lifecycleStates...),
		"HealthStatus":      known(i.text("HealthStatus"), "Healthy", "Unhealthy"),
		"InstanceType":      prefixed(i.text("InstanceType"), "ecs."),
		"ZoneId":            zoneForm(i.text("ZoneId"), region),
		"SpotStrategy":      known(i.text("SpotStrategy"), alicloud.NoSpot, alicloud.SpotAsPriceGo, alicloud.SpotWithPriceLimit),
		"CreationTime":      timeForm(i.text("CreationTime")),
		"CreationType":      known(i.text("CreationType"), "AutoCreated", "Attached"),
	}
}

func askTypeFields(ctx context.Context, a *account) (facts, error) {
	types, err := a.typesOfGroup(ctx)
	if err != nil {
		return nil, err
	}
	body, err := a.ecs(ctx, "DescribeInstanceTypes", parameters{}.list("InstanceTypes", types[0]))
	if err != nil {
		return nil, err
	}
	list := body.list("InstanceTypes")
	if len(list) == 0 {
		return nil, cannotTell("ECS does not list the group's type %s", types[0])
	}
	t := list[0]
	found := kinds(t, "CpuCoreCount", "MemorySize", "GPUAmount")
	found["CpuArchitecture"] = known(t.text("CpuArchitecture"), "X86", "ARM")
	if t.number("GPUAmount") > 0 {
		found["GPUSpec"] = prefixed(t.text("GPUSpec"), "NVIDIA ")
	}
	return found, nil
}

func askVSwitchFields(ctx context.Context, a *account) (facts, error) {
	g, err := a.describeGroup(ctx, a.group)
	if err != nil {
		return nil, err
	}
	ids := g.texts("VSwitchIds")
	if len(ids) == 0 {
		return nil, cannotTell("the group has no vSwitch")
	}
	body, err := a.vpc(ctx, "DescribeVSwitches", parameters{"VSwitchId": ids[0]})
	if err != nil {
		return nil, err
	}
	list := body.list("VSwitches")
	if len(list) == 0 {
		return nil, cannotTell("VPC does not list the group's vSwitch")
	}
	return facts{
		"ZoneId":                  zoneForm(list[0].text("ZoneId"), a.region),
		"AvailableIpAddressCount": list[0].kind("AvailableIpAddressCount"),
	}, nil
}

// prefixed names the form of a value by how it begins.
func prefixed(value, prefix string) string {
	switch {
	case value == "":
		return "absent"
	case strings.HasPrefix(value, prefix):
		return prefix + "…"
	}
	return "another form"
}

// known says whether a word is among those that the product knows, and names it where it is not.
func known(word string, words ...string) string {
	if word == "" {
		return "absent"
	}
	for _, w := range words {
		if w == word {
			return "known"
		}
	}
	return "unknown: " + word
}

func zoneForm(zone, region string) string {
	switch {
	case zone == "":
		return "absent"
	case strings.HasPrefix(zone, region):
		return "of the region"
	}
	return "another form"
}

var timeForms = []struct {
	form string
	like *regexp.Regexp
}{
	{"minutes, UTC", regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\dZ$`)},
	{"seconds, UTC", regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`)},
	{"minutes, offset", regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d[+-]\d\d:?\d\d$`)},
	{"seconds, offset", regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:?\d\d$`)},
}

// timeForm names the form of a time.
func timeForm(text string) string {
	if text == "" {
		return "absent"
	}
	for _, t := range timeForms {
		if t.like.MatchString(text) {
			return t.form
		}
	}
	return "another form"
}

func jsonList(values []string) string {
	text, err := json.Marshal(values)
	if err != nil {
		panic(err) // a list of strings
	}
	return string(text)
}
