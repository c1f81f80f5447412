package protocol

import (
	"net/http"
	"strings"
)

// authorize refuses what the policy does not allow.
//
// DescribeInstances is refused like the rest, so that a missing permission is not overlooked here; ECS announces that it
// answers with an empty list instead (its API reference, 2024-10-21), of which docs/contract.md has a question.
func (e *Endpoint) authorize(a Action, r *Request) error {
	if e.Policy == nil || a.NeedsNoPermission {
		return nil
	}
	permission := strings.ToLower(r.Service) + ":" + r.Action
	if !e.Policy.Allows(permission, e.TagsOf(r)) {
		return Refuse(http.StatusForbidden, "Forbidden.RAM",
			"User not authorized to operate on the specified resource, or this API doesn't support RAM. (%s)", permission)
	}
	e.log.permit(permission)
	return nil
}
