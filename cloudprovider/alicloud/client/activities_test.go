package client

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

func TestActivities(t *testing.T) {
	w := newWire(t, func(url.Values) answer {
		return raw(`{"TotalCount":2,"ScalingActivities":{"ScalingActivity":[
		{"ScalingActivityId":"asa-1","ScalingGroupId":"asg-1","StatusCode":"Failed","StatusMessage":"no stock","ErrorCode":"OperationDenied.NoStock",
		 "ErrorMessage":"The resource is out of stock.","ActivityMetadata":"offering","StartTime":"2025-01-02T03:04Z","EndTime":"2025-01-02T03:05:06Z"},
		{"ScalingActivityId":"asa-2","ScalingGroupId":"asg-1","StatusCode":"InProgress","Detail":"adding","CreatedInstances":{"CreatedInstance":["i-1"]},"StartTime":"2025-01-02T03:06Z"}]}}`)
	})
	c := w.client()
	failed := alicloud.Activity{ID: "asa-1", ScalingGroupID: "asg-1", Status: alicloud.ActivityFailed, StatusDetail: "no stock", ErrorCode: "OperationDenied.NoStock",
		ErrorMessage: "The resource is out of stock.", Metadata: "offering",
		Started: time.Date(2025, 1, 2, 3, 4, 0, 0, time.UTC), Ended: time.Date(2025, 1, 2, 3, 5, 6, 0, time.UTC)}
	running := alicloud.Activity{ID: "asa-2", ScalingGroupID: "asg-1", Status: alicloud.ActivityInProgress, StatusDetail: "adding", CreatedInstances: []string{"i-1"},
		Started: time.Date(2025, 1, 2, 3, 6, 0, 0, time.UTC)}

	got, err := c.Activities(t.Context(), []string{"asa-1", "asa-2"})
	require.NoError(t, err)
	assert.Equal(t, []alicloud.Activity{failed, running}, got)
	assert.True(t, got[0].Done())
	assert.False(t, got[1].Done())

	q := w.seen("DescribeScalingActivities")[0]
	assert.Equal(t, []string{"asa-1", "asa-2"}, list(q, "ScalingActivityId"))
}

// history answers with pages of activities in the given order, filtered by status.
func history(activities []object) func(url.Values) answer {
	return func(q url.Values) answer {
		found := slices.DeleteFunc(slices.Clone(activities), func(a object) bool {
			return q.Get("StatusCode") != "" && a["StatusCode"] != q.Get("StatusCode")
		})
		return pageOf(q, "ScalingActivities", "ScalingActivity", found)
	}
}

func TestGroupActivitiesAreFoundInWhateverOrderTheyAreListed(t *testing.T) {
	const old, young = 400, 130
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	began := func(id string, ago time.Duration, status string) object {
		return object{"ScalingActivityId": id, "ScalingGroupId": "asg-1", "StatusCode": status, "StartTime": now.Add(-ago).Format("2006-01-02T15:04Z")}
	}
	var newestFirst []object
	want := []string{"asa-long"}
	for n := range young {
		id := fmt.Sprintf("asa-young-%03d", n)
		newestFirst = append(newestFirst, began(id, time.Duration(n)*20*time.Second, alicloud.ActivityFailed))
		want = append(want, id)
	}
	for n := range old {
		newestFirst = append(newestFirst, began(fmt.Sprintf("asa-old-%03d", n), 2*time.Hour+time.Duration(n)*time.Minute, alicloud.ActivitySuccessful))
	}
	newestFirst = append(newestFirst, began("asa-long", 24*time.Hour, alicloud.ActivityInProgress))
	oldestFirst := slices.Clone(newestFirst)
	slices.Reverse(oldestFirst)

	for name, order := range map[string][]object{"the newest first": newestFirst, "the oldest first": oldestFirst} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, history(order))
			got, err := w.client().GroupActivities(t.Context(), "asg-1", now.Add(-time.Hour))
			require.NoError(t, err)
			var ids []string
			for _, a := range got {
				ids = append(ids, a.ID)
			}
			assert.Subset(t, ids, want)
			assert.Len(t, sets.New(ids...), len(ids), "each once")
			assert.LessOrEqual(t, len(w.seen("DescribeScalingActivities")), 1+6, "no page is read that can hold nothing young")
		})
	}
}

func TestActivitiesInProgress(t *testing.T) {
	var all []object
	for n := range 70 {
		all = append(all, object{"ScalingActivityId": fmt.Sprintf("asa-%02d", n), "StatusCode": "InProgress"}, object{"ScalingActivityId": fmt.Sprintf("done-%02d", n), "StatusCode": "Successful"})
	}
	w := newWire(t, history(all))
	got, err := w.client().ActivitiesInProgress(t.Context(), "asg-1")
	require.NoError(t, err)
	assert.Len(t, got, 70)
	assertParameters(t, map[string]string{"ScalingGroupId": "asg-1", "StatusCode": "InProgress"}, w.seen("DescribeScalingActivities")[0])
}

func TestActivityThatEndsWhileTheListsAreReadHasEnded(t *testing.T) {
	w := newWire(t, func(q url.Values) answer {
		status := "Successful"
		if q.Get("StatusCode") != "" {
			status = "InProgress" // this list was made before
		}
		return pageOf(q, "ScalingActivities", "ScalingActivity", []object{{"ScalingActivityId": "asa-1", "StatusCode": status}})
	})
	got, err := w.client().GroupActivities(t.Context(), "asg-1", time.Time{})
	require.NoError(t, err)
	require.Len(t, got, 1)
	assert.True(t, got[0].Done())
}

func TestWhyAnActivityFailed(t *testing.T) {
	const attempt = `Fail to create Instances into scaling group(code:\"InvalidSystemDiskCategory.ValueNotSupported\", msg:\"The specified parameter SystemDisk.Category is not valid.\").`
	for name, test := range map[string]struct {
		reply         string
		code, message string
		class         alicloud.Class
		detail        string
		rolledBack    []string
	}{
		"a field says it": {
			`"StatusCode":"Failed","ErrorCode":"QuotaExceed.ElasticQuota","ErrorMessage":"No more."`,
			"QuotaExceed.ElasticQuota", "No more.", alicloud.Quota, "", nil},
		"the text says it, once for each attempt": {
			`"StatusCode":"Failed","StatusMessage":"-","Detail":"` + attempt + ` ` + attempt + `"`,
			"InvalidSystemDiskCategory.ValueNotSupported", "The specified parameter SystemDisk.Category is not valid.", alicloud.Invalid,
			strings.ReplaceAll(attempt, `\"`, `"`), nil},
		"the text of attempts that failed for several reasons": {
			`"StatusCode":"Failed","Detail":"Fail(code:\"Surprise\", msg:\"?\"). Fail(code:\"OperationDenied.NoStock\", msg:\"None (of these) is left.\")."`,
			"OperationDenied.NoStock", `None (of these) is left.`, alicloud.Stockout,
			`Fail(code:"Surprise", msg:"?"). Fail(code:"OperationDenied.NoStock", msg:"None (of these) is left.").`, nil},
		"the text has no code, and says it in words": {
			`"StatusCode":"Failed","StatusMessage":"The resource is out of stock in the specified zone."`,
			"OperationDenied.NoStock", "The resource is out of stock in the specified zone.", alicloud.Stockout,
			"The resource is out of stock in the specified zone.", nil},
		"it was rejected because the group is at its maximum": {
			`"StatusCode":"Rejected","StatusMessage":"To execute the specified scaling rule, the total capacity will not change."`,
			alicloud.CodeNoChange, "To execute the specified scaling rule, the total capacity will not change.", alicloud.Quota,
			"To execute the specified scaling rule, the total capacity will not change.", nil},
		"a list of messages says it, and what was rolled back": {
			`"StatusCode":"Warning","ErrorMessages":[{"Code":"OperationDenied.NoStock","Message":"none left","FailedInstanceIds":["i-1","i-2"]}]`,
			"OperationDenied.NoStock", "none left", alicloud.Stockout, "", []string{"i-1", "i-2"}},
		"the same in the form that the SDK expects": {
			`"StatusCode":"Warning","ErrorMessages":{"ErrorMessages":[{"Code":"OperationDenied.NoStock","Description":"none left","FailedInstanceIds":{"FailedInstanceIds":["i-1"]}}]}`,
			"OperationDenied.NoStock", "none left", alicloud.Stockout, "", []string{"i-1"}},
		"the same under the names that are the custom of this API": {
			`"StatusCode":"Warning","ErrorMessages":{"ErrorMessage":[{"Code":"OperationDenied.NoStock","FailedInstanceIds":{"FailedInstanceId":["i-1"]}}]}`,
			"OperationDenied.NoStock", "", alicloud.Stockout, "", []string{"i-1"}},
		"a list says what was rolled back, and the text why": {
			`"StatusCode":"Warning","Detail":"Fail(code:\"OperationDenied.NoStock\", msg:\"none left\").","ErrorMessages":[{"FailedInstanceIds":["i-1"]}]`,
			"OperationDenied.NoStock", "none left", alicloud.Stockout, `Fail(code:"OperationDenied.NoStock", msg:"none left").`, []string{"i-1"}},
		"messages that cannot be read hide nothing else": {
			`"StatusCode":"Failed","ErrorMessages":"later","Detail":"gone"`, "", "", "", "gone", nil},
		"nobody knows": {`"StatusCode":"Failed","StatusMessage":"-","Detail":"no reason given"`, "", "", "", "no reason given", nil},
		"a success names no failure": {
			`"StatusCode":"Successful","StatusMessage":"\"1\" ECS instances are added; one type was out of stock"`, "", "", "",
			`"1" ECS instances are added; one type was out of stock`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, func(url.Values) answer {
				return raw(`{"TotalCount":1,"ScalingActivities":{"ScalingActivity":[{"ScalingActivityId":"asa-1",` + test.reply + `}]}}`)
			})
			activities, err := w.client().Activities(t.Context(), []string{"asa-1"})
			require.NoError(t, err)
			require.Len(t, activities, 1)
			got := activities[0]
			assert.Equal(t, test.code, got.ErrorCode)
			assert.Equal(t, test.message, got.ErrorMessage)
			assert.Equal(t, test.class, alicloud.ClassOfCode(got.ErrorCode))
			assert.Equal(t, test.detail, got.StatusDetail)
			assert.Equal(t, test.rolledBack, got.FailedInstances)
		})
	}
}

func TestHowManyInstancesAnActivityIsToAdd(t *testing.T) {
	for description, want := range map[string]int{
		`Add "6" ECS instances`:    6,
		`Add "1" ECS instance`:     1,
		`Add 3 instances.`:         3,
		`Remove "6" ECS instances`: 0,
		`Attach "2" ECS instances`: 0,
		``:                         0,
	} {
		assert.Equal(t, want, adding(description), description)
	}
}
