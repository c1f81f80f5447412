package ecs

import (
	"slices"
	"strconv"

	"gpu-spot-autoscaler/test/alisim/protocol"
)

// Quota bounds the account.
type Quota struct {
	// Instances is how many instances the account may own at once; 0 means unlimited. Beyond it a scaling activity
	// fails with QuotaExceed.ElasticQuota.
	Instances int `json:"instances,omitempty"`
	// SpotVCPUs is how many vCPUs its spot instances may have together; 0 means unlimited, and is shown as a great number. Beyond it
	// a scaling activity fails likewise.
	SpotVCPUs int `json:"spotVCPUs,omitempty"`
}

const (
	// shownUnlimited is the quota that clients are told where there is none.
	shownUnlimited = 1_000_000
	// maxAttributes is how many attributes one DescribeAccountAttributes names.
	maxAttributes = 8
)

// accountActions answers the requests about the account.
type accountActions struct{ *Compute }

type attributeJSON struct {
	AttributeName   string
	AttributeValues map[string][]attributeValueJSON
}

type attributeValueJSON struct{ Value string }

// describeAccountAttributes knows the attributes about vCPUs of spot instances. Without names it returns all that it knows.
func (c accountActions) describeAccountAttributes(r *protocol.Request) (protocol.Reply, error) {
	if _, err := r.Required("RegionId"); err != nil {
		return nil, err
	}
	names, err := r.List("AttributeName", maxAttributes)
	if err != nil {
		return nil, err
	}
	quota := c.Quota.SpotVCPUs
	if quota == 0 {
		quota = shownUnlimited
	}
	var list []attributeJSON
	for _, known := range []struct {
		name  string
		value int
	}{{"max-spot-instance-vcpu-count", quota}, {"used-spot-instance-vcpu-count", c.spotVCPUs()}} {
		if len(names) == 0 || slices.Contains(names, known.name) {
			list = append(list, attributeJSON{known.name, protocol.Wrap("ValueItem", []attributeValueJSON{{strconv.Itoa(known.value)}})})
		}
	}
	return protocol.Reply{"AccountAttributeItems": protocol.Wrap("AccountAttributeItem", list)}, nil
}

// spotVCPUs is how many vCPUs all spot instances have together.
func (c accountActions) spotVCPUs() (sum int) {
	for _, i := range c.machines.Items {
		if i.IsSpot() {
			sum += i.Type.VCPU
		}
	}
	return sum
}

// quotaRoom is how many more instances of an offer the quotas of the account allow, limited where there are any.
func (c accountActions) quotaRoom(o Offer) (room int, limited bool) {
	if c.Quota.Instances > 0 {
		room, limited = c.Quota.Instances-c.machines.Len(), true
	}
	if c.Quota.SpotVCPUs > 0 && o.Strategy != NoSpot {
		spot := (c.Quota.SpotVCPUs - c.spotVCPUs()) / o.Type.VCPU
		if !limited || spot < room {
			room, limited = spot, true
		}
	}
	return room, limited
}

// dryRun answers a request that was only to be checked, and that would have been carried out.
func dryRun() *protocol.Error {
	return protocol.BadRequest("DryRunOperation", "Request validation has been passed with DryRun flag set.")
}
