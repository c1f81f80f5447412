package alicloud

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	ecsapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
)

const ecs = "ecs"

// What ECS takes at most in one request.
const (
	instanceTypesBatch = 10
	instancesBatch     = 100
	maxTokenPages      = 1000 // a listing that is still longer goes in circles
)

// InstanceTypes returns the shapes of instance types; unknown ids are left out.
func (c *Client) InstanceTypes(ctx context.Context, ids []string) ([]InstanceType, error) {
	return inBatches(ctx, ids, instanceTypesBatch, func(ctx context.Context, ids []string) ([]InstanceType, error) {
		types, err := c.instanceTypes(ctx, ids)
		if class := ClassOf(err); class != Invalid && class != NotFound {
			return types, err
		}
		// One id that ECS finds malformed spoils its batch: ask for each alone, and leave out the culprit.
		return inBatches(ctx, ids, 1, func(ctx context.Context, id []string) ([]InstanceType, error) {
			types, err := c.instanceTypes(ctx, id)
			if class := ClassOf(err); class == Invalid || class == NotFound {
				return nil, nil
			}
			return types, err
		})
	})
}

func (c *Client) instanceTypes(ctx context.Context, ids []string) ([]InstanceType, error) {
	return followTokens(ctx, func(ctx context.Context, token string) ([]InstanceType, string, error) {
		r, err := send(ctx, c, request[*ecsapi.DescribeInstanceTypesResponse]{
			service: ecs, action: "DescribeInstanceTypes", response: ecsapi.CreateDescribeInstanceTypesResponse,
			build: func() requests.AcsRequest {
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

// Instances returns the ECS instances of the ids; those that do not exist are left out.
func (c *Client) Instances(ctx context.Context, ids []string) ([]Instance, error) {
	return inBatches(ctx, ids, instancesBatch, func(ctx context.Context, ids []string) ([]Instance, error) {
		list, err := json.Marshal(ids)
		if err != nil {
			return nil, invalid(ecs, "DescribeInstances", "%v", err)
		}
		return c.instances(ctx, func(q *ecsapi.DescribeInstancesRequest) { q.InstanceIds = string(list) })
	})
}

func (c *Client) instances(ctx context.Context, narrow func(*ecsapi.DescribeInstancesRequest)) ([]Instance, error) {
	return followTokens(ctx, func(ctx context.Context, token string) ([]Instance, string, error) {
		r, err := send(ctx, c, request[*ecsapi.DescribeInstancesResponse]{
			service: ecs, action: "DescribeInstances", response: ecsapi.CreateDescribeInstancesResponse,
			build: func() requests.AcsRequest {
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

// followTokens fetches page after page until there is no next token.
func followTokens[T any](ctx context.Context, fetch func(ctx context.Context, token string) ([]T, string, error)) ([]T, error) {
	var all []T
	token := ""
	for range maxTokenPages {
		items, next, err := fetch(ctx, token)
		if err != nil {
			return nil, err
		}
		all = append(all, items...)
		if next == "" || next == token {
			break
		}
		token = next
	}
	return all, nil
}

func instanceType(t *ecsapi.InstanceType) InstanceType {
	arch := "amd64"
	if strings.EqualFold(t.CpuArchitecture, "ARM") || strings.EqualFold(t.CpuArchitecture, "ARM64") {
		arch = "arm64"
	}
	return InstanceType{
		ID: t.InstanceTypeId, VCPU: t.CpuCoreCount, MemoryGiB: t.MemorySize,
		GPUs: t.GPUAmount, GPUModel: t.GPUSpec, GPUMemoryGiB: t.GPUMemorySize, Arch: arch,
	}
}

func instance(i *ecsapi.Instance) Instance {
	out := Instance{
		ID: i.InstanceId, Status: i.Status, InstanceType: i.InstanceType, ZoneID: i.ZoneId,
		SpotStrategy: i.SpotStrategy, InterruptionBehavior: i.SpotInterruptionBehavior, Created: parseTime(i.CreationTime),
	}
	for _, lock := range i.OperationLocks.LockReason {
		out.LockReasons = append(out.LockReasons, lock.LockReason)
	}
	return out
}
