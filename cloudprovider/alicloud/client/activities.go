package client

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/responses"
	essapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ess"
	"golang.org/x/sync/errgroup"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/alicloud/paging"
	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
)

// maxActivityPages bounds how many pages of finished activities are read from either end of the list.
const maxActivityPages = 20

// Activities returns the scaling activities with the ids, without those that do not exist.
func (c *ESS) Activities(ctx context.Context, ids []string) ([]alicloud.Activity, error) {
	return paging.Batches(ctx, ids, essIDBatch, func(ctx context.Context, ids []string) ([]alicloud.Activity, error) {
		found, err := c.activitiesPage(ctx, 1, func(q *essapi.DescribeScalingActivitiesRequest) { q.ScalingActivityId = listOf(ids) })
		return found.Items, err
	})
}

// ActivitiesInProgress returns all activities of a group that are in progress.
func (c *ESS) ActivitiesInProgress(ctx context.Context, groupID string) ([]alicloud.Activity, error) {
	call := paging.Call{Service: alicloud.ServiceESS, Action: "DescribeScalingActivities"}
	return paging.Numbered(ctx, call, essPageSize, activityID, func(ctx context.Context, number int) (paging.Page[alicloud.Activity], error) {
		return c.activitiesPage(ctx, number, func(q *essapi.DescribeScalingActivitiesRequest) {
			q.ScalingGroupId, q.StatusCode = groupID, alicloud.ActivityInProgress
		})
	})
}

// GroupActivities returns the activities of a group that are in progress, and those that began at the given time or later, in
// no particular order. Older ones may be among them.
//
// DescribeScalingActivities reaches back 30 days, and the order of its list is not documented. So activities in progress are
// listed by their status, where no number of later activities can hide them. The others are read from both ends of the list
// inwards, up to a page that has only older ones.
func (c *ESS) GroupActivities(ctx context.Context, groupID string, since time.Time) ([]alicloud.Activity, error) {
	var inProgress, recent []alicloud.Activity
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		inProgress, err = c.ActivitiesInProgress(groupCtx, groupID)
		return err
	})
	group.Go(func() (err error) {
		recent, err = c.recentActivities(groupCtx, groupID, since)
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	// An activity that is in both lists began or ended between the replies. Which reply is later is unknown, but an activity
	// that has ended does not begin again.
	byID := map[string]alicloud.Activity{}
	for _, a := range slices.Concat(inProgress, recent) {
		if known, twice := byID[a.ID]; !twice || !known.Done() {
			byID[a.ID] = a
		}
	}
	all := make([]alicloud.Activity, 0, len(byID))
	for _, a := range byID {
		all = append(all, a)
	}
	return all, nil
}

func (c *ESS) recentActivities(ctx context.Context, groupID string, since time.Time) ([]alicloud.Activity, error) {
	fetch := func(number int) (paging.Page[alicloud.Activity], error) {
		return c.activitiesPage(ctx, number, func(q *essapi.DescribeScalingActivitiesRequest) { q.ScalingGroupId = groupID })
	}
	first, err := fetch(1)
	if err != nil {
		return nil, err
	}
	size := first.Size
	if size <= 0 {
		size = essPageSize
	}
	last := (first.Total + size - 1) / size
	all := first.Items
	front := 2
	for more := anySince(first.Items, since); more && front <= min(last, maxActivityPages); front++ {
		next, err := fetch(front)
		if err != nil {
			return nil, err
		}
		all, more = append(all, next.Items...), anySince(next.Items, since)
	}
	for back, more := last, true; more && back >= front && last-back < maxActivityPages; back-- {
		next, err := fetch(back)
		if err != nil {
			return nil, err
		}
		all, more = append(all, next.Items...), anySince(next.Items, since)
	}
	return all, nil
}

// anySince returns whether one of the activities began at the time or later, or does not say when.
func anySince(activities []alicloud.Activity, since time.Time) bool {
	return slices.ContainsFunc(activities, func(a alicloud.Activity) bool { return a.Started.IsZero() || !a.Started.Before(since) })
}

func activityID(a alicloud.Activity) string { return a.ID }

// activitiesReply is essapi.DescribeScalingActivitiesResponse with raw ErrorMessages, whose form is not documented. If it
// differs from what the SDK (v1.63.107) expects, the SDK would fail to decode the whole reply.
type activitiesReply struct {
	*responses.BaseResponse
	PageSize          int
	TotalCount        int
	ScalingActivities struct{ ScalingActivity []activityReply }
}

type activityReply struct {
	essapi.ScalingActivity
	ErrorMessages json.RawMessage
}

func (c *ESS) activitiesPage(ctx context.Context, number int, narrow func(*essapi.DescribeScalingActivitiesRequest)) (paging.Page[alicloud.Activity], error) {
	r, err := rpc.Send(ctx, c.caller, rpc.Request[*activitiesReply]{
		Service: alicloud.ServiceESS, Action: "DescribeScalingActivities",
		Response: func() *activitiesReply { return &activitiesReply{BaseResponse: &responses.BaseResponse{}} },
		Build: func() requests.AcsRequest {
			q := essapi.CreateDescribeScalingActivitiesRequest()
			q.PageSize, q.PageNumber = requests.NewInteger(essPageSize), requests.NewInteger(number)
			narrow(q)
			return q
		}})
	if err != nil {
		return paging.Page[alicloud.Activity]{}, err
	}
	return paging.Page[alicloud.Activity]{
		Items: convert(r.ScalingActivities.ScalingActivity, activity), Size: r.PageSize, Total: r.TotalCount,
	}, nil
}

func activity(a *activityReply) alicloud.Activity {
	out := alicloud.Activity{
		ID: a.ScalingActivityId, ScalingGroupID: a.ScalingGroupId, Status: a.StatusCode,
		StatusDetail: joinTexts(a.StatusMessage, a.Detail), ErrorCode: a.ErrorCode, ErrorMessage: a.ErrorMessage,
		Metadata: a.ActivityMetadata, Adding: adding(a.Description), CreatedCapacity: a.CreatedCapacity,
		CreatedInstances: a.CreatedInstances.CreatedInstance,
		Started:          parseTime(a.StartTime), Ended: parseTime(a.EndTime),
	}
	failures := failuresOf(a.ErrorMessages)
	for _, f := range failures {
		out.FailedInstances = append(out.FailedInstances, f.instances...)
	}
	if out.ErrorCode == "" {
		out.ErrorCode, out.ErrorMessage = mainFailure(failures, out)
	}
	return out
}
