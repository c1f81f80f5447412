package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"

	"gpu-spot-autoscaler/cloudprovider/alicloud/client"
	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/nodes"
	"gpu-spot-autoscaler/test/alisim/temper"
)

// The simulated account.
const (
	simRegion  = "ap-southeast-1"
	simGroup   = "asg-contract"
	simDesired = "asg-contract-desired"
	simOthers  = "asg-others"
	// simSpeed is how many of its seconds pass in one of its clock's. The clock starts with ours and leaves it behind, and a
	// request whose Timestamp is 15 minutes off is refused.
	simSpeed = 100
)

var (
	simTypes = []string{"ecs.gn7i-c8g1.2xlarge", "ecs.gn6i-c4g1.xlarge"}
	simZones = []string{simRegion + "a", simRegion + "b"}
)

// simulator is a simulated cloud, and the account in it. Its time passes only when whoever asks waits, so that it answers
// the same however busy the machine is.
type simulator struct {
	*alisim.Server
	clock   *clocktesting.FakeClock
	account *account
}

func (s *simulator) stop() {
	s.account.client.Close()
	s.Stop()
}

// simulate starts a simulated cloud with the groups that the questions need.
func simulate(ctx context.Context, w alisim.World) (*simulator, error) {
	cluster, clk := fake.NewClientset(), clocktesting.NewFakeClock(time.Now())
	server, err := alisim.Start(ctx, w, alisim.Options{Clock: clk, Nodes: nodes.NewRegistrar(cluster, clk)})
	if err != nil {
		return nil, err
	}
	s := &simulator{Server: server, clock: clk}
	if s.account, err = s.accountWith(cluster); err != nil {
		server.Stop()
		return nil, fmt.Errorf("the simulator: %w", err)
	}
	return s, nil
}

func (s *simulator) pace() *pace {
	pass := func(ctx context.Context, d time.Duration) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.Pass(s.clock, d)
		return nil
	}
	return &pace{clock: s.clock, pass: pass, speed: simSpeed}
}

// strict is the strict temper without what it does only now and then: that would answer the same question now so, now so.
func strict() temper.Rules {
	rules := temper.Strict()
	rules.LoseNoteOf, rules.HangOneIn, rules.StayOneIn = 0, 0, 0
	return rules
}

// askSimulated puts the questions to two simulated clouds: those that read to one in which something has happened, those
// that buy to the other.
func askSimulated(ctx context.Context, asked []question) ([]answer, error) {
	answers := make([]answer, len(asked))
	group, ctx := errgroup.WithContext(ctx)
	for _, buying := range []bool{false, true} {
		group.Go(func() error {
			var part []int
			for n, q := range asked {
				if q.spends.anything() == buying {
					part = append(part, n)
				}
			}
			return askOneCloud(ctx, asked, part, answers)
		})
	}
	return answers, group.Wait()
}

// askOneCloud fills in part of the answers.
func askOneCloud(ctx context.Context, asked []question, part []int, answers []answer) error {
	if len(part) == 0 {
		return nil
	}
	s, err := simulate(ctx, newWorld())
	if err != nil {
		return err
	}
	defer s.stop()
	var some []question
	for _, n := range part {
		some = append(some, asked[n])
	}
	if !some[0].spends.anything() {
		if err := s.furnish(ctx); err != nil {
			return fmt.Errorf("the simulator: %w", err)
		}
	}
	for k, got := range askAll(ctx, s.account, some, true) {
		answers[part[k]] = got
	}
	return nil
}

// newWorld has a group to buy in, one with a desired capacity, and one with instances.
func newWorld() alisim.World {
	w := alisim.NewWorld(simRegion, simZones...)
	pool := alisim.Pool{
		ID: simGroup, MaxSize: mostInstances, InstanceTypes: simTypes,
		VSwitches: w.VSwitchIDs(), SpotStrategy: alisim.SpotAsPriceGo, CompensateWithOnDemand: ptr.To(false),
		ScalingPolicy:     "recycle",
		Tags:              map[string]string{api.TagContract: api.TagContractMaySpend},
		ConfigurationTags: map[string]string{"owner": "contract"},
	}
	desired := pool
	desired.ID, desired.DesiredCapacity = simDesired, ptr.To(0)
	others := pool
	others.ID, others.Instances, others.MaxSize, others.Tags = simOthers, 2, 10, nil
	w.Speed, w.Temper = simSpeed, strict()
	w.NoticePeriod = metav1.Duration{Duration: time.Hour} // longer than all questions about what is about to be released take
	w.Pools = []alisim.Pool{pool, desired, others}
	w.RateLimits = map[string]int{"*": 0}
	return w
}

func (s *simulator) accountWith(cluster kubernetes.Interface) (*account, error) {
	unlimited := map[string]rpc.Limit{}
	for _, action := range []string{
		"DescribeScalingGroups", "DescribeScalingInstances", "DescribeScalingActivities", "DescribeScalingConfigurations",
		"DescribeInstances", "ScaleWithAdjustment", "RemoveInstances", "DescribePrice",
	} {
		unlimited[action] = rpc.Limit{PerSecond: 1e6, Burst: 1e6}
	}
	client, err := client.New(rpc.Options{
		Region: simRegion, Scheme: "http", Endpoints: rpc.Endpoints{ESS: s.Endpoint(), ECS: s.Endpoint(), VPC: s.Endpoint()},
		Credentials: credentials.NewStaticAKCredentialsProvider(s.AccessKey().ID, s.AccessKey().Secret), RateLimits: unlimited,
	})
	if err != nil {
		return nil, err
	}
	return &account{
		pace: s.pace(), client: client, region: simRegion, group: simGroup, desired: simDesired, nodes: cluster,
		offers: map[string]offer{}, log: func(format string, args ...any) { fmt.Fprintf(io.Discard, format, args...) },
	}, nil
}

// furnish lets things happen that questions ask about afterwards: a notice, and purchases that fail.
func (s *simulator) furnish(ctx context.Context) error {
	if err := s.Reclaim(s.Instances()[0].ID); err != nil {
		return err
	}
	buy, err := s.account.cheapest(ctx, simGroup)
	if err != nil {
		return err
	}
	defer s.sellOut()()
	for range 2 { // so that activities have an order
		e := &trial{account: s.account, group: simGroup, offer: buy, most: 1}
		id, _, err := e.buy(ctx, 1, nil)
		if err != nil {
			return err
		}
		if _, err = e.end(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// sellOut leaves no instance to be had of what the groups sell, until the returned function is called.
func (s *simulator) sellOut() (restock func()) {
	var undo []func()
	for _, t := range simTypes {
		for _, zone := range simZones {
			stock := s.Quote(t, zone).Capacity
			s.SetStock(t, zone, 0)
			undo = append(undo, func() { s.SetStock(t, zone, stock) })
		}
	}
	return func() {
		for _, one := range undo {
			one()
		}
	}
}
