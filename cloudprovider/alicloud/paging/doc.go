// Package paging reads listings that come in pages, by number or by token, and asks for many ids in batches.
package paging

import (
	"fmt"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// concurrency is how many pages or batches of one listing are fetched at once. The limits that Alibaba Cloud documents are calls per
// minute, and rpc keeps to them. If the cloud throttles calls for being sent together, rpc sends those again.
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
