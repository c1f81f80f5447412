package alicloud

import (
	"context"
	"errors"
	"slices"

	ecsapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
	"k8s.io/klog/v2"
)

// recyclingFilters are the spellings that the LockReason filter of DescribeInstances has in Alibaba Cloud's own texts: the
// first in the API metadata (aliyun-openapi-meta) and the doc comments of the C# SDK, the second in the Chinese pages and the
// Java SDK. Which of them the service knows is not documented, and what it does not know it may answer with nothing.
var recyclingFilters = []string{"recycling", "Recycling"}

// RecyclingInstances returns the spot instances of the whole region that are about to be released. The filter is asked in
// both spellings until one of them has answered with such an instance, and in that one from then on.
//
// What is about to be released is so by what its own OperationLocks say, as in "Detect spot instance interruptions" of the
// ECS guide: a filter that is ignored would list every instance there is.
func (c *Client) RecyclingInstances(ctx context.Context) ([]Instance, error) {
	if known := c.recyclingFilter.Load(); known != nil {
		return c.recyclingInstances(ctx, *known)
	}
	answered := false
	var failures []error
	for _, filter := range recyclingFilters {
		found, err := c.recyclingInstances(ctx, filter)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		answered = true
		if len(found) > 0 {
			c.recyclingFilter.Store(&filter)
			klog.FromContext(ctx).Info("Found out how instances about to be released are listed", "LockReason", filter)
			return found, nil
		}
	}
	// One spelling may be refused for good. One that was not answered may be the one that works.
	if answered && !slices.ContainsFunc(failures, mayPass) {
		return nil, nil
	}
	return nil, errors.Join(failures...)
}

// mayPass says whether the same request may be answered later.
func mayPass(err error) bool {
	class := ClassOf(err)
	return class == Throttled || class == Unavailable
}

func (c *Client) recyclingInstances(ctx context.Context, filter string) ([]Instance, error) {
	listed, err := c.instances(ctx, func(q *ecsapi.DescribeInstancesRequest) { q.LockReason = filter })
	return slices.DeleteFunc(listed, func(i Instance) bool { return !i.Recycling() }), err
}
