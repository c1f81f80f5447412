package ess

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// purchase is one request for instances, from before it is sent until all that it brought, and all that it failed to
// bring, is accounted for. It survives the process in the metadata of its scaling activity.
type purchase struct {
	// request never changes: it may be sent again, and only the same request under the same token is bought once.
	request   alicloud.ScaleRequest
	poolID    string
	offering  offering
	targeting targeting
	atomic    bool
	requested time.Time

	sending bool
	// uncertain: an attempt had no answer, so it may have been carried out.
	uncertain bool
	// refusal is the answer to a later attempt, which does not undo an uncertain one: the pool's activities decide.
	refusal error
	// activityID is empty until the cloud has accepted the request.
	activityID string
	// settled: nothing more is awaited of it. ended: its activity is over, so that nothing more can come.
	settled, ended bool
	// cancelled is how many core no longer waits for.
	cancelled int
	arrived   sets.Set[string]
	failure   *cloudprovider.InstanceErrorInfo
	// placeholders stand in Nodes for what did not come, until core has acknowledged it.
	placeholders []string
}

func (b *purchase) outstanding() int {
	if b.settled {
		return 0
	}
	return max(0, b.request.Delta-b.cancelled-b.arrived.Len())
}

// fail settles the purchase: whatever has not come will be seen as failed by core.
func (b *purchase) fail(class cloudprovider.InstanceErrorClass, code, message string) {
	missing := b.outstanding()
	if b.atomic {
		missing = max(0, b.request.Delta-b.cancelled)
	}
	b.settled = true
	b.failure = &cloudprovider.InstanceErrorInfo{ErrorClass: class, ErrorCode: code, ErrorMessage: message}
	for n := range missing {
		b.placeholders = append(b.placeholders, placeholderPrefix+b.request.ClientToken+"/"+strconv.Itoa(n))
	}
}

// broken says whether an atomic purchase came short, so that what came has to be given back.
func (b *purchase) broken() bool { return b.atomic && b.settled && b.failure != nil }

const placeholderPrefix = "gpu-spot-failed://"

// placeholderToken is the token of the purchase that the placeholder belongs to.
func placeholderToken(id string) (string, bool) {
	rest, ok := strings.CutPrefix(id, placeholderPrefix)
	if !ok {
		return "", false
	}
	token, _, _ := strings.Cut(rest, "/")
	return token, true
}

// purchaseNote is what an activity's metadata says about the purchase behind it.
type purchaseNote struct {
	Token        string    `json:"token"`
	InstanceType string    `json:"type"`
	Zone         string    `json:"zone"`
	Purchase     Purchase  `json:"purchase"`
	Targeting    targeting `json:"targeting"`
	Count        int       `json:"count"`
	Atomic       bool      `json:"atomic,omitempty"`
}

// noteOf is false for an activity that is none of ours.
func noteOf(activity alicloud.Activity) (purchaseNote, bool) {
	var note purchaseNote
	if json.Unmarshal([]byte(activity.Metadata), &note) != nil || note.Token == "" || note.Count <= 0 {
		return purchaseNote{}, false
	}
	return note, true
}

// buy enters the purchase, so that it counts before anything is sent, and sends it.
func (p *Provider) buy(o *Offering, delta int, atomic bool) error {
	bought, err := p.enter(o, delta, atomic)
	if err != nil {
		return err
	}
	p.send(p.ctx, bought)
	return nil
}

func (p *Provider) enter(o *Offering, delta int, atomic bool) (*purchase, error) {
	if delta <= 0 {
		return nil, fmt.Errorf("node group %s: cannot grow by %d, it must be positive", o.id, delta)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	pool, known := p.pools[o.poolID], p.knownOffering(o)
	if pool == nil || known == nil {
		return nil, errUnknownGroup(o.id)
	}
	if room := p.headroom(o); delta > room {
		return nil, fmt.Errorf("node group %s: cannot grow by %d, there is room for %d", o.id, delta, room)
	}
	bought := &purchase{
		poolID: pool.id, offering: o.offering, targeting: pool.targeting, atomic: atomic,
		requested: p.Clock.Now(), sending: true, arrived: sets.New[string](),
		request: alicloud.ScaleRequest{ScalingGroupID: pool.id, Delta: delta, ClientToken: uuid.NewString()},
	}
	if pool.targeting == targetRequest {
		bought.request.InstanceType = known.InstanceType
		bought.request.VSwitchIDs = known.vswitches
		bought.request.SpotStrategy = known.spotStrategy
	}
	metadata, err := json.Marshal(purchaseNote{
		Token: bought.request.ClientToken, InstanceType: o.offering.InstanceType, Zone: o.offering.Zone,
		Purchase: o.offering.Purchase, Targeting: pool.targeting, Count: delta, Atomic: atomic,
	})
	if err != nil {
		return nil, fmt.Errorf("node group %s: describe the purchase: %w", o.id, err)
	}
	bought.request.Metadata = string(metadata)
	p.purchases[bought.request.ClientToken] = bought
	p.retally()
	price := "an unknown price"
	if perHour, ok := p.priceOf(pool, o.offering); ok {
		price = fmt.Sprintf("%.3f an hour", perHour)
	}
	p.Events.Eventf(apiv1.EventTypeNormal, "SpotPurchaseRequested", "Buying %d instances of %s at %s each", delta, o.id, price)
	return bought, nil
}

// send asks the cloud for a purchase. Where the answer is lost, or the cloud is busy, the purchase stays entered and
// the next Refresh sends the same request again, under the same token: it cannot be bought twice.
func (p *Provider) send(ctx context.Context, bought *purchase) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	activityID, err := p.Cloud.Scale(ctx, bought.request)

	p.mu.Lock()
	defer p.mu.Unlock()
	bought.sending = false
	bought.uncertain = bought.uncertain || alicloud.IsUncertain(err)
	switch class := alicloud.ClassOf(err); {
	case err == nil:
		bought.activityID = activityID
		purchasedInstances.WithLabelValues(bought.poolID, string(bought.offering.Purchase)).Add(float64(bought.request.Delta))
	case sendAgain(class, err):
		klog.Warningf("Purchase of %d in pool %s has no answer yet, it will be sent again under the same token: %v",
			bought.request.Delta, bought.poolID, err)
	case bought.uncertain:
		bought.refusal = err
		klog.Warningf("Purchase of %d in pool %s was refused after an attempt without an answer, looking whether that one bought: %v",
			bought.request.Delta, bought.poolID, err)
	default:
		p.failed(bought, errorClass(class), codeOf(err), err.Error())
	}
}

// resolve decides purchases that were refused after an attempt without an answer, by the activities of their pool.
// Needs p.mu for writing.
func (p *Provider) resolve(poolID string, activities []alicloud.Activity) {
	for _, bought := range p.purchases {
		if bought.poolID != poolID || bought.refusal == nil {
			continue
		}
		refusal := bought.refusal
		bought.refusal = nil
		for _, activity := range activities {
			if note, ours := noteOf(activity); ours && note.Token == bought.request.ClientToken {
				bought.activityID = activity.ID
			}
		}
		if bought.activityID == "" {
			p.failed(bought, errorClass(alicloud.ClassOf(refusal)), codeOf(refusal), refusal.Error())
		}
	}
}

// sendTimeout bounds one attempt to buy, so that a cloud that hangs holds up the other pools for moments only. What has
// no answer by then is sent again in the next loop.
const sendTimeout = 15 * time.Second

// sendAgain says whether the request may not have been carried out, or was and the answer is lost.
func sendAgain(class alicloud.Class, err error) bool {
	switch class {
	case alicloud.Conflict, alicloud.Throttled, alicloud.Unavailable:
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// failed makes the failure known to core, to the operator and to the loop trigger. Needs p.mu for writing.
func (p *Provider) failed(bought *purchase, class cloudprovider.InstanceErrorClass, code, message string) {
	bought.fail(class, code, message)
	p.retally()
	offering := bought.offering
	purchaseFailures.WithLabelValues(bought.poolID, offering.InstanceType, offering.Zone, string(offering.Purchase), code).
		Add(float64(len(bought.placeholders)))
	p.Events.Eventf(apiv1.EventTypeWarning, "SpotPurchaseFailed", "%d of %d instances of %s did not come: %s: %s",
		len(bought.placeholders), bought.request.Delta, offering.groupID(bought.poolID), code, message)
	p.Wake()
}

// settle accounts for what the activity brought, after the instances were listed. Needs p.mu for writing.
func (p *Provider) settle(bought *purchase, activity *alicloud.Activity, now time.Time) {
	if activity != nil {
		bought.arrived.Insert(activity.CreatedInstances...)
		bought.ended = activity.Done()
	}
	if bought.settled {
		return
	}
	patience := p.patience(bought.poolID)
	switch {
	case !bought.ended && now.Sub(bought.requested) <= patience:
	case bought.outstanding() == 0:
		bought.settled = true
	case bought.ended:
		code, message := activity.ErrorCode, activity.ErrorMessage
		if code == "" {
			code = "CameShort"
			message = fmt.Sprintf("activity %s ended as %s %s", activity.ID, activity.Status, activity.StatusDetail)
		}
		p.failed(bought, errorClass(alicloud.ClassOfCode(code)), code, message)
	default:
		p.failed(bought, cloudprovider.OtherErrorClass, "TimedOut", fmt.Sprintf("no word of it for %v", patience))
	}
}

// patience is how long a purchase of the pool may take. Needs p.mu.
func (p *Provider) patience(poolID string) time.Duration {
	if pool := p.pools[poolID]; pool != nil && pool.settings.MaxNodeProvisionTime != nil {
		return *pool.settings.MaxNodeProvisionTime
	}
	return p.MaxProvisionTime
}

// errorClass decides whether core backs off for lack of resources or for another reason.
func errorClass(class alicloud.Class) cloudprovider.InstanceErrorClass {
	switch class {
	case alicloud.Stockout, alicloud.PriceTooLow, alicloud.Quota:
		return cloudprovider.OutOfResourcesErrorClass
	}
	return cloudprovider.OtherErrorClass
}

func codeOf(err error) string {
	var cloudErr *alicloud.Error
	if errors.As(err, &cloudErr) && cloudErr.Code != "" {
		return cloudErr.Code
	}
	return "Unknown"
}

// acknowledge drops the placeholders that core has deleted, and with them the target that they held up.
func (p *Provider) acknowledge(placeholders sets.Set[string]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, bought := range p.purchases {
		kept := bought.placeholders[:0:0]
		for _, id := range bought.placeholders {
			if !placeholders.Has(id) {
				kept = append(kept, id)
			}
		}
		bought.placeholders = kept
	}
	p.retally()
}

// cancelPurchases stops waiting for up to n instances of the group, the latest bought first.
func (p *Provider) cancelPurchases(groupID string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n > 0 {
		latest := p.latestOutstanding(groupID)
		if latest == nil {
			break
		}
		given := min(n, latest.outstanding())
		latest.cancelled += given
		n -= given
	}
	p.retally()
}

func (p *Provider) latestOutstanding(groupID string) *purchase {
	var latest *purchase
	for _, bought := range p.purchases {
		if bought.outstanding() > 0 && p.groupIDOf(bought.poolID, bought.offering) == groupID &&
			(latest == nil || bought.requested.After(latest.requested)) {
			latest = bought
		}
	}
	return latest
}

// recall takes up the purchases of a previous process from the activities of a pool that this one has not yet seen:
// those still under way, and broken atomic ones, of which what came has to be given back. Needs p.mu for writing.
func (p *Provider) recall(activities []alicloud.Activity) {
	for _, activity := range activities {
		note, ours := noteOf(activity)
		if !ours || p.purchases[note.Token] != nil {
			continue
		}
		short := note.Atomic && activity.Done() && len(activity.CreatedInstances) < note.Count
		if activity.Done() && !short {
			continue
		}
		recalled := &purchase{
			poolID: activity.ScalingGroupID, atomic: note.Atomic, requested: activity.Started,
			offering:  offering{note.InstanceType, note.Zone, note.Purchase},
			targeting: note.Targeting, activityID: activity.ID,
			arrived: sets.New(activity.CreatedInstances...),
			request: alicloud.ScaleRequest{ScalingGroupID: activity.ScalingGroupID, Delta: note.Count, ClientToken: note.Token},
		}
		if recalled.requested.IsZero() {
			recalled.requested = p.Clock.Now()
		}
		if short {
			recalled.settled, recalled.ended = true, true
			recalled.failure = &cloudprovider.InstanceErrorInfo{ErrorCode: activity.ErrorCode}
		}
		p.purchases[note.Token] = recalled
		klog.Infof("Took up purchase %s of %d in pool %s, activity %s (%s)", note.Token, note.Count,
			recalled.poolID, activity.ID, activity.Status)
	}
}

// judge compares what came with what was asked. Where the cloud ignored type or zone the pool is not targetable, and
// becomes one node group. Needs p.mu for writing.
func (p *Provider) judge(activity alicloud.Activity) {
	note, ours := noteOf(activity)
	if !ours {
		return
	}
	for _, id := range activity.CreatedInstances {
		instance, listed := p.instances[id]
		if !listed {
			continue
		}
		if note.Purchase == PurchaseSpot && PurchaseOf(instance.SpotStrategy) == PurchaseOnDemand {
			p.compensated(instance)
		}
		if note.Targeting == targetRequest && !p.whole.Has(instance.ScalingGroupID) &&
			(instance.InstanceType != note.InstanceType || instance.ZoneID != note.Zone) {
			p.whole.Insert(instance.ScalingGroupID)
			p.Events.Eventf(apiv1.EventTypeWarning, "SpotPoolNotTargetable",
				"Pool %s was asked for %s in %s and delivered %s in %s: unless its tags say targeting=request, it is one node group from now on",
				instance.ScalingGroupID, note.InstanceType, note.Zone, instance.InstanceType, instance.ZoneID)
		}
	}
}

// compensated tells, once per instance, that pay-as-you-go came where spot was asked for. Needs p.mu for writing.
func (p *Provider) compensated(instance alicloud.ScalingInstance) {
	p.reports.once("compensated/"+instance.ID, func() {
		compensatedInstances.WithLabelValues(instance.ScalingGroupID).Inc()
		p.Events.Eventf(apiv1.EventTypeWarning, "SpotCompensatedWithOnDemand",
			"Pool %s delivered pay-as-you-go instance %s where spot was asked for: turn off CompensateWithOnDemand",
			instance.ScalingGroupID, instance.ID)
	})
}
