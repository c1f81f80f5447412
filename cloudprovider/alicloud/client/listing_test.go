package client

import (
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

func TestTenThousandInstances(t *testing.T) {
	const instances = 10_000
	all := scalingInstances(instances)
	w := newWire(t, func(q url.Values) answer {
		time.Sleep(20 * time.Millisecond) // the latency of a cloud call, not a wait for anything
		return pageOf(q, "ScalingInstances", "ScalingInstance", all)
	})
	c := w.client()
	began := time.Now()
	got, err := c.ScalingInstances(t.Context(), alicloud.InstanceFilter{})
	require.NoError(t, err)
	t.Logf("listed %d instances in %v", len(got), time.Since(began))
	require.Len(t, got, instances)
	assert.Equal(t, "i-00000", got[0].ID)
	assert.Equal(t, "i-09999", got[instances-1].ID)
	assert.Len(t, w.seen("DescribeScalingInstances"), instances/100, "as many a page as ESS gives")
	assert.Equal(t, alicloud.ScalingInstance{ID: "i-00000", ScalingGroupID: "asg-1", LifecycleState: alicloud.LifecycleInService,
		InstanceType: "ecs.gn7i-c8g1.2xlarge", ZoneID: "cn-test-1a", SpotStrategy: alicloud.SpotAsPriceGo,
		Created: time.Date(2025, 1, 2, 3, 4, 0, 0, time.UTC)}, got[0])
}

// changing serves a listing that changes before the request with the given ordinal.
type changing struct {
	mu     sync.Mutex
	served int
	all    []object
	before map[int]func([]object) []object
}

func (c *changing) answer(q url.Values) answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served++
	if change, ok := c.before[c.served]; ok {
		c.all = change(c.all)
	}
	return pageOf(q, "ScalingInstances", "ScalingInstance", c.all)
}

func TestListingThatChangesUnderway(t *testing.T) {
	const size = instancesPageSize
	release := func(n int) func([]object) []object { // of the first n, so that all the others move up
		return func(all []object) []object { return all[n:] }
	}
	launch := func(n int) func([]object) []object { // at the front, so that all the others move down
		return func(all []object) []object {
			var fresh []object
			for i := range n {
				fresh = append(fresh, object{"InstanceId": fmt.Sprintf("i-new-%03d", i)})
			}
			return append(fresh, all...)
		}
	}
	tests := []struct {
		name   string
		total  int
		before map[int]func([]object) []object
		calls  int
		least  int // how many instances there must be at least; those that live are checked one by one
	}{
		{"nothing changes", 4 * size, nil, 4, 4 * size},
		{"an empty region", 0, nil, 1, 0},
		{"one releases after the first page", 4 * size, map[int]func([]object) []object{2: release(1)}, 5, 4*size - 1},
		{"many release after the first page", 4 * size, map[int]func([]object) []object{2: release(2 * size)}, 5, 2 * size},
		{"one comes after the first page", 4 * size, map[int]func([]object) []object{2: launch(1)}, 6, 4*size + 1},
		{"a page comes with the last request", 4 * size, map[int]func([]object) []object{4: launch(size)}, 8, 5 * size},
		{"it never rests", 2 * size, map[int]func([]object) []object{2: launch(1), 3: launch(1), 4: launch(1), 5: launch(1), 6: launch(1)}, 5, 2 * size},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			served := &changing{all: scalingInstances(test.total), before: test.before}
			w := newWire(t, served.answer)
			got, err := w.client().ScalingInstances(t.Context(), alicloud.InstanceFilter{})
			require.NoError(t, err)

			ids := map[string]bool{}
			for _, i := range got {
				assert.False(t, ids[i.ID], "%s is listed twice", i.ID)
				ids[i.ID] = true
			}
			assert.GreaterOrEqual(t, len(got), test.least)
			if test.name != "it never rests" {
				for _, living := range served.all {
					require.True(t, ids[living["InstanceId"].(string)], "%v lives and is not listed", living["InstanceId"])
				}
			}
			assert.LessOrEqual(t, len(w.seen("DescribeScalingInstances")), test.calls, "the listing is not begun again and again")
		})
	}
}

func TestListingWithSmallerPagesThanAskedFor(t *testing.T) {
	all := scalingInstances(35)
	w := newWire(t, func(q url.Values) answer {
		q.Set("PageSize", "10")
		return pageOf(q, "ScalingInstances", "ScalingInstance", all)
	})
	got, err := w.client().ScalingInstances(t.Context(), alicloud.InstanceFilter{})
	require.NoError(t, err)
	assert.Len(t, got, 35)
}

func TestOneFailingPageFailsTheListing(t *testing.T) {
	all := scalingInstances(1000)
	w := newWire(t, func(q url.Values) answer {
		if q.Get("PageNumber") == "7" {
			return refuse(403, "Forbidden.Unauthorized")
		}
		return pageOf(q, "ScalingInstances", "ScalingInstance", all)
	})
	got, err := w.client().ScalingInstances(t.Context(), alicloud.InstanceFilter{})
	assert.Equal(t, alicloud.Unauthorized, alicloud.ClassOf(err))
	assert.Empty(t, got, "half a listing is worse than none")
}

func TestBatches(t *testing.T) {
	ids := func(n int) []string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf("x-%03d", i))
		}
		return append(out, "x-000", "") // repeated and empty
	}
	none := func(outer, inner string) answer {
		return ok(object{"TotalCount": 0, outer: object{inner: []object{}}})
	}
	tests := []struct {
		action, parameter string
		most, batches     int
		call              func(c *Client) error
		answer            answer
	}{
		{"DescribeScalingGroups", "ScalingGroupId", 20, 3, func(c *Client) error {
			_, err := c.ScalingGroups(t.Context(), alicloud.GroupFilter{IDs: ids(45)})
			return err
		}, none("ScalingGroups", "ScalingGroup")},
		{"DescribeScalingInstances", "InstanceId", 20, 3, func(c *Client) error {
			_, err := c.ScalingInstances(t.Context(), alicloud.InstanceFilter{IDs: ids(45)})
			return err
		}, none("ScalingInstances", "ScalingInstance")},
		{"DescribeScalingConfigurations", "ScalingConfigurationId", 10, 5, func(c *Client) error {
			_, err := c.ScalingConfigurations(t.Context(), ids(45))
			return err
		}, none("ScalingConfigurations", "ScalingConfiguration")},
		{"DescribeScalingActivities", "ScalingActivityId", 20, 3, func(c *Client) error {
			_, err := c.Activities(t.Context(), ids(45))
			return err
		}, none("ScalingActivities", "ScalingActivity")},
		{"DescribeInstanceTypes", "InstanceTypes", 10, 5, func(c *Client) error {
			_, err := c.InstanceTypes(t.Context(), ids(45))
			return err
		}, none("InstanceTypes", "InstanceType")},
	}
	for _, test := range tests {
		t.Run(test.action, func(t *testing.T) {
			w := newWire(t, func(url.Values) answer { return test.answer })
			require.NoError(t, test.call(w.client()))
			asked := map[string]int{}
			for _, q := range w.seen(test.action) {
				batch := list(q, test.parameter)
				assert.LessOrEqual(t, len(batch), test.most)
				for _, id := range batch {
					asked[id]++
				}
			}
			assert.Len(t, w.seen(test.action), test.batches)
			assert.Len(t, asked, 45)
			assert.Equal(t, 1, asked["x-000"])
		})
	}
}

func TestNoIDsMeanNoCall(t *testing.T) {
	w := newWire(t, func(url.Values) answer { return ok(object{}) })
	c := w.client()
	for _, call := range []func() (int, error){
		func() (int, error) { got, err := c.ScalingConfigurations(t.Context(), nil); return len(got), err },
		func() (int, error) { got, err := c.Activities(t.Context(), nil); return len(got), err },
		func() (int, error) { got, err := c.InstanceTypes(t.Context(), nil); return len(got), err },
		func() (int, error) { got, err := c.Instances(t.Context(), nil); return len(got), err },
		func() (int, error) { got, err := c.VSwitches(t.Context(), nil); return len(got), err },
	} {
		n, err := call()
		assert.NoError(t, err)
		assert.Zero(t, n)
	}
	assert.Empty(t, w.requests)
}
