// Package alicloud is the few calls the product makes to Alibaba Cloud: Auto Scaling (ESS), ECS and VPC.
// It is the only importer of the Alibaba SDK.
//
// What it adds to the SDK: it is safe for concurrent use, it obeys contexts, it pages and batches, it keeps within
// the rate limits of each action, it retries what may be retried, it turns failures into an *Error with a Class
// one can decide upon, and it measures every request.
//
// A call that buys (Scale) or gives back (Remove) carries a ClientToken, and is only ever repeated under the same
// token: whatever was lost on the way, ESS does the work once.
package alicloud
