package ess

import (
	"slices"
	"strconv"

	"gpu-spot-autoscaler/test/alisim/cloud"
	"gpu-spot-autoscaler/test/alisim/protocol"
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
type activityActions struct{ *Scaling }

func (s activityActions) activityJSON(a *activity) activityJSON {
	created := idsOf(a.created)
	if s.cloud.Temper.RolledBackStayNamed {
		created = append(created, a.rolledBack...)
	}
	j := activityJSON{
		ScalingActivityId: a.id, ScalingGroupId: a.group.ID, StatusCode: a.status, StatusMessage: a.statusMessage(),
		Cause: a.cause, Description: a.description(), ActivityMetadata: a.metadata, TriggerSourceType: "Api",
		StartTime: protocol.OptionalTime(a.started, protocol.MinuteLayout), EndTime: protocol.OptionalTime(a.ended, protocol.MinuteLayout),
		Progress: a.progress(), ScalingInstanceNumber: a.purchase.count + len(a.victims), TotalCapacity: strconv.Itoa(a.before),
		CreatedCapacity: len(created), DestroyedCapacity: len(a.removed),
		CreatedInstances: protocol.Wrap("CreatedInstance", created), DestroyedInstances: protocol.Wrap("DestroyedInstance", a.removed),
		ErrorMessages: protocol.Wrap[errorMessageJSON]("ErrorMessages", nil),
	}
	if s.cloud.Temper.CodesInText {
		j.StatusMessage = "-"
	}
	if a.status == activityInProgress {
		return j
	}
	j.Detail = a.detail()
	if a.failure == nil {
		return j
	}
	told := errorMessageJSON{FailedInstanceIds: protocol.Wrap("FailedInstanceIds", append(slices.Clone(a.rolledBack), a.stayed...))}
	if !s.cloud.Temper.CodesInText {
		j.ErrorCode, j.ErrorMessage = a.failure.Code, a.failure.Message
		told.Code, told.Message = a.failure.Code, a.failure.Message
	}
	if told.Code != "" || len(a.rolledBack)+len(a.stayed) > 0 {
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
	var found []*activity
	for _, a := range s.activitiesOf(ids, groupID) {
		if (groupID == "" || a.group.ID == groupID) && (status == "" || a.status == status) {
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
func (s activityActions) activitiesOf(ids []string, groupID string) []*activity {
	var list []*activity
	if len(ids) == 0 {
		if g, known := s.groupByID[groupID]; known {
			list = slices.Clone(g.history)
		}
	} else {
		var named cloud.Roster[*activity]
		for _, id := range ids {
			if a, known := s.activities[id]; known {
				named.Add(a)
			}
		}
		list = named.Items
	}
	if !s.cloud.Temper.OldestFirst {
		slices.Reverse(list)
	}
	return list
}
