package alicloud

import (
	"context"
	"encoding/json"
)

// Allocation is a part of what a purchase would bring, as ESS plans it.
type Allocation struct {
	InstanceType string
	ZoneID       string `json:"ZoneId"`
	SpotStrategy string
	Amount       int
}

// Plan is the answer to a request that asks what a purchase would bring.
type Plan struct {
	// Allocations are what ESS would buy, where Answered.
	Allocations []Allocation
	// Answered is false where the answer holds no plan: the service does not know the mode, and has bought.
	Answered bool
	// Scaling is what was done where the service does not know the mode.
	Scaling
}

// PlanScale asks what a purchase would bring, without buying. A service that does not know the mode ignores it and buys:
// the request therefore has to be one that is wanted anyway, and everything that holds of Scale holds here, the
// ClientToken and the Unavailable errors included.
//
// Source: ExecutionMode=PlanOnly of ScaleWithAdjustment, and PlanResult in its answer, are documented for ESS 2022-02-22
// (doc comments of alibabacloud-csharp-sdk). Of the version in use here, 2014-08-28, the API metadata of April 2026
// (aliyun-openapi-meta) name ExecutionMode without a word of explanation, and the Java SDK reads PlanResult; the Go SDK
// (v1.63.107) knows neither. So the parameter is sent raw and the answer is read raw, with lists in the form of either version.
func (c *Client) PlanScale(ctx context.Context, s ScaleRequest) (Plan, error) {
	r, err := c.adjust(ctx, s, map[string]string{"ExecutionMode": "PlanOnly"})
	if err != nil {
		return Plan{}, err
	}
	var body struct {
		PlanResult *struct{ ResourceAllocations allocations }
	}
	plan := Plan{Scaling: scalingOf(r)}
	// What cannot be read is no plan.
	if json.Unmarshal(r.GetHttpContentBytes(), &body) == nil && body.PlanResult != nil {
		plan.Answered, plan.Allocations = true, body.PlanResult.ResourceAllocations
	}
	return plan, nil
}

// allocations reads a plain list, as 2022-02-22 has it, and one under a name of its own, as is the custom of 2014-08-28.
// That name is in no document; a list that was missed for it would look like a plan of nothing.
type allocations []Allocation

// UnmarshalJSON implements json.Unmarshaler.
func (a *allocations) UnmarshalJSON(text []byte) error {
	if json.Unmarshal(text, (*[]Allocation)(a)) == nil {
		return nil
	}
	var named map[string][]Allocation
	if err := json.Unmarshal(text, &named); err != nil {
		return err
	}
	*a = nil
	for _, list := range named {
		*a = append(*a, list...)
	}
	return nil
}
