// Package alisim simulates the part of Alibaba Cloud that an autoscaler of GPU spot nodes talks to: Auto Scaling
// (ESS 2014-08-28), ECS 2014-05-26, VPC 2016-04-28 and STS 2015-04-01, spoken over Alibaba's RPC protocol so that the
// real SDK works against it unchanged; the metadata endpoint of every instance; and a spot market that sells out,
// changes its prices and reclaims instances.
//
// A World describes what there is: zones, instance types, pools, the market and how long things take. Start runs it on
// loopback sockets. Requests are authenticated, checked and limited as the real service does; what they set going
// happens later, on the clock: a call that buys is accepted at once, and whether anything came is to be read from
// DescribeScalingActivities. How hard the cloud is where Alibaba's documents leave room is the world's temper.
//
// This package makes a world of the rooms below it. An arrow may only point down this list:
//
//	control    what steers a running world and looks into it, from Go and over HTTP
//	ess        the requests to Auto Scaling
//	scaling    scaling groups: what they buy and remove, what they do by themselves
//	ecs        instances, their types, prices, stock, VPC and metadata; reclaims
//	sts        temporary keys
//	nodes      Nodes of booted instances, in a real cluster
//	cloud      what all services stand on: one lock, one clock, an agenda, ids
//	temper     how hard the cloud is on its clients, rule by rule
//	protocol   a request on its way in: signature, limits, idempotence, faults, log
//	ram        which policies allow a request
//	market     prices and stock over time
package alisim
