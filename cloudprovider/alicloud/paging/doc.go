// Package paging reads listings that come in pages, by number or by token, and asks for many ids in batches.
package paging

import (
	"fmt"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// concurrency is how many pages or batches of one listing are fetched at once. Alibaba Cloud limits calls per minute, which rpc keeps to,
// and not how many are under way.
const concurrency = 16

// Call is the call that lists.
type Call struct {
	// Service is one of alicloud's Service… constants, Action the name of the API call.
	Service, Action string
}

// incomplete returns the error of a listing that lacks items. A listing without them would look as if they did not exist.
func (c Call) incomplete(format string, args ...any) error {
	return &alicloud.Error{Service: c.Service, Action: c.Action, Code: alicloud.CodeIncomplete, Class: alicloud.Unavailable,
		Message: "the listing is incomplete: " + fmt.Sprintf(format, args...)}
}
