package ess

import (
	"slices"
	"strconv"

	"gpu-spot-autoscaler/test/alisim/cloud"
	"gpu-spot-autoscaler/test/alisim/protocol"
	"gpu-spot-autoscaler/test/alisim/scaling"
)

type activityJSON struct {
	ScalingActivityId, ScalingGroupId, StatusCode, StatusMessage string
	Cause, Description, ActivityMetadata, TriggerSourceType      string
	ErrorCode, ErrorMessage, Detail                              string
	StartTime, EndTime                                           string
	Progress, ScalingInstanceNumber                              int
	CreatedCapacity, DestroyedCapacity                           int
	TotalCapacity                                                string
	CreatedInstances, DestroyedInstances                         map[string][]string
	ErrorMessages                                                map[string][]errorMessageJSON
}

type errorMessageJSON struct {
	Code, Message, Description string
	FailedInstanceIds          map[string][]string
}

// activityActions answers the requests about scaling activities.
type activityActions struct{ *scaling.Engine }

func (s activityActions) activityJSON(a *scaling.Activity) activityJSON {
	created := scaling.MemberIDs(a.Created)
	if s.Cloud.Temper.RolledBackStayNamed {
		created = append(created, a.RolledBack...)
	}
	j := activityJSON{
		ScalingActivityId: a.ID, ScalingGroupId: a.Group.ID, StatusCode: a.Status, StatusMessage: a.StatusMessage(),
		Cause: a.Cause, Description: a.Description(), ActivityMetadata: a.Metadata, TriggerSourceType: "Api",
		StartTime: protocol.OptionalTime(a.Started, protocol.MinuteLayout), EndTime: protocol.OptionalTime(a.Ended, protocol.MinuteLayout),
		Progress: a.Progress(), ScalingInstanceNumber: a.Purchase.Count + len(a.Victims), TotalCapacity: strconv.Itoa(a.Before),
		CreatedCapacity: len(created), DestroyedCapacity: len(a.Removed),
		CreatedInstances: protocol.Wrap("CreatedInstance", created), DestroyedInstances: protocol.Wrap("DestroyedInstance", a.Removed),
		ErrorMessages: protocol.Wrap[errorMessageJSON]("ErrorMessages", nil),
	}
	if s.Cloud.Temper.CodesInText {
		j.StatusMessage = "-"
	}
	if a.Status == scaling.ActivityInProgress {
		return j
	}
	j.Detail = a.Detail()
	if a.Failure == nil {
		return j
	}
	told := errorMessageJSON{FailedInstanceIds: protocol.Wrap("FailedInstanceIds", append(slices.Clone(a.RolledBack), a.Stayed...))}
	if !s.Cloud.Temper.CodesInText {
		j.ErrorCode, j.ErrorMessage = a.Failure.Code, a.Failure.Message
		told.Code, told.Message = a.Failure.Code, a.Failure.Message
	}
	if told.Code != "" || len(a.RolledBack)+len(a.Stayed) > 0 {
		j.ErrorMessages = protocol.Wrap("ErrorMessages", []errorMessageJSON{told})
	}
	return j
}

func (s activityActions) describeScalingActivities(r *protocol.Request) (protocol.Reply, error) {
	pages, err := r.Paging(maxESSPage)
	if err != nil {
		return nil, err
	}
	ids, err := r.List("ScalingActivityId", maxESSList)
	if err != nil {
		return nil, err
	}
	groupID, status := r.Get("ScalingGroupId"), r.Get("StatusCode")
	if groupID == "" && len(ids) == 0 {
		return nil, protocol.Missing("ScalingGroupId")
	}
	var found []*scaling.Activity
	for _, a := range s.activitiesOf(ids, groupID) {
		if (groupID == "" || a.Group.ID == groupID) && (status == "" || a.Status == status) {
			found = append(found, a)
		}
	}
	var list []activityJSON
	for _, a := range protocol.Page(found, pages) {
		list = append(list, s.activityJSON(a))
	}
	return protocol.Reply{
		"TotalCount": len(found), "PageNumber": pages.Number, "PageSize": pages.Size,
		"ScalingActivities": protocol.Wrap("ScalingActivity", list),
	}, nil
}

// activitiesOf returns the named activities, else those of the group, newest first unless the temper lists them the other
// way round.
func (s activityActions) activitiesOf(ids []string, groupID string) []*scaling.Activity {
	var list []*scaling.Activity
	if len(ids) == 0 {
		if g, known := s.FindGroup(groupID); known {
			list = slices.Clone(g.History)
		}
	} else {
		var named cloud.Roster[*scaling.Activity]
		for _, id := range ids {
			if a, known := s.FindActivity(id); known {
				named.Add(a)
			}
		}
		list = named.Items
	}
	if !s.Cloud.Temper.OldestFirst {
		slices.Reverse(list)
	}
	return list
}
