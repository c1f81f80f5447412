package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
)

// Sources that several questions name.
const (
	metadata   = "aliyun/aliyun-openapi-meta (API metadata, April 2026)"
	docComment = "doc comments of aliyun/alibabacloud-csharp-sdk, ess-20220222"
	essPages   = "API reference of Auto Scaling 2014-08-28 (AlibabaCloudDocs/ess)"
	goSDK      = "aliyun/alibaba-cloud-sdk-go v1.63.107"
	guess      = "not documented; what the simulator does is a guess"
)

func listingQuestions() []question {
	return []question{{
		name:    "page-sizes",
		asks:    "How many items does a page of each listing hold at most?",
		matters: "A page that is refused hides the whole listing; one that is smaller than believed costs requests.",
		source:  metadata + ": PageSize of DescribeScalingGroups, DescribeScalingActivities and DescribeScalingConfigurations at most 50, of DescribeScalingInstances 100; MaxResults of DescribeInstances 1 to 100",
		believed: facts{
			"DescribeScalingGroups 50": "accepted", "DescribeScalingGroups 51": "refused",
			"DescribeScalingInstances 100": "accepted", "DescribeScalingInstances 101": "refused",
			"DescribeScalingActivities 50": "accepted", "DescribeScalingActivities 51": "refused",
			"DescribeScalingConfigurations 50": "accepted", "DescribeScalingConfigurations 51": "refused",
			"DescribeInstances 100": "accepted", "DescribeInstances 101": "refused",
		},
		ask: askPageSizes,
	}, {
		name:    "ids-per-call",
		asks:    "How many ids may one call name?",
		matters: "One id too many fails the whole call, and with it the refresh of every pool.",
		source:  essPages + ": ScalingGroupId.N, InstanceId.N and ScalingActivityId.N 1 to 20, ScalingConfigurationId.N 1 to 10; ECS 2014-05-26: InstanceIds up to 100, InstanceTypes.N 1 to 10",
		believed: facts{
			"groups 20": "accepted", "groups 21": "refused", "instances 20": "accepted", "instances 21": "refused",
			"activities 20": "accepted", "activities 21": "refused", "configurations 10": "accepted", "configurations 11": "refused",
			"vms 100": "accepted", "vms 101": "refused", "types 10": "accepted", "types 11": "refused",
		},
		ask: askIDsPerCall,
	}, {
		name:    "unknown-ids",
		asks:    "Is an id that does not exist left out of a listing, or does it fail the call?",
		matters: "An instance that is gone is asked for together with those that live.",
		source:  essPages + ", and run with " + goSDK + " against the simulator only",
		believed: facts{
			"group": "left out", "instance": "left out", "activity": "left out", "configuration": "left out", "vm": "left out",
			"type": "left out", "vswitch": "left out",
		},
		ask: askUnknownIDs,
	}, {
		name:     "unknown-parameter",
		asks:     "Is a parameter that an action does not know ignored?",
		matters:  "ExecutionMode=PlanOnly would buy where it is not known and ignored.",
		source:   guess,
		believed: facts{"unknown parameter": "accepted"},
		ask: func(ctx context.Context, a *account) (facts, error) {
			_, err := a.ess(ctx, "DescribeScalingGroups", parameters{"NoSuchParameter": "1"})
			word, err := verdict(err)
			return facts{"unknown parameter": word}, err
		},
	}, {
		name:     "activities-of-nothing",
		asks:     "Are activities listed without the id of a group or of activities?",
		matters:  "The autoscaler asks group by group; if one call told of all groups it would ask that.",
		source:   metadata + ": one of ScalingGroupId and ScalingActivityId.N must be given",
		believed: facts{"neither given": "refused"},
		ask: func(ctx context.Context, a *account) (facts, error) {
			_, err := a.ess(ctx, "DescribeScalingActivities", nil)
			word, err := acceptedOrRefused(err)
			return facts{"neither given": word}, err
		},
	}, {
		name:     "instances-of-all-groups",
		asks:     "Does DescribeScalingInstances list the instances of every group of the region where no group is named?",
		matters:  "All pools are read with one listing; if it were refused there would be nothing to count by.",
		source:   metadata + ": ScalingGroupId is optional",
		believed: facts{"no group named": "accepted", "those of one group are among them": "yes"},
		ask:      askInstancesOfAllGroups,
	}, {
		name:     "tag-filter",
		asks:     "Does DescribeScalingGroups list only groups that have all the tags asked for?",
		matters:  "A group that is not ours must not be managed; the autoscaler checks the tags of the reply again.",
		source:   essPages + ": Tag.N.Key and Tag.N.Value",
		believed: facts{"key and value": "only those", "key alone": "only those", "a value that no group has": "none"},
		ask:      askTagFilter,
	}}
}

func askPageSizes(ctx context.Context, a *account) (facts, error) {
	found := facts{}
	ask := func(service, action, parameter string, size int, p parameters) error {
		body, err := a.call(ctx, service, action, p.with(parameter, size))
		word, err := acceptedOrRefused(err)
		if granted := body.number("PageSize"); parameter == "PageSize" && granted > 0 && granted != size {
			word = "lowered to " + strconv.Itoa(granted)
		}
		found[fmt.Sprintf("%s %d", action, size)] = word
		return err
	}
	ofGroup := parameters{"ScalingGroupId": a.group}
	for _, listing := range []struct {
		service, action, parameter string
		most                       int
		p                          parameters
	}{
		{"ess", "DescribeScalingGroups", "PageSize", 50, nil},
		{"ess", "DescribeScalingInstances", "PageSize", 100, nil},
		{"ess", "DescribeScalingActivities", "PageSize", 50, ofGroup},
		{"ess", "DescribeScalingConfigurations", "PageSize", 50, ofGroup},
		{"ecs", "DescribeInstances", "MaxResults", 100, nil},
	} {
		for _, size := range []int{listing.most, listing.most + 1} {
			if err := ask(listing.service, listing.action, listing.parameter, size, listing.p); err != nil {
				return found, err
			}
		}
	}
	return found, nil
}

// acceptedOrRefused is verdict without the code: which one stands for a malformed parameter nobody relies on.
func acceptedOrRefused(err error) (string, error) {
	if _, refused := refusal(err); refused {
		_, err = verdict(err)
		return "refused", err
	}
	return verdict(err)
}

// strange makes ids that have the form of real ones and name nothing.
func strange(prefix string, count int) []string {
	ids := make([]string, count)
	for n := range ids {
		ids[n] = fmt.Sprintf("%szzzzzzzzzzzzzzzz%04d", prefix, n)
	}
	return ids
}

func askIDsPerCall(ctx context.Context, a *account) (facts, error) {
	found := facts{}
	for _, kind := range []struct {
		name  string
		limit int
		ask   func(count int) error
	}{
		{"groups", 20, func(n int) error {
			_, err := a.ess(ctx, "DescribeScalingGroups", parameters{}.list("ScalingGroupId", strange("asg-", n)...))
			return err
		}},
		{"instances", 20, func(n int) error {
			_, err := a.ess(ctx, "DescribeScalingInstances", parameters{}.list("InstanceId", strange("i-", n)...))
			return err
		}},
		{"activities", 20, func(n int) error {
			_, err := a.ess(ctx, "DescribeScalingActivities", parameters{}.list("ScalingActivityId", strange("asa-", n)...))
			return err
		}},
		{"configurations", 10, func(n int) error {
			_, err := a.ess(ctx, "DescribeScalingConfigurations", parameters{}.list("ScalingConfigurationId", strange("asc-", n)...))
			return err
		}},
		{"vms", 100, func(n int) error {
			_, err := a.ecs(ctx, "DescribeInstances", parameters{"InstanceIds": jsonList(strange("i-", n)), "MaxResults": "100"})
			return err
		}},
		{"types", 10, func(n int) error {
			_, err := a.ecs(ctx, "DescribeInstanceTypes", parameters{}.list("InstanceTypes", someTypes[:n]...))
			return err
		}},
	} {
		for _, count := range []int{kind.limit, kind.limit + 1} {
			word, err := acceptedOrRefused(kind.ask(count))
			if err != nil {
				return found, err
			}
			found[fmt.Sprintf("%s %d", kind.name, count)] = word
		}
	}
	return found, nil
}

// someTypes exist, so that only their number can be wrong.
var someTypes = []string{
	"ecs.gn7i-c8g1.2xlarge", "ecs.gn7i-c16g1.4xlarge", "ecs.gn7i-c32g1.8xlarge", "ecs.gn7i-c32g1.16xlarge",
	"ecs.gn7i-c32g1.32xlarge", "ecs.gn6i-c4g1.xlarge", "ecs.gn6i-c8g1.2xlarge", "ecs.gn6i-c16g1.4xlarge",
	"ecs.gn6i-c24g1.6xlarge", "ecs.gn6i-c24g1.12xlarge", "ecs.gn6i-c24g1.24xlarge",
}

func askUnknownIDs(ctx context.Context, a *account) (facts, error) {
	found := facts{}
	for _, kind := range []struct {
		name, service, action string
		list                  string
		p                     parameters
	}{
		{"group", "ess", "DescribeScalingGroups", "ScalingGroups", parameters{}.list("ScalingGroupId", strange("asg-", 1)...)},
		{"instance", "ess", "DescribeScalingInstances", "ScalingInstances", parameters{}.list("InstanceId", strange("i-", 1)...)},
		{"activity", "ess", "DescribeScalingActivities", "ScalingActivities", parameters{}.list("ScalingActivityId", strange("asa-", 1)...)},
		{"configuration", "ess", "DescribeScalingConfigurations", "ScalingConfigurations", parameters{}.list("ScalingConfigurationId", strange("asc-", 1)...)},
		{"vm", "ecs", "DescribeInstances", "Instances", parameters{"InstanceIds": jsonList(strange("i-", 1))}},
		{"type", "ecs", "DescribeInstanceTypes", "InstanceTypes", parameters{}.list("InstanceTypes", "ecs.zz9-c0g0.large")},
		{"vswitch", "vpc", "DescribeVSwitches", "VSwitches", parameters{"VSwitchId": strange("vsw-", 1)[0]}},
	} {
		body, err := a.call(ctx, kind.service, kind.action, kind.p)
		word, err := verdict(err)
		switch {
		case err != nil:
			return found, err
		case word == "accepted" && len(body.list(kind.list)) == 0:
			word = "left out"
		case word == "accepted":
			word = "the filter is ignored"
		}
		found[kind.name] = word
	}
	return found, nil
}

func askInstancesOfAllGroups(ctx context.Context, a *account) (facts, error) {
	_, err := a.ess(ctx, "DescribeScalingInstances", parameters{"PageSize": "10"})
	word, err := verdict(err)
	found := facts{"no group named": word}
	if err != nil || word != "accepted" {
		return found, err
	}
	all, err := a.client.ScalingInstances(ctx, instanceFilter(""))
	if err != nil || len(all) == 0 {
		return found, err
	}
	some := all[0].ScalingGroupID
	own, err := a.client.ScalingInstances(ctx, instanceFilter(some))
	if err != nil {
		return found, err
	}
	among := true
	for _, i := range own {
		among = among && slices.ContainsFunc(all, sameInstance(i.ID))
	}
	found["those of one group are among them"] = yesNo(among)
	return found, nil
}

func askTagFilter(ctx context.Context, a *account) (facts, error) {
	g, err := a.describeGroup(ctx, a.group)
	if err != nil {
		return nil, err
	}
	tags := g.list("Tags")
	if len(tags) == 0 {
		return nil, cannotTell("the group has no tags")
	}
	key, value := tags[0].text("TagKey"), tags[0].text("TagValue")
	found := facts{}
	for name, p := range map[string]parameters{
		"key and value":             {"Tag.1.Key": key, "Tag.1.Value": value},
		"key alone":                 {"Tag.1.Key": key},
		"a value that no group has": {"Tag.1.Key": key, "Tag.1.Value": "no-group-has-this"},
	} {
		body, err := a.ess(ctx, "DescribeScalingGroups", p.with("PageSize", 50))
		if err != nil {
			return found, err
		}
		found[name] = filtered(body.list("ScalingGroups"), a.group, func(g object) bool {
			return slices.ContainsFunc(g.list("Tags"), func(t object) bool {
				return t.text("TagKey") == key && (p["Tag.1.Value"] == "" || t.text("TagValue") == p["Tag.1.Value"])
			})
		})
	}
	return found, nil
}

// filtered says what a listing has that was to hold only groups that match, our own among them.
func filtered(groups []object, own string, matches func(object) bool) string {
	foreign, here := 0, false
	for _, g := range groups {
		if !matches(g) {
			foreign++
		}
		here = here || g.text("ScalingGroupId") == own
	}
	switch {
	case foreign > 0:
		return "others too"
	case len(groups) == 0:
		return "none"
	case !here && len(groups) < 50:
		return "not ours"
	}
	return "only those"
}
