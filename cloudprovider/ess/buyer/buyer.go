// Package buyer sends purchases to the cloud: each in the order that the ledger says, and again under the same ClientToken
// until there is an answer. What the cloud answered is entered in the ledger, which decides what follows.
package buyer

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/ledger"
)

const (
	// sendTimeout bounds one attempt to buy, so that a cloud that does not answer holds up the other pools for moments only. A
	// purchase without an answer is sent again in the next refresh, unless its bundle broke.
	sendTimeout = 15 * time.Second
	// maxConcurrent is how many purchases are sent at the same time.
	maxConcurrent = 8
)

// Cloud is what a Buyer asks of Alibaba Cloud. *client.Client of package alicloud/client implements it.
type Cloud interface {
	Scale(ctx context.Context, request alicloud.ScaleRequest) (alicloud.Scaling, error)
	PlanScale(ctx context.Context, request alicloud.ScaleRequest) (alicloud.Plan, error)
	ActivitiesInProgress(ctx context.Context, groupID string) ([]alicloud.Activity, error)
	Launch(ctx context.Context, request alicloud.LaunchRequest) ([]string, error)
}

// Buyer is safe for concurrent use.
type Buyer struct {
	cloud     Cloud
	purchases *ledger.Purchases

	mu sync.Mutex
	// bundle is what is bought together; nil while there is no bundle.
	bundle *bundle
	// gathering: purchases are gathered in place of being sent.
	gathering bool
	gathered  []*ledger.Purchase
}

// bundle is purchases of several offerings for one gang.
type bundle struct {
	id        string
	purchases []*ledger.Purchase
}

// New returns a Buyer.
func New(cloud Cloud, purchases *ledger.Purchases) *Buyer {
	return &Buyer{cloud: cloud, purchases: purchases}
}

// Buy enters a purchase of delta instances of the node group, all or nothing if it is atomic, and sends it unless it has to
// wait or is gathered. The error says why nothing can be bought. A refusal by the cloud is no error: the ledger shows it as failed instances.
func (b *Buyer) Buy(ctx context.Context, groupID string, delta int, atomic bool) error {
	if bundled, err := b.enterBundled(groupID, delta, atomic); bundled {
		return err
	}
	purchase, err := b.purchases.Enter(groupID, delta, atomic)
	if err != nil || b.gather(purchase) {
		return err
	}
	b.send(ctx, purchase)
	return nil
}

// Gather has the purchases that buy makes wait until it returns, or calls send. Until they are sent, later ones of the same offering join them,
// which saves requests: Alibaba Cloud limits those of each action. They are sent side by side, and there is an answer to each afterwards.
func (b *Buyer) Gather(ctx context.Context, buy func(send func())) {
	b.setGathering(true)
	defer b.sendGathered(ctx)
	defer b.setGathering(false)
	buy(func() { b.sendGathered(ctx) })
}

func (b *Buyer) setGathering(gathering bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gathering = gathering
}

// gather is false if the purchase is to be sent at once.
func (b *Buyer) gather(purchase *ledger.Purchase) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gathering && !slices.Contains(b.gathered, purchase) { // it is there already if it was joined
		b.gathered = append(b.gathered, purchase)
	}
	return b.gathering
}

// sendGathered sends what was gathered so far, unless a refresh has tried that before: the gRPC server refreshes beside.
func (b *Buyer) sendGathered(ctx context.Context) {
	b.mu.Lock()
	gathered := b.gathered
	b.gathered = nil
	b.mu.Unlock()
	b.sendAll(ctx, b.purchases.Untried(gathered))
}

// sendAll sends the purchases side by side.
func (b *Buyer) sendAll(ctx context.Context, purchases []*ledger.Purchase) {
	var sending errgroup.Group
	sending.SetLimit(maxConcurrent)
	for _, purchase := range purchases {
		sending.Go(func() error { b.send(ctx, purchase); return nil })
	}
	_ = sending.Wait() // errors are entered in the ledger
}

// Bundle has the atomic purchases that buy makes wait until it returns. If it returns true, they are sent side by side, there is an answer to
// each afterwards, and all of them are given back if any comes short. Else they are cancelled.
func (b *Buyer) Bundle(ctx context.Context, buy func() bool) {
	b.setBundle(&bundle{id: uuid.NewString()})
	committed := false
	defer func() {
		bundled := b.setBundle(nil)
		if !committed {
			b.purchases.Drop(bundled)
			return
		}
		b.purchases.Commit(bundled)
		b.sendAll(ctx, bundled)
	}()
	committed = buy()
}

// setBundle begins the bundle, or ends the one that there was if it is nil, and returns the purchases of that.
func (b *Buyer) setBundle(next *bundle) (purchases []*ledger.Purchase) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bundle != nil {
		purchases = b.bundle.purchases
	}
	b.bundle = next
	return purchases
}

// enterBundled enters a purchase of the bundle. It is false if there is no bundle, or the purchase is not atomic. The ledger, with what it
// calls, is not called under the lock: the bundle does not end before whoever buys has returned.
func (b *Buyer) enterBundled(groupID string, delta int, atomic bool) (bundled bool, err error) {
	current := b.currentBundle()
	if current == nil || !atomic {
		return false, nil
	}
	purchase, err := b.purchases.EnterBundled(groupID, delta, current.id)
	if err != nil {
		return true, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	current.purchases = append(current.purchases, purchase)
	return true, nil
}

func (b *Buyer) currentBundle() *bundle {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bundle
}

// SendQueued sends the purchases that the cloud has not accepted yet. read returns whether the recent activities of a pool were
// read.
func (b *Buyer) SendQueued(ctx context.Context, managed sets.Set[string], read func(poolID string) bool, now time.Time) {
	var sending errgroup.Group
	sending.SetLimit(maxConcurrent)
	for _, line := range b.purchases.Due(managed, read, now) {
		if line.InTurn {
			sending.Go(func() error { b.sendInTurn(ctx, line.Purchases); return nil })
			continue
		}
		for _, purchase := range line.Purchases {
			sending.Go(func() error { b.send(ctx, purchase); return nil })
		}
	}
	_ = sending.Wait() // errors are entered in the ledger
}

// sendInTurn sends the first purchase that the cloud does not reject.
func (b *Buyer) sendInTurn(ctx context.Context, line []*ledger.Purchase) {
	for _, purchase := range line {
		b.send(ctx, purchase)
		if !b.purchases.Rejected(purchase) {
			return
		}
	}
}

// send sends the purchase if it is its turn. If the answer is lost, or the cloud is busy, the purchase stays in the ledger, and
// a later refresh sends the same request again under the same token, unless its bundle broke. So it cannot be bought twice.
func (b *Buyer) send(ctx context.Context, purchase *ledger.Purchase) {
	attempt, taken := b.purchases.Take(purchase)
	if !taken {
		return
	}
	if len(attempt.Launches) > 0 {
		b.launch(ctx, purchase, attempt.Launches)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	request := attempt.Request
	if request.Sync && !b.isStable(ctx, request.ScalingGroupID) {
		b.purchases.PutBack(purchase)
		return
	}
	if attempt.Plan {
		if request, taken = b.plan(ctx, purchase, request); !taken {
			return
		}
	}
	scaling, err := b.cloud.Scale(ctx, request)
	if serial, dropped := b.purchases.DropParallel(purchase, err); dropped {
		scaling, err = b.cloud.Scale(ctx, serial)
	}
	if err != nil {
		b.purchases.Refused(purchase, err)
		return
	}
	b.purchases.Accepted(purchase, scaling)
}

// plan asks ESS what the purchase would create. It returns the request to send then; false where none is to be sent.
func (b *Buyer) plan(ctx context.Context, purchase *ledger.Purchase, request alicloud.ScaleRequest) (alicloud.ScaleRequest, bool) {
	plan, err := b.cloud.PlanScale(ctx, request)
	if serial, dropped := b.purchases.DropParallel(purchase, err); dropped {
		plan, err = b.cloud.PlanScale(ctx, serial)
	}
	return b.purchases.Planned(purchase, plan, err)
}

// isStable returns whether a scaling group with a desired capacity may be sent a purchase, because nothing in it is under way.
func (b *Buyer) isStable(ctx context.Context, poolID string) bool {
	if !b.purchases.NothingUnderWay(poolID) {
		return false
	}
	underWay, err := b.cloud.ActivitiesInProgress(ctx, poolID)
	if err != nil {
		klog.FromContext(ctx).Info("Cannot tell whether the desired capacity is reached, so nothing is bought yet", "pool", poolID, "err", err)
	}
	return err == nil && len(underWay) == 0
}
