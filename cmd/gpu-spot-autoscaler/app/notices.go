package app

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/informers"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/podindex"
	"gpu-spot-autoscaler/cloudprovider/reclaim"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/fault"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/reclaim/push"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/serving"
)

// serveNotices takes pushed reclaim notices until ctx ends, whether this process leads or not: a notice is written on its Node,
// where the leader finds it, before the sender gets an answer.
func serveNotices(ctx context.Context, config *Config) error {
	if config.Notices.Address == "" {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	secured, err := serving.CertificateFromFiles(ctx, group, "notices", config.Notices.CertFile, config.Notices.KeyFile)
	if err != nil {
		return fmt.Errorf("--notice-tls-cert-file: %w", err)
	}
	marks, _, err := reclaim.Clients(config.KubeConfig, config.ReclaimRateLimits)
	if err != nil {
		return err
	}
	handler, err := push.NewHandler(push.Config{
		Client: marks, TokenFile: config.Notices.TokenFile, TokenInURL: config.Notices.TokenInURL, Region: config.Region,
		Signatures:   push.Signatures(config.Notices.Signatures),
		NoticePeriod: config.ReclaimNoticePeriod, Clock: config.Clock,
	})
	if err != nil {
		return fmt.Errorf("--notice-token-file: %w", err)
	}
	listener, err := net.Listen("tcp", config.Notices.Address)
	if err != nil {
		return fmt.Errorf("--notice-address: %w", err)
	}
	klog.FromContext(ctx).Info("Taking notices", "address", listener.Addr())

	routes := http.NewServeMux()
	routes.Handle("/v1/notices", handler)
	group.Go(func() error { return serving.Serve(ctx, listener, secured, serving.WriteTimeout, routes) })
	return group.Wait()
}

// addReclaimer constructs the controller of reclaims. The drain of a Node waits for what the functions say, which may be nil.
func (p *parts) addReclaimer(config *Config, s *shared, replaced, ready, movesReady func(node string) bool) error {
	faults, err := faultSettings(config.Faults)
	if err != nil {
		return err
	}
	p.reclaimer, err = reclaim.New(reclaim.Config{
		Cluster: s.reclaims.cluster, Notices: s.reclaims.notices, Removals: s.reclaims.removals, Cloud: config.Cloud, Jobs: p.jobs, Client: s.drains,
		MarkClient: s.marks, Recorder: s.kube.Recorder, Clock: config.Clock, PollInterval: config.ReclaimPollInterval, OnNotice: s.wake,
		Replaced: replaced, ReplacementReady: ready, MovesReady: movesReady, ReplaceWait: config.ReclaimReplaceWait, Saved: p.progress.Note,
		PodsPerSecond: config.ReclaimRateLimits.PodsPerSecond(), Faults: faults, Pools: p.provider, Problems: p.problems,
	})
	return err
}

// faultSettings returns which Nodes are faulty. The error is that of a condition, which Options.Validate refuses.
func faultSettings(faults options.FaultOptions) (fault.Settings, error) {
	conditions, err := fault.ParseConditions(faults.Conditions)
	return fault.Settings{Conditions: conditions, MaxNodes: &faults.MaxNodes}, err
}

// reclaimState is what the sources of notices write, and what the provider and the processors read.
type reclaimState struct {
	cluster  *cluster.Cluster
	notices  *notice.Store
	removals *notice.Removals
}

func newReclaimState(config *Config, factory informers.SharedInformerFactory, pods *podindex.Index, jobs *jobs.Registry) (*reclaimState, error) {
	view, err := cluster.New(factory, pods, config.Region, jobs)
	if err != nil {
		return nil, err
	}
	notices, err := notice.NewStore(notice.Config{
		Cluster: view, Clock: config.Clock, Period: config.ReclaimNoticePeriod, Doubt: notice.DoubtFor(config.ReclaimPollInterval),
		MaxUnconfirmed: &config.ReclaimMaxUnconfirmed,
	})
	return &reclaimState{cluster: view, notices: notices, removals: notice.NewRemovals(view, config.Clock)}, err
}
