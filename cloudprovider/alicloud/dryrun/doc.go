// Package dryrun stands between the autoscaler and what it would change, so that a dry run changes nothing: [Cloud] before Alibaba Cloud, and
// [Transport] before the API server.
package dryrun
