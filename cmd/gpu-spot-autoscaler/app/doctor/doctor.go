// Package doctor checks a set-up, before the autoscaler is installed or afterwards: the account, the scaling groups and the cluster. It
// changes nothing. What it reads of the cloud is read by the code that the autoscaler itself uses.
package doctor

import (
	"context"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/alicloud/client"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
)

// Doctor is what an examination needs.
type Doctor struct {
	// Cloud is nil if the cloud is not to be examined, Kube if the cluster is not.
	Cloud *client.Client
	Kube  kubernetes.Interface
	Clock clock.PassiveClock

	// Region, ClusterName and Nodes are what the autoscaler gets as --region, --cluster-name and --nodes.
	Region, ClusterName string
	Nodes               map[string]pool.Bounds
	// Namespace and Name are those of the release.
	Namespace, Name string
}

// Examine returns what is wrong.
func (d *Doctor) Examine(ctx context.Context) Report {
	r := Report{Findings: []Finding{}, NotProven: []string{}}
	c := &clusterExam{Doctor: d, report: &r}
	reachable := d.Kube != nil && c.isReachable(ctx)
	if reachable {
		c.readSettings(ctx)
	}
	var pools *cloudExam
	if d.Cloud != nil {
		pools = &cloudExam{Doctor: d, report: &r, overrides: c.settings}
		pools.examine(ctx)
	}
	if reachable {
		c.examine(ctx, pools)
	}
	r.sort()
	return r
}
