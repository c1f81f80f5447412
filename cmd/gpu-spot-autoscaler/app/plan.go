package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/autoscaler/cluster-autoscaler/debuggingsnapshot"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/alicloud/dryrun"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/ledger"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
	"gpu-spot-autoscaler/cloudprovider/processors/spotfirst"
	"gpu-spot-autoscaler/cloudprovider/reasons"
	"gpu-spot-autoscaler/cloudprovider/status"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/plan"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/trim"
	"gpu-spot-autoscaler/pricing"
)

const (
	// planPoll is how often it is looked whether what a plan waits for is there.
	planPoll = 50 * time.Millisecond
	// installedTime is how long it may take to find out which job systems are installed, gangsTime until the gangs of pods are known, and
	// sentTime until purchases are sent.
	installedTime, gangsTime, sentTime = 30 * time.Second, 30 * time.Second, 30 * time.Second
	// mostLoops bounds the loops of core in a plan. Each but the last buys something.
	mostLoops = 50
)

// foretell returns what would be bought for the documents.
func foretell(ctx context.Context, request plan.Request) (*plan.Plan, error) {
	config, err := planConfig(request.Options, rest.CopyConfig(request.Kube))
	if err != nil {
		return nil, err
	}
	config.Shortages = request.Shortages
	return planFor(ctx, config, request)
}

// planConfig returns the configuration of an autoscaler with these options that writes nothing, and buys at once what it would otherwise buy a
// moment later.
func planConfig(opts *options.Options, kube *rest.Config) (*Config, error) {
	opts.DryRun = true
	opts.SettleWindow = 0
	autoscaling := &opts.Autoscaling
	autoscaling.ScaleDownEnabled, autoscaling.WriteStatusConfigMap, autoscaling.ProvisioningRequestEnabled = false, false, false
	autoscaling.NewPodScaleUpDelay = 0
	kube.QPS, kube.Burst = autoscaling.KubeClientOpts.KubeClientQPS, autoscaling.KubeClientOpts.KubeClientBurst
	kube.ContentType, kube.UserAgent = autoscaling.KubeClientOpts.APIContentType, options.Name+"-plan"
	kube.Wrap(dryrun.ReadOnly)
	return newConfig(opts, kube)
}

// planFor returns what would be bought for the documents.
func planFor(ctx context.Context, config *Config, request plan.Request) (*plan.Plan, error) {
	submitted, err := readSubmitted(ctx, config, request)
	if err != nil {
		return nil, err
	}
	made := &plan.Plan{APIVersion: plan.APIVersion, Kind: plan.Kind, Time: config.Clock.Now().UTC().Truncate(time.Second), Notes: []string{}}
	made.Notes = append(made.Notes, submitted.Notes...)
	first, err := simulate(ctx, config, submitted)
	if err != nil {
		return nil, err
	}
	made.Currency, made.Purchase, made.Jobs = config.Cloud.Currency(), first.purchase, first.outcomes
	if len(first.purchase.Items) == 0 {
		return made, nil
	}
	var bought []string
	for _, item := range first.purchase.Items {
		bought = append(bought, item.Offering)
	}
	second, err := simulate(ctx, config, submitted.Without(bought...))
	if err != nil {
		return nil, fmt.Errorf("find the runner-up: %w", err)
	}
	if len(second.purchase.Items) > 0 {
		made.RunnerUp = &second.purchase
	}
	return made, nil
}

// readSubmitted makes the pods of the documents, with the job systems that are installed.
func readSubmitted(ctx context.Context, config *Config, request plan.Request) (submitted *plan.Submitted, err error) {
	registry, _, err := newJobs(config, &record.FakeRecorder{}, func() {})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return registry.Run(running) })
	defer func() {
		cancel()
		if ended := group.Wait(); ended != nil && !errors.Is(ended, context.Canceled) {
			submitted, err = nil, fmt.Errorf("read the job systems that are installed: %w", ended)
		}
	}()
	if err := await(running, installedTime, registry.HasSynced); err != nil {
		return nil, fmt.Errorf("find out which job systems are installed; may you list CustomResourceDefinitions and jobs? %w", err)
	}
	submitted, err = plan.Read(request.Documents, registry, config.Clock)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(config.KubeConfig)
	if err != nil {
		return nil, fmt.Errorf("make the client of jobs: %w", err)
	}
	if err := submitted.CheckNew(ctx, objects); err != nil {
		return nil, err
	}
	dry := rest.CopyConfig(request.Kube)
	dry.Wrap(dryrun.Transport)
	client, err := kubernetes.NewForConfig(dry)
	if err != nil {
		return nil, fmt.Errorf("make the client of pods: %w", err)
	}
	return submitted, submitted.Admit(ctx, client)
}

// await waits until something is so, for as long as that may take.
func await(ctx context.Context, most time.Duration, isSo func() bool) error {
	return wait.PollUntilContextTimeout(ctx, planPoll, most, true, func(context.Context) (bool, error) { return isSo(), nil })
}

// foretold is what an autoscaler would buy for the pods that are submitted, and what becomes of them.
type foretold struct {
	purchase plan.Purchase
	outcomes []plan.Outcome
}

// simulate runs an autoscaler of its own, in a dry run: first over the cluster as it is, until it has bought what others wait for, and then with
// the pods that are submitted.
func simulate(ctx context.Context, of *Config, submitted *plan.Submitted) (result *foretold, err error) {
	config := *of
	config.Submitted = submitted
	config.DryRun = dryrun.New(of.DryRun.Reads, of.Clock, dryRunKeep)
	config.Cloud = config.DryRun
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p, err := build(ctx, &config, snapshotter{debuggingsnapshot.NewDebuggingSnapshotter(false)})
	if err != nil {
		return nil, err
	}
	factories := []informers.SharedInformerFactory{p.informers, p.overrides.Informers, p.ack.informers}
	err = whileListed(ctx, firstLists, factories, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { p.prices.Run(ctx); return nil })
		group.Go(func() error { return unlessDone(ctx, p.gangs.Run(ctx)) })
		group.Go(func() (err error) {
			defer cancel()
			result, err = p.foretell(ctx, &config)
			return err
		})
		return group.Wait()
	})
	if err == nil && result == nil {
		err = context.Cause(ctx)
	}
	return result, err
}

// foretell runs core's loops.
func (p *parts) foretell(ctx context.Context, config *Config) (*foretold, error) {
	if err := p.prepare(ctx); err != nil {
		return nil, err
	}
	defer p.cleanUp(ctx)
	if err := p.core.Start(); err != nil {
		return nil, fmt.Errorf("start cluster autoscaler: %w", err)
	}
	if err := p.loops(ctx, mostLoops); err != nil {
		return nil, err
	}
	began, pods := config.Clock.Now(), p.informers.Core().V1().Pods().Informer().GetIndexer()
	transform := trim.New()
	for _, pod := range config.Submitted.Pods() {
		trimmed, err := transform(pod.DeepCopy())
		if err == nil {
			err = pods.Add(trimmed)
		}
		if err != nil {
			return nil, fmt.Errorf("submit pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	if err := p.loops(ctx, 1); err != nil {
		return nil, err
	}
	havePlace := p.havePlace(config.Submitted)
	if err := p.loops(ctx, mostLoops); err != nil {
		return nil, err
	}
	outcomes, err := p.outcomes(config.Submitted, havePlace)
	return &foretold{purchase: p.purchaseSince(began, config, outcomes), outcomes: outcomes}, err
}

// prepare reads the pools, the prices, what the leader remembers of the market, and which Nodes are reclaiming.
func (p *parts) prepare(ctx context.Context) error {
	if err := p.provider.Refresh(); err != nil {
		return fmt.Errorf("read the pools: %w", err)
	}
	if err := p.market.Load(ctx); err != nil {
		return fmt.Errorf("read what the leader remembers of the market: %w", err)
	}
	p.awaitPrices(ctx)
	nodes, err := p.informers.Core().V1().Nodes().Lister().List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for _, node := range nodes {
		p.reclaimer.NodeAdded(ctx, node) // it only takes note of it: the controller does not run
	}
	pools, _ := p.provider.Pools()
	if !slices.ContainsFunc(pools, func(each status.Pool) bool { return each.Targeting == string(pool.TargetLaunch) }) {
		return nil
	}
	select { // a new process buys nothing before that
	case <-time.After(ledger.LaunchListLag):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// loops runs core's loop until one buys nothing, but no more than most times.
func (p *parts) loops(ctx context.Context, most int) error {
	pods, err := p.informers.Core().V1().Pods().Lister().List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	known := func() bool {
		return !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
			return pod.Spec.NodeName == "" && p.gangs.Find(pod).Size == podlist.UnknownSize
		})
	}
	if err := await(ctx, gangsTime, known); err != nil {
		return fmt.Errorf("read which pods are gangs: %w", err)
	}
	for range most {
		began := time.Now()
		if err := p.core.RunOnce(began); err != nil {
			return fmt.Errorf("run the autoscaler's loop: %w", err)
		}
		if err := await(ctx, sentTime, p.isSent); err != nil {
			return fmt.Errorf("wait for purchases of the plan: %w", err)
		}
		if p.core.LastScaleUpTime().Before(began) {
			return nil
		}
	}
	return nil
}

// isSent returns whether all purchases have been sent.
func (p *parts) isSent() bool {
	pools, _ := p.provider.Pools()
	return !slices.ContainsFunc(pools, func(each status.Pool) bool {
		return slices.ContainsFunc(each.Purchases, func(bought status.Purchase) bool { return bought.Accepted == nil })
	})
}

// havePlace returns which of the pods of each job have a place on a node that there is or that is on its way.
func (p *parts) havePlace(submitted *plan.Submitted) (all [][]bool) {
	for _, job := range submitted.Jobs {
		places := make([]bool, len(job.Pods))
		for i, pod := range job.Pods {
			skipped := p.pods.skipped.Of(pod.UID)
			places[i] = skipped != nil && skipped.Code == reasons.HasPlace
		}
		all = append(all, places)
	}
	return all
}

// outcomes returns what became of the pods, of which those had a place before anything was bought for them.
func (p *parts) outcomes(submitted *plan.Submitted, before [][]bool) ([]plan.Outcome, error) {
	after := p.havePlace(submitted)
	result := []plan.Outcome{}
	for j, job := range submitted.Jobs {
		outcome := plan.Outcome{
			File: job.File, Document: job.Number, Kind: job.Object.GetKind(), Namespace: job.Object.GetNamespace(), Name: job.Object.GetName(),
			Pods: len(job.Pods), Waiting: []plan.Waiting{},
		}
		var waiting []*corev1.Pod
		for i, pod := range job.Pods {
			switch {
			case before[j][i]:
				outcome.HavePlace++
			case after[j][i]:
				outcome.NewNodes++
			default:
				waiting = append(waiting, pod)
			}
			if _, stated := spotfirst.WorkOf(pod); stated {
				outcome.Work = pod.Annotations[api.AnnotationWork]
			}
		}
		if job.Nothing != "" {
			outcome.Waiting = append(outcome.Waiting, plan.Waiting{Summary: job.Nothing})
		}
		if len(waiting) > 0 {
			why, err := p.explainer.Explain(waiting[0].Namespace, waiting[0].Name)
			if err != nil {
				return nil, fmt.Errorf("explain why nothing is bought: %w", err)
			}
			outcome.Waiting = append(outcome.Waiting, plan.Waiting{Pods: len(waiting), Pod: waiting[0].Name, Summary: why.Summary, Step: why.Step})
		}
		result = append(result, outcome)
	}
	return result, nil
}

// purchaseSince returns what was bought since then.
func (p *parts) purchaseSince(began time.Time, config *Config, outcomes []plan.Outcome) plan.Purchase {
	pools, _ := p.provider.Pools()
	items := []plan.Item{}
	for _, decision := range config.DryRun.Decisions() {
		if decision.Time.Before(began) || len(decision.Instances) > 0 { // which were removed
			continue
		}
		item := itemOf(pools, decision)
		if at := slices.IndexFunc(items, func(known plan.Item) bool { return known.Offering == item.Offering }); at >= 0 {
			items[at].Count += item.Count
		} else {
			items = append(items, item)
		}
	}
	var work time.Duration
	inGang := false
	if pods := config.Submitted.Pods(); len(outcomes) == 1 && len(pods) > 0 {
		work, _ = time.ParseDuration(outcomes[0].Work)
		inGang = slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return podlist.InGang(pod) || p.gangs.Find(pod).Size > 1 })
	}
	return plan.NewPurchase(items, work, inGang, config.Terms)
}

// itemOf returns what a decision is to buy. A pool that cannot be asked for one of its offerings is one offering.
func itemOf(pools []status.Pool, decision dryrun.Decision) plan.Item {
	option := pricing.Offering{Spot: decision.SpotStrategy != "" && decision.SpotStrategy != alicloud.NoSpot}.PurchaseOption()
	item := plan.Item{Pool: decision.Pool, InstanceType: decision.InstanceType, Zone: decision.Zone, PurchaseOption: option, Count: decision.Count}
	for i := range pools {
		if pools[i].ID != decision.Pool {
			continue
		}
		for _, offered := range pools[i].Offerings {
			exact := offered.InstanceType == item.InstanceType && offered.Zone == item.Zone && offered.PurchaseOption == option
			if exact || len(pools[i].Offerings) == 1 {
				item.Offering, item.InstanceType, item.Zone, item.PurchaseOption = offered.ID, offered.InstanceType, offered.Zone, offered.PurchaseOption
				item.Price, item.LifeHours = offered.Price, offered.LifeHours
			}
		}
	}
	return item
}
