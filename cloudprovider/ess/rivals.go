package ess

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
)

// Two autoscalers on one scaling group undo what the other does: each gives back instances that it takes for idle, or that
// never become Nodes of its own cluster. So each note says whose the purchase is, and what brought an instance that was not
// bought here is looked up, once.

// strangersAtOnce is how many activities are looked up in one refresh; one request has as many.
const strangersAtOnce = 20

// managedByCore is in the ActivityMetadata of what Cluster Autoscaler's own provider for Alibaba Cloud buys.
// Source: alicloudManaged, cloudprovider/alicloud/alicloud_auto_scaling.go of Cluster Autoscaler 1.33. ACK's autoscaler began
// as that provider; whether it still writes this is not documented, so that Config.Rival looks at what ACK sets up, too.
const managedByCore = "cluster-autoscaler/alicloud/managed"

// rivals are the other autoscalers whose purchases were seen.
type rivals struct {
	// known are the activities of which it is known whose they are.
	known sets.Set[string]
	// seen is when a purchase of another was seen last, by scaling group and the problem that it is.
	seen map[problem]sighting
}

type sighting struct {
	at    time.Time
	cause string
}

func newRivals() *rivals { return &rivals{known: sets.New[string](), seen: map[problem]sighting{}} }

// noteRivals enters as problems the autoscalers that work on pools of ours.
func (p *Provider) noteRivals(ctx context.Context, seen *observation) {
	read := slices.Collect(maps.Values(seen.activities))
	for _, activities := range seen.recalled {
		read = append(read, activities...)
	}
	p.readStrangers(ctx, seen, read)
	for found, sighting := range p.rivals.seen {
		if seen.at.Sub(sighting.at) > p.RivalFor || !seen.managed.Has(found.pool) {
			delete(p.rivals.seen, found)
			continue
		}
		seen.problems[found] = sighting.cause
	}
	if p.Rival == nil {
		return
	}
	for poolID := range seen.managed {
		if who := p.Rival(poolID); who != "" {
			seen.problems[problem{poolID, "ack_autoscaler"}] = who
		}
	}
}

// readStrangers judges the activities that were read, and looks up those behind young instances that nothing is known of.
func (p *Provider) readStrangers(ctx context.Context, seen *observation, read []alicloud.Activity) {
	strangers, kept := sets.New[string](), sets.New[string]()
	for _, activity := range read {
		p.noteBuyer(activity, seen.at)
		kept.Insert(activity.ID)
	}
	for _, instance := range seen.instances {
		id := instance.ScalingActivityID
		kept.Insert(id)
		if id != "" && !p.rivals.known.Has(id) && seen.at.Sub(instance.Created) < historyAge {
			strangers.Insert(id)
		}
	}
	p.rivals.known = p.rivals.known.Intersection(kept)
	ids := sets.List(strangers)
	if len(ids) == 0 {
		return
	}
	ids = ids[:min(len(ids), strangersAtOnce)]
	activities, err := p.Cloud.Activities(ctx, ids)
	if err != nil {
		klog.V(1).Infof("Cannot tell who bought by the activities %v, asking again in the next loop: %s", ids, alicloud.Brief(err))
		return
	}
	p.rivals.known.Insert(gone(ids, activities)...)
	for _, activity := range activities {
		p.noteBuyer(activity, seen.at)
	}
}

// gone are the ids of activities that are not told of any more.
func gone(ids []string, activities []alicloud.Activity) []string {
	left := sets.New(ids...)
	for _, activity := range activities {
		left.Delete(activity.ID)
	}
	return left.UnsortedList()
}

// noteBuyer enters whose the activity is, where it is another autoscaler's.
func (p *Provider) noteBuyer(activity alicloud.Activity, now time.Time) {
	if p.rivals.known.Has(activity.ID) {
		return
	}
	p.rivals.known.Insert(activity.ID)
	if !activity.Started.IsZero() && now.Sub(activity.Started) > p.RivalFor {
		return
	}
	reason, cause := p.buyerOf(activity)
	if reason == "" {
		return
	}
	p.rivals.seen[problem{activity.ScalingGroupID, reason}] = sighting{at: now, cause: cause}
	klog.Warningf("Activity %s of pool %s: %s", activity.ID, activity.ScalingGroupID, cause)
}

// buyerOf says which other autoscaler the activity is of; it is empty for our own, and for what no autoscaler has signed.
func (p *Provider) buyerOf(activity alicloud.Activity) (reason, cause string) {
	if note, noted := noteOf(activity); noted {
		if p.isOthers(note) {
			return "other_autoscaler", fmt.Sprintf("the gpu-spot-autoscaler %s buys in the scaling group too; this one is %s", note.Owner, p.Owner)
		}
		return "", ""
	}
	var metadata map[string]any
	if json.Unmarshal([]byte(activity.Metadata), &metadata) == nil && metadata[managedByCore] != nil {
		return "ack_autoscaler", "Cluster Autoscaler's own provider for Alibaba Cloud, which ACK's autoscaler is made of, buys in the scaling group too"
	}
	return "", ""
}

// isOthers says whether the note is of another installation.
func (p *Provider) isOthers(note purchaseNote) bool {
	return p.Owner != "" && note.Owner != "" && note.Owner != p.Owner
}

// noteOtherClusters enters that a scaling group is tagged for several clusters.
func (p *Provider) noteOtherClusters(group alicloud.ScalingGroup, problems map[problem]string) {
	if p.ClusterName == "" || group.Tags[api.TagEnabled] != "true" {
		return
	}
	others := sets.New[string]()
	for tag := range group.Tags {
		name, found := strings.CutPrefix(tag, api.TagCluster)
		if found && tag != api.TagEnabled && name != p.ClusterName && !strings.Contains(name, "/") {
			others.Insert(name)
		}
	}
	if others.Len() > 0 {
		problems[problem{group.ID, "other_clusters"}] = fmt.Sprintf("the scaling group is tagged for %s too, not for %s alone",
			strings.Join(sets.List(others), ", "), p.ClusterName)
	}
}
