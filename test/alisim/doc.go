// Package alisim simulates the part of Alibaba Cloud that an autoscaler of GPU spot nodes talks to: Auto Scaling
// (ESS 2014-08-28), ECS 2014-05-26, VPC 2016-04-28 and STS 2015-04-01, spoken over Alibaba's RPC protocol so that the
// real SDK works against it unchanged; the metadata endpoint of every instance; and a spot market that sells out,
// changes its prices and reclaims instances.
//
// A World describes what there is: zones, instance types, pools, the market and how long things take. Start runs it on
// loopback sockets. Requests are authenticated, checked and limited as the real service does; what they set going
// happens later, on the clock: a call that buys is accepted at once, and whether anything came is to be read from
// DescribeScalingActivities.
//
//	rpc.go, signature.go, limits.go, idempotence.go, faults.go   a request on its way in
//	ess_*.go, ecs_*.go, vpc.go, sts.go                           the actions
//	cloud.go, group.go, instance.go, activity.go                 what there is
//	purchase.go, removal.go, heal.go, spot.go                    what happens to it by and by
//	metadata.go, control.go                                      the other HTTP endpoints
//	world.go, server.go, steering.go, views.go                   the Go API
package alisim
