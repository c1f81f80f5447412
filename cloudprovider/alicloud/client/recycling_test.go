package client

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// locked answers with an instance that is about to be released if the filter is asked in this spelling, and otherwise
// with nothing, or with the refusal.
func locked(spelling, reason string, otherwise answer) func(url.Values) answer {
	return func(q url.Values) answer {
		if q.Get("LockReason") != spelling {
			return otherwise
		}
		return raw(fmt.Sprintf(`{"Instances":{"Instance":[{"InstanceId":"i-1","Status":"Running",
			"OperationLocks":{"LockReason":[{"LockReason":%q}]}}]}}`, reason))
	}
}

func filters(requests []url.Values) (asked []string) {
	for _, q := range requests {
		asked = append(asked, q.Get("LockReason"))
	}
	return asked
}

func TestRecyclingInstancesAreAskedForInTheSpellingThatWorks(t *testing.T) {
	nothing := raw(`{"Instances":{"Instance":[]}}`)
	for name, test := range map[string]struct {
		answer func(url.Values) answer
		asked  []string // by two calls
	}{
		"that of the API metadata":                  {locked("recycling", "recycling", nothing), []string{"recycling", "recycling"}},
		"that of the Chinese pages":                 {locked("Recycling", "Recycling", nothing), []string{"recycling", "Recycling", "Recycling"}},
		"asked in one, answered in the other":       {locked("recycling", "Recycling", nothing), []string{"recycling", "recycling"}},
		"if the other is refused":                   {locked("Recycling", "Recycling", refuse(400, "InvalidLockReason")), []string{"recycling", "Recycling", "Recycling"}},
		"if the other is refused in an unknown way": {locked("Recycling", "Recycling", refuse(400, "Surprise")), []string{"recycling", "Recycling", "Recycling"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, test.answer)
			client := w.client()
			for range 2 {
				found, err := client.RecyclingInstances(t.Context())
				require.NoError(t, err)
				require.Len(t, found, 1)
				assert.Equal(t, "i-1", found[0].ID)
			}
			assert.Equal(t, test.asked, filters(w.seen("DescribeInstances")))
		})
	}
}

func TestBothSpellingsAreAskedForAsLongAsNothingIsRecycling(t *testing.T) {
	w := newWire(t, func(url.Values) answer { return raw(`{"Instances":{"Instance":[]}}`) })
	client := w.client()
	for range 2 {
		found, err := client.RecyclingInstances(t.Context())
		require.NoError(t, err)
		assert.Empty(t, found)
	}
	assert.Equal(t, []string{"recycling", "Recycling", "recycling", "Recycling"}, filters(w.seen("DescribeInstances")))
}

func TestNobodyIsSureThatNothingIsRecyclingWithoutAnAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		other answer
		fails bool
	}{
		"one spelling is throttled":   {refuse(400, "Throttling.User"), true},
		"one spelling has no answer":  {answer{cut: true}, true},
		"one spelling does not exist": {refuse(400, "InvalidLockReason"), false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, func(q url.Values) answer {
				if q.Get("LockReason") == "recycling" {
					return test.other
				}
				return raw(`{"Instances":{"Instance":[]}}`)
			})
			_, err := w.client().RecyclingInstances(t.Context())
			assert.Equal(t, test.fails, err != nil, "%v", err)
		})
	}
	w := newWire(t, func(url.Values) answer { return refuse(403, "Forbidden.RAM") })
	_, err := w.client().RecyclingInstances(t.Context())
	assert.Equal(t, alicloud.Unauthorized, alicloud.ClassOf(err), "both are refused: that is no answer")
}

// A filter that is ignored lists every instance there is, and all of them would be drained.
func TestOnlyWhatIsLockedForItIsRecycling(t *testing.T) {
	w := newWire(t, func(url.Values) answer {
		return raw(`{"Instances":{"Instance":[{"InstanceId":"i-plain","Status":"Running"},
			{"InstanceId":"i-secured","OperationLocks":{"LockReason":[{"LockReason":"security"}]}},
			{"InstanceId":"i-going","Status":"Stopped","OperationLocks":{"LockReason":[{"LockReason":"security"},{"LockReason":"RECYCLING"}]},
			 "SpotInterruptionBehavior":"Stop"}]}}`)
	})
	found, err := w.client().RecyclingInstances(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Equal(t, "i-going", found[0].ID)
	assert.Equal(t, []string{"security", "RECYCLING"}, found[0].LockReasons)
	assert.Equal(t, alicloud.InterruptionStop, found[0].InterruptionBehavior)
}

func TestRecyclingInstancesAreListedToTheEnd(t *testing.T) {
	w := newWire(t, func(q url.Values) answer {
		next := map[string]string{"": "p2", "p2": "p3", "p3": ""}[q.Get("NextToken")]
		return raw(fmt.Sprintf(`{"NextToken":%q,"Instances":{"Instance":[{"InstanceId":"i-%s","OperationLocks":{"LockReason":[
			{"LockReason":"Recycling","LockMsg":""}]}}]}}`, next, q.Get("NextToken")))
	})
	got, err := w.client().RecyclingInstances(t.Context())
	require.NoError(t, err)
	assert.Len(t, got, 3)
	for _, q := range w.seen("DescribeInstances") {
		assertParameters(t, map[string]string{"LockReason": "recycling", "MaxResults": "100"}, q)
	}
}

func TestAListingThatGoesInCirclesIsAnError(t *testing.T) {
	w := newWire(t, func(url.Values) answer { return raw(`{"NextToken":"same","Instances":{"Instance":[]}}`) })
	_, err := w.client().Instances(t.Context(), []string{"i-1"})
	assert.Equal(t, alicloud.CodeIncomplete, alicloud.CodeOf(err))
	assert.Len(t, w.seen("DescribeInstances"), 2)
}
