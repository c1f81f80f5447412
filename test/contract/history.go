package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

func historyQuestions() []question {
	return []question{{
		name:     "activity-order",
		asks:     "In which order does DescribeScalingActivities list a group's activities?",
		matters:  "A purchase under way that stands behind fifty others is not on the first page.",
		source:   guess,
		rules:    []string{"oldestFirst"},
		believed: facts{"order": "oldest first"},
		ask:      askActivityOrder,
	}, {
		name:     "activity-filter",
		asks:     "Does StatusCode narrow a listing of activities to those of that status?",
		matters:  "With it a purchase under way is found behind however many that ended.",
		source:   metadata + ": StatusCode Successful, Warning, Failed, InProgress, Rejected",
		believed: facts{"Successful": "only those", "InProgress": "only those"},
		ask:      askActivityFilter,
	}, {
		name:    "activity-fields",
		asks:    "Which of the fields that the autoscaler reads does an activity have that ended, and in what form?",
		matters: "Stock, price and quota failures are told there and nowhere else.",
		source:  "DescribeScalingActivities in " + goSDK + "; " + essPages,
		believed: facts{
			"ScalingActivityId": "asa-…", "ScalingGroupId": "asg-…", "StatusCode": "known", "StartTime": "minutes, UTC", "EndTime": "minutes, UTC",
			"StatusMessage": "string", "Progress": "number", "TotalCapacity": "string",
		},
		ask: askActivityFields,
	}, {
		name:    "failure-codes",
		asks:    "Where does an activity that failed say why: in ErrorCode, in ErrorMessages, or only in its text?",
		matters: "A stockout that is not known for one is bought again at once instead of in another zone.",
		source:  "aliyun/terraform-provider-alicloud issue 3301: only in Detail; " + docComment + ": ErrorCode and ErrorMessages",
		rules:   []string{"codesInText"},
		believed: facts{
			"ErrorCode": "never", "ErrorMessages": "never", "in the text only": "seen", "a code of a class that is known": "yes",
		},
		ask: askFailureCodes,
	}}
}

// listActivities returns the last fifty of the group, in the order of the reply.
func listActivities(ctx context.Context, a *account, status string) ([]object, error) {
	p := parameters{"ScalingGroupId": a.group, "PageSize": "50"}
	if status != "" {
		p = p.with("StatusCode", status)
	}
	body, err := a.ess(ctx, "DescribeScalingActivities", p)
	return body.list("ScalingActivities"), err
}

func askActivityOrder(ctx context.Context, a *account) (facts, error) {
	list, err := listActivities(ctx, a, "")
	if err != nil {
		return nil, err
	}
	var ours []int
	var times []time.Time
	for _, activity := range list {
		if n := slices.Index(a.begun, activity.text("ScalingActivityId")); n >= 0 {
			ours = append(ours, n)
		}
		if at, err := time.Parse("2006-01-02T15:04Z", activity.text("StartTime")); err == nil {
			times = append(times, at)
		}
	}
	switch {
	case len(ours) > 1: // known to the order in which they were asked for
		times = nil
		for _, n := range ours {
			times = append(times, time.Unix(int64(n), 0))
		}
	case len(times) < 2 || slices.MinFunc(times, time.Time.Compare).Equal(slices.MaxFunc(times, time.Time.Compare)):
		return nil, cannotTell("the group has no two activities of different minutes")
	}
	return facts{"order": orderOf(times)}, nil
}

func askActivityFilter(ctx context.Context, a *account) (facts, error) {
	all, err := listActivities(ctx, a, "")
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, cannotTell("the group has no activities")
	}
	found := facts{}
	for _, status := range []string{alicloud.ActivitySuccessful, alicloud.ActivityInProgress} {
		some, err := listActivities(ctx, a, status)
		word, err := verdict(err)
		if err != nil {
			return found, err
		}
		other := func(o object) bool { return o.text("StatusCode") != status }
		if found[status] = word; word == "accepted" {
			found[status] = "only those"
			if slices.ContainsFunc(some, other) {
				found[status] = "others too"
			}
		}
	}
	return found, nil
}

func askActivityFields(ctx context.Context, a *account) (facts, error) {
	list, err := listActivities(ctx, a, "")
	if err != nil {
		return nil, err
	}
	for _, activity := range list {
		if activity.text("StatusCode") == alicloud.ActivityInProgress {
			continue
		}
		found := kinds(activity, "StatusMessage", "Progress", "TotalCapacity")
		found["ScalingActivityId"] = prefixed(activity.text("ScalingActivityId"), "asa-")
		found["ScalingGroupId"] = prefixed(activity.text("ScalingGroupId"), "asg-")
		found["StatusCode"] = known(activity.text("StatusCode"), alicloud.ActivitySuccessful, alicloud.ActivityWarning,
			alicloud.ActivityFailed, alicloud.ActivityRejected)
		found["StartTime"], found["EndTime"] = timeForm(activity.text("StartTime")), timeForm(activity.text("EndTime"))
		return found, nil
	}
	return nil, cannotTell("the group has no activity that ended")
}

func askFailureCodes(ctx context.Context, a *account) (facts, error) {
	found := facts{"ErrorCode": "never", "ErrorMessages": "never"}
	failed := 0
	for _, status := range []string{alicloud.ActivityFailed, alicloud.ActivityWarning} {
		list, err := listActivities(ctx, a, status)
		if err != nil {
			return nil, err
		}
		for _, activity := range list {
			if !strings.HasPrefix(activity.text("Description"), "Add") {
				continue // of a removal
			}
			failed++
			noteFailure(ctx, a, activity, found)
		}
	}
	if failed == 0 {
		return nil, cannotTell("no purchase of the group has failed")
	}
	return found, nil
}

// noteFailure notes where an activity has its code.
func noteFailure(ctx context.Context, a *account, activity object, found facts) {
	told := false
	if activity.text("ErrorCode") != "" {
		found["ErrorCode"], told = "seen", true
	}
	for _, message := range activity.list("ErrorMessages") {
		found["ErrorMessages"], told = "seen", true
		if len(message.texts("FailedInstanceIds")) > 0 {
			found["instances that were rolled back"] = "named"
		}
	}
	if !told {
		found["in the text only"] = "seen"
	}
	read, err := a.client.Activities(ctx, []string{activity.text("ScalingActivityId")})
	if err != nil || len(read) == 0 {
		return
	}
	class := alicloud.ClassOfCode(read[0].ErrorCode)
	found["a code of a class that is known"] = yesNo(class != "" && class != alicloud.Unknown)
}
