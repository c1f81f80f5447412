package buyer

import (
	"context"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/ledger"
)

// launch makes a purchase by RunInstances. A call that is refused for good ends it: what the calls before created is entered
// with the refusal. After any other failure all calls are made again in a later refresh, under the same tokens: those that were
// carried out answer then with what they created.
func (b *Buyer) launch(ctx context.Context, purchase *ledger.Purchase, calls []ledger.LaunchCall) {
	ctx, cancel := context.WithTimeout(ctx, 2*sendTimeout)
	defer cancel()
	var created []string
	for _, call := range calls {
		ids, err := b.launchOne(ctx, purchase, call)
		switch {
		case err == nil:
			created = append(created, ids...)
			continue
		case len(created) == 0:
			b.purchases.Refused(purchase, err)
		case alicloud.IsUncertain(err) || ledger.MaySucceedLater(err) || alicloud.NeedsOperator(err):
			b.purchases.PartlyLaunched(purchase, err)
		default:
			b.purchases.Launched(purchase, created, err)
		}
		return
	}
	b.purchases.Launched(purchase, created, nil)
}

// launchOne makes one call. If the vSwitch has no address left, it takes the next one of the zone, and stays with that.
func (b *Buyer) launchOne(ctx context.Context, purchase *ledger.Purchase, call ledger.LaunchCall) (ids []string, err error) {
	for n, request := range call.Requests {
		ids, err = b.launchIn(ctx, request)
		isFull := alicloud.CodeOf(err) == alicloud.CodeNoAddress && !alicloud.IsUncertain(err)
		if !isFull || n == len(call.Requests)-1 || !b.purchases.NoAddress(purchase, call.Index, request.VSwitchID) {
			return ids, err
		}
	}
	return ids, err
}

func (b *Buyer) launchIn(ctx context.Context, request alicloud.LaunchRequest) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	return b.cloud.Launch(ctx, request)
}
