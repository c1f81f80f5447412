package alicloud

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/responses"
	essapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ess"
	"golang.org/x/sync/errgroup"
)

// maxActivityPages is how far a listing of finished activities goes from either end.
const maxActivityPages = 20

// Activities returns the scaling activities of the ids; those that do not exist are left out.
func (c *Client) Activities(ctx context.Context, ids []string) ([]Activity, error) {
	return inBatches(ctx, ids, essIDBatch, func(ctx context.Context, ids []string) ([]Activity, error) {
		found, err := c.activitiesPage(ctx, 1, func(q *essapi.DescribeScalingActivitiesRequest) { q.ScalingActivityId = listOf(ids) })
		return found.items, err
	})
}

// ActivitiesInProgress returns all activities of a group that are in progress.
func (c *Client) ActivitiesInProgress(ctx context.Context, groupID string) ([]Activity, error) {
	return listPages(ctx, essPageSize, activityID, func(ctx context.Context, number int) (page[Activity], error) {
		return c.activitiesPage(ctx, number, func(q *essapi.DescribeScalingActivitiesRequest) {
			q.ScalingGroupId, q.StatusCode = groupID, ActivityInProgress
		})
	})
}

// GroupActivities returns the activities of a group that are in progress and those that began since then, in no
// particular order; older ones may be among them.
//
// DescribeScalingActivities reaches back 30 days, and the order of its list is not documented. So what is in progress is
// asked for by its status, as no number of later activities hides it then, and the rest is read from both ends of the
// list inwards, up to a page that holds nothing so young.
func (c *Client) GroupActivities(ctx context.Context, groupID string, since time.Time) ([]Activity, error) {
	var underWay, recent []Activity
	asking, asked := errgroup.WithContext(ctx)
	asking.Go(func() (err error) {
		underWay, err = c.ActivitiesInProgress(asked, groupID)
		return err
	})
	asking.Go(func() (err error) {
		recent, err = c.recentActivities(asked, groupID, since)
		return err
	})
	if err := asking.Wait(); err != nil {
		return nil, err
	}
	// What is in both lists ended in between, or began: the later reply cannot be told, the end can.
	newest := map[string]Activity{}
	for _, a := range slices.Concat(underWay, recent) {
		if known, twice := newest[a.ID]; !twice || !known.Done() {
			newest[a.ID] = a
		}
	}
	all := make([]Activity, 0, len(newest))
	for _, a := range newest {
		all = append(all, a)
	}
	return all, nil
}

func (c *Client) recentActivities(ctx context.Context, groupID string, since time.Time) ([]Activity, error) {
	fetch := func(number int) (page[Activity], error) {
		return c.activitiesPage(ctx, number, func(q *essapi.DescribeScalingActivitiesRequest) { q.ScalingGroupId = groupID })
	}
	first, err := fetch(1)
	if err != nil {
		return nil, err
	}
	size := first.size
	if size <= 0 {
		size = essPageSize
	}
	last := (first.total + size - 1) / size
	all := first.items
	front := 2
	for young := holdsYoung(first.items, since); young && front <= min(last, maxActivityPages); front++ {
		next, err := fetch(front)
		if err != nil {
			return nil, err
		}
		all, young = append(all, next.items...), holdsYoung(next.items, since)
	}
	for back, young := last, true; young && back >= front && last-back < maxActivityPages; back-- {
		next, err := fetch(back)
		if err != nil {
			return nil, err
		}
		all, young = append(all, next.items...), holdsYoung(next.items, since)
	}
	return all, nil
}

func holdsYoung(activities []Activity, since time.Time) bool {
	return slices.ContainsFunc(activities, func(a Activity) bool { return a.Started.IsZero() || !a.Started.Before(since) })
}

func activityID(a Activity) string { return a.ID }

// activitiesReply is essapi.DescribeScalingActivitiesResponse but for ErrorMessages, of which no document shows the form.
// What the SDK takes it for (v1.63.107) would fail the whole reply where it is not so.
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

func (c *Client) activitiesPage(ctx context.Context, number int, narrow func(*essapi.DescribeScalingActivitiesRequest)) (page[Activity], error) {
	r, err := send(ctx, c, request[*activitiesReply]{
		service: ess, action: "DescribeScalingActivities",
		response: func() *activitiesReply { return &activitiesReply{BaseResponse: &responses.BaseResponse{}} },
		build: func() requests.AcsRequest {
			q := essapi.CreateDescribeScalingActivitiesRequest()
			q.PageSize, q.PageNumber = requests.NewInteger(essPageSize), requests.NewInteger(number)
			narrow(q)
			return q
		}})
	if err != nil {
		return page[Activity]{}, err
	}
	return page[Activity]{convert(r.ScalingActivities.ScalingActivity, activity), r.PageSize, r.TotalCount}, nil
}

func activity(a *activityReply) Activity {
	out := Activity{
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
		out.ErrorCode, out.ErrorMessage = tellingFailure(failures, out)
	}
	return out
}

// tellingFailure returns the failure that says most: the first whose code is known, else the first. The code may stand in
// text only: "-" for StatusMessage, and Detail
//
//	Fail to create Instances into scaling group(code:"InvalidSystemDiskCategory.ValueNotSupported", msg:"The specified …").
//
// once for each attempt (aliyun/terraform-provider-alicloud issue 3301).
func tellingFailure(failures []failure, a Activity) (code, message string) {
	if len(failures) == 0 {
		failures = failuresInText(a.StatusDetail)
	}
	if len(failures) == 0 && a.Done() && a.Status != ActivitySuccessful {
		if code := codeOfPhrase(a.StatusDetail + " " + a.ErrorMessage); code != "" {
			failures = []failure{{code: code, message: a.StatusDetail}}
		}
	}
	if len(failures) == 0 {
		return "", a.ErrorMessage
	}
	known := slices.IndexFunc(failures, func(f failure) bool { return ClassOfCode(f.code) != Unknown })
	telling := failures[max(0, known)]
	if telling.message == "" {
		telling.message = a.ErrorMessage
	}
	return telling.code, telling.message
}

// failure is one reason why an activity came short.
type failure struct {
	code, message string
	instances     []string
}

// failuresOf reads ErrorMessages, whose items have Code, Message and FailedInstanceIds, the instances that were created
// and rolled back (SDK v1.63.107). Lists may be plain, or under a name of their own as is the custom of 2014-08-28.
// What cannot be read is left out.
func failuresOf(text json.RawMessage) (failures []failure) {
	for _, item := range itemsOf(text) {
		var one struct {
			Code, Message, Description string
			FailedInstanceIds          json.RawMessage
		}
		if json.Unmarshal(item, &one) != nil || one.Code == "" && one.FailedInstanceIds == nil {
			continue
		}
		f := failure{code: one.Code, message: one.Message}
		if f.message == "" {
			f.message = one.Description
		}
		for _, id := range itemsOf(one.FailedInstanceIds) {
			var instance string
			if json.Unmarshal(id, &instance) == nil && instance != "" {
				f.instances = append(f.instances, instance)
			}
		}
		failures = append(failures, f)
	}
	return failures
}

// itemsOf returns the items of a list, be it plain or under a name of its own.
func itemsOf(text json.RawMessage) (items []json.RawMessage) {
	if json.Unmarshal(text, &items) == nil {
		return items
	}
	var named map[string][]json.RawMessage
	if json.Unmarshal(text, &named) != nil {
		return nil
	}
	for _, list := range named {
		items = append(items, list...)
	}
	return items
}

var codeInText = regexp.MustCompile(`code:\s*"([^"]+)"(?:,\s*msg:\s*"(.*?)"\))?`)

func failuresInText(text string) (failures []failure) {
	for _, found := range codeInText.FindAllStringSubmatch(text, -1) {
		failures = append(failures, failure{code: found[1], message: found[2]})
	}
	return failures
}

// joinTexts joins what several fields say. ESS writes "-" for nothing, and what it tried several times it tells as often.
func joinTexts(texts ...string) string {
	var said []string
	for _, text := range texts {
		for sentence := range strings.SplitAfterSeq(text, "). ") {
			sentence = strings.TrimSpace(sentence)
			if sentence != "" && sentence != "-" && !slices.Contains(said, sentence) {
				said = append(said, sentence)
			}
		}
	}
	return strings.Join(said, " ")
}

// addedInstances finds the number in a description: Add "6" ECS instances (sample output of DescribeScalingActivities).
var addedInstances = regexp.MustCompile(`(?i)^add\s+"?(\d+)"?`)

func adding(description string) int {
	if found := addedInstances.FindStringSubmatch(strings.TrimSpace(description)); found != nil {
		n, _ := strconv.Atoi(found[1]) // 0 where there are too many digits
		return n
	}
	return 0
}
