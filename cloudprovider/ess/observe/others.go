package observe

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
	"gpu-spot-autoscaler/cloudprovider/ess/ledger"
	"gpu-spot-autoscaler/cloudprovider/ess/problem"
	"gpu-spot-autoscaler/cloudprovider/ess/settings"
)

// maxLookups is how many activities of unknown buyers are read in one refresh; one call reads as many.
const maxLookups = 20

// managedByCore is in the ActivityMetadata of purchases of Cluster Autoscaler's own provider for Alibaba Cloud.
// Source: alicloudManaged, cloudprovider/alicloud/alicloud_auto_scaling.go of Cluster Autoscaler 1.33. ACK's autoscaler began
// as that provider; whether it still writes this is not documented, so Configured looks at what ACK sets up, too.
const managedByCore = "cluster-autoscaler/alicloud/managed"

// OthersConfig is what Others is made of.
type OthersConfig struct {
	Cloud Cloud
	// Owner names this installation.
	Owner string
	// Configured says which other autoscaler is set up for the scaling group; empty for none. Nil is none.
	Configured func(poolID string) string
	// ReportFor is how long a purchase of another autoscaler is reported.
	ReportFor time.Duration
}

// Others finds other autoscalers that buy in the same scaling groups. Two autoscalers in one scaling group undo each other's
// work: each removes instances that it considers idle, or that never become Nodes of its own cluster. So the note of each
// purchase names its owner, and activities that created instances of unknown buyers are looked up, once each. It is not safe
// for concurrent use.
type Others struct {
	config OthersConfig
	// judged are the activities whose buyer is known.
	judged sets.Set[string]
	// seen are the last purchases of others, by the problem that they are.
	seen map[problem.Key]sighting
}

// NewOthers returns an Others that has seen nothing yet.
func NewOthers(config OthersConfig) *Others {
	return &Others{config: config, judged: sets.New[string](), seen: map[problem.Key]sighting{}}
}

type sighting struct {
	at    time.Time
	cause string
}

// Check enters other autoscalers as problems of the pools.
func (o *Others) Check(ctx context.Context, seen ledger.Seen, found problem.Set) {
	o.readUnknown(ctx, seen)
	managed := seen.Managed()
	for key, sighting := range o.seen {
		if seen.At.Sub(sighting.at) > o.config.ReportFor || !managed.Has(key.Pool) {
			delete(o.seen, key)
			continue
		}
		found.Add(key.Pool, key.Reason, sighting.cause)
	}
	if o.config.Configured == nil {
		return
	}
	for poolID := range managed {
		if who := o.config.Configured(poolID); who != "" {
			found.Add(poolID, problem.ACKAutoscaler, who)
		}
	}
}

// readUnknown judges the activities that were read, and reads those that created young instances of unknown buyers.
func (o *Others) readUnknown(ctx context.Context, seen ledger.Seen) {
	read := slices.AppendSeq(slices.Clone(seen.Launched), maps.Values(seen.Activities))
	for _, recent := range seen.Recent {
		read = append(read, recent...)
	}
	unknown, kept := sets.New[string](), sets.New[string]()
	for _, activity := range read {
		o.judge(ctx, activity, seen.At)
		kept.Insert(activity.ID)
	}
	for _, instance := range seen.Instances {
		id := instance.ScalingActivityID
		kept.Insert(id)
		if id != "" && !o.judged.Has(id) && seen.At.Sub(instance.Created) < historyAge {
			unknown.Insert(id)
		}
	}
	o.judged = o.judged.Intersection(kept)
	ids := sets.List(unknown)
	if len(ids) == 0 {
		return
	}
	ids = ids[:min(len(ids), maxLookups)]
	activities, err := o.config.Cloud.Activities(ctx, ids)
	if err != nil {
		klog.FromContext(ctx).V(1).Info("Cannot read activities of unknown buyers, asking again in the next loop", "activities", ids, "err", alicloud.Brief(err))
		return
	}
	forgotten := sets.New(ids...)
	for _, activity := range activities {
		forgotten.Delete(activity.ID)
	}
	o.judged = o.judged.Union(forgotten)
	for _, activity := range activities {
		o.judge(ctx, activity, seen.At)
	}
}

// judge remembers the activity if it is a purchase of another autoscaler.
func (o *Others) judge(ctx context.Context, activity alicloud.Activity, now time.Time) {
	if o.judged.Has(activity.ID) {
		return
	}
	o.judged.Insert(activity.ID)
	if !activity.Started.IsZero() && now.Sub(activity.Started) > o.config.ReportFor {
		return
	}
	reason, cause := o.buyerOf(activity)
	if reason == "" {
		return
	}
	o.seen[problem.Key{Pool: activity.ScalingGroupID, Reason: reason}] = sighting{at: now, cause: cause}
	klog.FromContext(ctx).Info("Another autoscaler buys in the scaling group", "activity", activity.ID, "pool", activity.ScalingGroupID, "cause", cause)
}

// buyerOf says which other autoscaler bought; empty for this one, and where no autoscaler has left a note.
func (o *Others) buyerOf(activity alicloud.Activity) (reason problem.Reason, cause string) {
	if note, noted := ledger.NoteOf(activity); noted {
		if note.IsOfAnother(o.config.Owner) {
			return problem.OtherAutoscaler, fmt.Sprintf("the gpu-spot-autoscaler %s buys in the scaling group too; this one is %s", note.Owner, o.config.Owner)
		}
		return "", ""
	}
	var metadata map[string]any
	if json.Unmarshal([]byte(activity.Metadata), &metadata) == nil && metadata[managedByCore] != nil {
		return problem.ACKAutoscaler, "Cluster Autoscaler's own provider for Alibaba Cloud, which ACK's autoscaler is made of, buys in the scaling group too"
	}
	return "", ""
}

// checkClusters enters as a problem that a scaling group is tagged for several clusters.
func (r *Reader) checkClusters(group alicloud.ScalingGroup, found problem.Set) {
	if r.config.ClusterName == "" || group.Tags[api.TagEnabled] != "true" {
		return
	}
	others := sets.New[string]()
	for tag := range settings.ClusterTags(group.Tags) {
		others.Insert(strings.TrimPrefix(tag, api.TagCluster))
	}
	others.Delete(r.config.ClusterName)
	if others.Len() > 0 {
		found.Add(group.ID, problem.OtherClusters, fmt.Sprintf("the scaling group is tagged for %s too, not for %s alone",
			strings.Join(sets.List(others), ", "), r.config.ClusterName))
	}
}
