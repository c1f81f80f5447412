package protocol

import (
	"cmp"
	"net/http"
	"strings"

	"gpu-spot-autoscaler/test/alisim/ram"
)

// authorize refuses what the policy does not allow.
//
// DescribeInstances is refused like the rest, so that a missing permission is not overlooked here; ECS announces that it
// answers with an empty list instead (its API reference, 2024-10-21), of which docs/contract.md has a question.
func (e *Endpoint) authorize(a Action, r *Request) error {
	policy := cmp.Or(r.Caller.Policy, e.Policy)
	if policy == nil || a.NeedsNoPermission || r.Caller.Administrates {
		return nil
	}
	wanted := []ram.Access{{Action: strings.ToLower(r.Service) + ":" + r.Action, ResourceTags: e.TagsOf(r), RequestTags: r.NewTags()}}
	if role := r.Get("RamRoleName"); role != "" {
		// Source: "Attach an instance RAM role": whoever creates an instance with a role needs ram:PassRole for it.
		wanted = append(wanted, ram.Access{Action: "ram:PassRole", Role: role, Service: "ecs.aliyuncs.com"})
	}
	for _, access := range wanted {
		if !policy.Allows(access) {
			return Refuse(http.StatusForbidden, "Forbidden.RAM",
				"User not authorized to operate on the specified resource, or this API doesn't support RAM. (%s)", access.Action)
		}
		if policy == e.Policy {
			e.log.permit(access.Action)
		}
	}
	return nil
}
