package main

import (
	"context"
	"errors"
	"os"

	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/alicloud/client"
	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/rig"
)

// provided is the real provider with the real client in this process, over a cloud in another one. The book of prices
// is real too, but nobody asks for its prices: those calls are not of the refresh.
type provided struct {
	*ess.Provider
	cloud  *cloud
	client *client.Client
}

func newProvided(ctx context.Context, world alisim.World) (*provided, error) {
	simulated, err := startCloud(ctx, world)
	if err != nil {
		return nil, err
	}
	p := &provided{cloud: simulated}
	if err := p.build(); err != nil {
		return nil, errors.Join(err, simulated.stop())
	}
	return p, nil
}

func (p *provided) build() error {
	// The client reads its key where the SDK's default chain does.
	for name, value := range map[string]string{
		"ALIBABA_CLOUD_ACCESS_KEY_ID": p.cloud.AccessKey.ID, "ALIBABA_CLOUD_ACCESS_KEY_SECRET": p.cloud.AccessKey.Secret,
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	var err error
	if p.client, err = client.New(rpc.Options{
		Region: region, Scheme: "http",
		Endpoints: rpc.Endpoints{ESS: p.cloud.Endpoint, ECS: p.cloud.Endpoint, VPC: p.cloud.Endpoint},
	}); err != nil {
		return err
	}
	book := pricing.NewBook(pricing.BookOptions{Source: p.client})
	p.Provider, err = ess.New(ess.Config{
		Cloud: p.client, Prices: book,
		Events: silence{}, Clock: clock.RealClock{}, ClusterName: rig.ClusterName, Region: region,
	})
	return err
}

func (p *provided) stop() error {
	err := p.Provider.Cleanup()
	p.client.Close()
	return errors.Join(err, p.cloud.stop())
}

// silence is where Events go.
type silence struct{}

func (silence) Eventf(string, string, string, ...any) {}
