package client

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	ecsapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/alicloud/paging"
	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
)

// What ECS takes in one request at most.
const (
	instanceTypesBatch = 10
	instancesBatch     = 100
)

// ECS has the calls to ECS, version 2014-05-26.
type ECS struct {
	caller *rpc.Caller
	// recyclingFilter is the spelling of the LockReason filter that works; nil until it is known.
	recyclingFilter atomic.Pointer[string]
	// currency is the currency of the account; nil until a price was read.
	currency atomic.Pointer[string]
}

// InstanceTypes returns the instance types with the ids, without those that do not exist.
func (c *ECS) InstanceTypes(ctx context.Context, ids []string) ([]alicloud.InstanceType, error) {
	return paging.Batches(ctx, ids, instanceTypesBatch, func(ctx context.Context, ids []string) ([]alicloud.InstanceType, error) {
		types, err := c.instanceTypes(ctx, ids)
		if class := alicloud.ClassOf(err); class != alicloud.Invalid && class != alicloud.NotFound {
			return types, err
		}
		// One id that ECS refuses fails its batch: ask for each id alone, and leave out those that are refused.
		return paging.Batches(ctx, ids, 1, func(ctx context.Context, id []string) ([]alicloud.InstanceType, error) {
			types, err := c.instanceTypes(ctx, id)
			if class := alicloud.ClassOf(err); class == alicloud.Invalid || class == alicloud.NotFound {
				return nil, nil
			}
			return types, err
		})
	})
}

func (c *ECS) instanceTypes(ctx context.Context, ids []string) ([]alicloud.InstanceType, error) {
	call := paging.Call{Service: alicloud.ServiceECS, Action: "DescribeInstanceTypes"}
	return paging.Tokens(ctx, call, func(ctx context.Context, token string) ([]alicloud.InstanceType, string, error) {
		r, err := rpc.Send(ctx, c.caller, rpc.Request[*ecsapi.DescribeInstanceTypesResponse]{
			Service: alicloud.ServiceECS, Action: "DescribeInstanceTypes", Response: ecsapi.CreateDescribeInstanceTypesResponse,
			Build: func() requests.AcsRequest {
				q := ecsapi.CreateDescribeInstanceTypesRequest()
				q.InstanceTypes, q.NextToken = listOf(ids), token
				return q
			}})
		if err != nil {
			return nil, "", err
		}
		return convert(r.InstanceTypes.InstanceType, instanceType), r.NextToken, nil
	})
}

// Instances returns the ECS instances with the ids, without those that do not exist.
func (c *ECS) Instances(ctx context.Context, ids []string) ([]alicloud.Instance, error) {
	return paging.Batches(ctx, ids, instancesBatch, func(ctx context.Context, ids []string) ([]alicloud.Instance, error) {
		list, err := json.Marshal(ids)
		if err != nil {
			return nil, alicloud.InvalidRequest(alicloud.ServiceECS, "DescribeInstances", "%v", err)
		}
		return c.instances(ctx, func(q *ecsapi.DescribeInstancesRequest) { q.InstanceIds = string(list) })
	})
}

func (c *ECS) instances(ctx context.Context, narrow func(*ecsapi.DescribeInstancesRequest)) ([]alicloud.Instance, error) {
	call := paging.Call{Service: alicloud.ServiceECS, Action: "DescribeInstances"}
	return paging.Tokens(ctx, call, func(ctx context.Context, token string) ([]alicloud.Instance, string, error) {
		r, err := rpc.Send(ctx, c.caller, rpc.Request[*ecsapi.DescribeInstancesResponse]{
			Service: alicloud.ServiceECS, Action: "DescribeInstances", Response: ecsapi.CreateDescribeInstancesResponse,
			Build: func() requests.AcsRequest {
				q := ecsapi.CreateDescribeInstancesRequest()
				q.MaxResults, q.NextToken = requests.NewInteger(instancesBatch), token
				narrow(q)
				return q
			}})
		if err != nil {
			return nil, "", err
		}
		return convert(r.Instances.Instance, instance), r.NextToken, nil
	})
}

func instanceType(t *ecsapi.InstanceType) alicloud.InstanceType {
	arch := "amd64"
	if strings.EqualFold(t.CpuArchitecture, "ARM") || strings.EqualFold(t.CpuArchitecture, "ARM64") {
		arch = "arm64"
	}
	return alicloud.InstanceType{
		ID: t.InstanceTypeId, VCPU: t.CpuCoreCount, MemoryGiB: t.MemorySize,
		GPUs: t.GPUAmount, GPUModel: t.GPUSpec, GPUMemoryGiB: t.GPUMemorySize, Arch: arch,
	}
}

func instance(i *ecsapi.Instance) alicloud.Instance {
	out := alicloud.Instance{
		ID: i.InstanceId, Status: i.Status, InstanceType: i.InstanceType, ZoneID: i.ZoneId,
		SpotStrategy: i.SpotStrategy, InterruptionBehavior: i.SpotInterruptionBehavior, Created: parseTime(i.CreationTime),
	}
	for _, tag := range i.Tags.Tag {
		if out.Tags == nil {
			out.Tags = make(map[string]string, len(i.Tags.Tag))
		}
		out.Tags[cmp.Or(tag.TagKey, tag.Key)] = cmp.Or(tag.TagValue, tag.Value)
	}
	for _, lock := range i.OperationLocks.LockReason {
		out.LockReasons = append(out.LockReasons, lock.LockReason)
	}
	return out
}
