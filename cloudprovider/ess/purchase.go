package ess

import (
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
