package problems

import "gpu-spot-autoscaler/cloudprovider/alicloud"

// Of returns the problem that a failed call to Alibaba Cloud indicates.
func Of(err error) Problem {
	d := alicloud.Diagnose(err)
	return Problem{Reason: string(d.Reason), Cause: d.Cause, Fix: d.Fix, Transient: d.Transient}
}
