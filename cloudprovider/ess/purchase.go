package ess

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/pricing"
)

// purchase is one request for instances, from before it is sent until all that it brought, and all that it failed to
// bring, is accounted for. It survives the process in the metadata of its scaling activity.
type purchase struct {
	// request is what is sent. Once it may have been carried out it never changes: it may be sent again, and only the same
	// request under the same token is bought once.
	request   alicloud.ScaleRequest
	poolID    string
	offering  offering
	targeting targeting
	atomic    bool
	// configuration is the scaling configuration of the pool when it was bought.
	configuration string
	// owner is Config.Owner of the process that bought it.
	owner     string
	requested time.Time
	// plan: it is to be planned before it is bought. rest is the token of the purchase that was parted from it for that.
	plan bool
	rest string

	sending  bool
	attempts attempts
	// accepted is when the cloud took it, zero until then.
	accepted time.Time
	// activityID is empty until the purchase is accepted, and stays so where the answer named no activity.
	activityID string
	delivery   delivery
	noteMissed bool

	// cancelled is how many core no longer waits for, lost how many will not come.
	cancelled, lost int
	failure         *cloudprovider.InstanceErrorInfo
	// placeholders stand in Nodes for what did not come, until core has acknowledged it.
	placeholders []string
	// recalled says how a purchase of a former process was found; nil for one of this process.
	recalled *recollection
}

// outstanding is how many are still to come, or have come and are not listed yet.
func (b *purchase) outstanding() int {
	return max(0, b.request.Delta-b.cancelled-b.lost-b.delivery.arrived.Len())
}

// queued says whether the cloud has still to accept the purchase.
func (b *purchase) queued() bool { return b.accepted.IsZero() && b.outstanding() > 0 }

// lose gives up so many for which core will see failed instances. An atomic purchase is lost as a whole.
func (b *purchase) lose(missing int, failure cloudprovider.InstanceErrorInfo) {
	if b.atomic {
		missing = max(0, b.request.Delta-b.cancelled-b.lost)
	}
	b.failure = &failure
	for n := range missing {
		b.placeholders = append(b.placeholders, placeholderPrefix+b.request.ClientToken+"/"+strconv.Itoa(b.lost+n))
	}
	b.lost += missing
}

// broken says whether an atomic purchase came short, so that what came has to be given back.
func (b *purchase) broken() bool { return b.atomic && b.failure != nil }

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

// buy enters the purchase, so that it counts before anything is sent, and sends it unless it has to wait for its turn.
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
	if pool.targeting == targetRequest && pool.settings.Targeting == TargetingAuto && p.ignoresTargeting(pool.id) {
		return nil, fmt.Errorf("node group %s: its scaling group delivers no particular offering, and is one node group from the next loop on", o.id)
	}
	if room := p.headroom(o); delta > room {
		return nil, fmt.Errorf("node group %s: cannot grow by %d, there is room for %d", o.id, delta, room)
	}
	bought := &purchase{
		poolID: pool.id, offering: o.offering, targeting: pool.targeting, atomic: atomic,
		configuration: pool.group.ActiveScalingConfigurationID, owner: p.Owner, requested: p.Clock.Now(), delivery: newDelivery(),
		request: alicloud.ScaleRequest{ScalingGroupID: pool.id, Delta: delta, Sync: pool.group.DesiredCapacity != nil},
	}
	bought.attempts.bystanders = p.instancesOf(pool.id)
	if pool.targeting == targetRequest {
		bought.request.InstanceType = known.InstanceType
		bought.request.VSwitchIDs = known.vswitches
		bought.request.SpotStrategy = known.spotStrategy
	}
	if queue := p.queues[pool.id]; queue != nil {
		bought.request.Serial = queue.parallelRefused
	}
	if err := bought.sign(); err != nil {
		return nil, fmt.Errorf("node group %s: describe the purchase: %w", o.id, err)
	}
	p.purchases[bought.request.ClientToken] = bought
	if err := p.probeWith(bought); err != nil {
		return nil, fmt.Errorf("node group %s: describe the purchase: %w", o.id, err)
	}
	p.retally()
	price := "an unknown price"
	if perHour, ok := p.priceOf(pool, o.offering); ok {
		price = pricing.Amount(perHour, p.Prices.Currency()) + " an hour"
	}
	p.Events.Eventf(apiv1.EventTypeNormal, "SpotPurchaseRequested", "Buying %d instances of %s at %s each", delta, o.id, price)
	return bought, nil
}

// sign gives the request a token, and the note that tells a later process what it is for.
func (b *purchase) sign() error {
	b.request.ClientToken = uuid.NewString()
	metadata, err := b.note().encode()
	b.request.Metadata = metadata
	return err
}

// fail has core back the offering off, and tells the operator and the loop trigger. Needs p.mu for writing.
func (p *Provider) fail(bought *purchase, missing int, class alicloud.Class, code, message string) {
	before := len(bought.placeholders)
	bought.lose(missing, cloudprovider.InstanceErrorInfo{ErrorClass: errorClass(class), ErrorCode: code, ErrorMessage: message})
	p.retally()
	failed := len(bought.placeholders) - before
	offering := bought.offering
	purchaseFailures.WithLabelValues(bought.poolID, offering.InstanceType, offering.Zone, string(offering.Purchase), code).Add(float64(failed))
	p.Events.Eventf(apiv1.EventTypeWarning, "SpotPurchaseFailed", "%d of %d instances of %s did not come: %s: %s",
		failed, bought.request.Delta, offering.groupID(bought.poolID), code, message)
	p.Wake()
}

// settle fails what will not come, after stock was taken of what did. Needs p.mu for writing.
func (p *Provider) settle(bought *purchase, now time.Time) {
	if bought.accepted.IsZero() || bought.outstanding() == 0 {
		return
	}
	delivery := &bought.delivery
	if delivery.ended() {
		missing := bought.outstanding() - delivery.unlistedYet(bought.outstanding(), now)
		if missing > 0 && bought.recalled.isBlind() {
			bought.lost += missing // whose it was nobody knows, so nothing is to be backed off
		} else if missing > 0 {
			class, code, message := delivery.failure()
			p.fail(bought, missing, class, code, message)
		}
		return
	}
	if patience := p.patience(bought.poolID); now.Sub(bought.accepted) > patience {
		p.fail(bought, bought.outstanding(), alicloud.Unknown, "TimedOut", fmt.Sprintf("no word of it for %v", patience))
	}
}

// isOver says whether nothing is left to be known or done of the purchase. Needs p.mu.
func (p *Provider) isOver(bought *purchase, now time.Time) bool {
	switch {
	case bought.sending, bought.outstanding() > 0, len(bought.placeholders) > 0:
		return false
	case bought.accepted.IsZero(): // cancelled or refused before the cloud took it
		return true
	case bought.activityID == "":
		return true
	}
	// What timed out is kept until it has ended: what comes late of a gang has to be given back, too.
	return bought.delivery.ended() && !p.mayRollBack(bought, now) && !p.hasBare(bought)
}

// patience is how long a purchase of the pool may take once it is accepted. Needs p.mu.
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
	if code := alicloud.CodeOf(err); code != "" {
		return code
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
