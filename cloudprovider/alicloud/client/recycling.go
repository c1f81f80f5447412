package client

import (
	"context"
	"errors"
	"slices"

	ecsapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// recyclingFilters are the spellings of the LockReason filter of DescribeInstances in Alibaba Cloud's own texts: the first in
// the API metadata (aliyun-openapi-meta) and the doc comments of the C# SDK, the second in the Chinese pages and the Java SDK.
// Which of them the service accepts is not documented, and it may answer an unknown one with an empty list.
var recyclingFilters = []string{"recycling", "Recycling"}

// RecyclingInstances returns the spot instances of the whole region that are about to be released. It asks with both spellings
// of the filter until one of them has found such an instance, and from then on with that one.
//
// Each instance is checked by its own OperationLocks, as in "Detect spot instance interruptions" of the ECS guide: a service
// that ignored the filter would list all instances.
func (c *ECS) RecyclingInstances(ctx context.Context) ([]alicloud.Instance, error) {
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
			klog.FromContext(ctx).Info("Found the filter by which ECS lists instances that are about to be released", "lockReason", filter)
			return found, nil
		}
	}
	// A spelling that is refused for good may be ignored. One that got no answer may be the one that works.
	if answered && !slices.ContainsFunc(failures, mayPass) {
		return nil, nil
	}
	return nil, errors.Join(failures...)
}

// mayPass returns whether the same request may be answered later.
func mayPass(err error) bool {
	class := alicloud.ClassOf(err)
	return class == alicloud.Throttled || class == alicloud.Unavailable
}

func (c *ECS) recyclingInstances(ctx context.Context, filter string) ([]alicloud.Instance, error) {
	listed, err := c.instances(ctx, func(q *ecsapi.DescribeInstancesRequest) { q.LockReason = filter })
	return slices.DeleteFunc(listed, func(i alicloud.Instance) bool { return !i.Recycling() }), err
}
