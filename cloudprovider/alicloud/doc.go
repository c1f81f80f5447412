// Package alicloud has the types and errors of Alibaba Cloud's Auto Scaling (ESS), ECS and VPC as the autoscaler uses
// them. It knows neither the SDK nor the network: callers declare the few calls that they need as an interface of these
// types, and decide by the Class of an *Error what to do about a failure.
//
// Below it:
//
//	client       the calls themselves, one type for each service
//	rpc          one request: rate limit, credentials, retries, metrics and typed errors
//	credentials  where access keys come from
//	paging       listings in pages, and requests in batches of ids
//	dryrun       what stands before the cloud and the cluster in a dry run, and changes neither
//
// client, rpc and credentials are the only packages of the product that import Alibaba Cloud's SDK.
package alicloud
