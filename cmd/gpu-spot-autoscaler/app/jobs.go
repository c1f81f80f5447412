package app

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/gangs"
	"gpu-spot-autoscaler/cloudprovider/jobs/intervals"
	"gpu-spot-autoscaler/cloudprovider/jobs/moves"
	"gpu-spot-autoscaler/cloudprovider/jobs/supervisor"
	"gpu-spot-autoscaler/cloudprovider/jobs/systems"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
	"gpu-spot-autoscaler/cloudprovider/processors/spotfirst"
	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/market"
)

// Requests per second and burst for the objects of jobs. Each job that is suspended costs five requests: it is read when it is warned, when
// that is decided, and once more before it is changed, and Kueue's Workloads are listed; one that Kueue admits costs a second change. One with a deadline costs two
// more, for what it has saved. A reclaim
// may affect a thousand jobs at once: the burst is for their warnings. A request that waits for too long here fails and is repeated, so
// lower limits would slow down a reclaim a lot.
const (
	jobsQPS   = 200
	jobsBurst = 1000
)

// newJobs returns the registry of job systems, whose clients have a rate limit of their own, and what knows the gangs of jobs and of pod
// groups. That calls wake when it has learned of one.
func newJobs(config *Config, recorder record.EventRecorder, wake func()) (*jobs.Registry, *gangs.Gangs, error) {
	kube := rest.CopyConfig(config.KubeConfig)
	kube.QPS, kube.Burst, kube.RateLimiter = jobsQPS, jobsBurst, nil
	inCluster, err := dynamic.NewForConfig(kube)
	if err != nil {
		return nil, nil, fmt.Errorf("make the client of jobs: %w", err)
	}
	objects := config.Submitted.Dynamic(inCluster)
	definitions, err := metadata.NewForConfig(kube)
	if err != nil {
		return nil, nil, fmt.Errorf("make the client of job definitions: %w", err)
	}
	client, err := kubernetes.NewForConfig(kube)
	if err != nil {
		return nil, nil, fmt.Errorf("make the client of jobs: %w", err)
	}
	cluster := jobs.Cluster{Dynamic: objects, Client: client, Clock: config.Clock}
	registry, err := jobs.New(jobs.Config{Cluster: cluster, Systems: systems.All(cluster), Metadata: definitions, Recorder: recorder})
	if err != nil {
		return nil, nil, err
	}
	natives, err := gangs.New(gangs.Config{Jobs: jobs.NewStarts(registry), Dynamic: objects, Discovery: client.Discovery(), Clock: config.Clock, Wake: wake})
	return registry, natives, err
}

// newAdviser returns what advises jobs how often to save a checkpoint.
func newAdviser(config *Config, p *parts, memory *market.Memory, recorder record.EventRecorder) *intervals.Adviser {
	core := p.informers.Core().V1()
	return intervals.New(intervals.Config{
		Member: p.jobs.Member,
		Life:   func(node *corev1.Node) time.Duration { return memory.Of(pricing.OfferingOf(node)).Life },
		Client: config.Kube, Pods: core.Pods().Lister(), Nodes: core.Nodes().Lister(), Recorder: recorder, Clock: config.Clock,
	})
}

// advise advises jobs how often to save a checkpoint. It begins once the pools are known, which say how long their instances are kept.
func (p *parts) advise(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-p.provider.FirstRead():
		p.intervals.Run(ctx)
	}
}

// newMoves returns what has jobs move from on-demand instances to spot ones. It calls wake for a loop that looks for spot.
func newMoves(config *Config, p *parts, s *shared, wake func()) *moves.Moves {
	deadlines := spotfirst.NewDeadlines(p.provider, p.deadlines, config.Clock)
	return moves.New(moves.Config{
		Jobs: p.jobs, Pools: p.provider, Market: spotfirst.NewMoves(deadlines, p.progress, config.Terms, config.Clock), Pods: s.pods,
		Nodes: p.informers.Core().V1().Nodes().Lister(), Recorder: s.kube.Recorder, Clock: config.Clock, Wake: wake,
		Move: func(ctx context.Context, nodes []*corev1.Node) { p.reclaimer.Move(ctx, nodes) },
	})
}

// supervision has the stand-ins of jobs that are held or grow, and those of jobs that are to move to spot. The moves may be nil.
type supervision struct {
	*supervisor.Supervisor
	moves *moves.Moves
}

// Returning returns the gangs for which capacity is looked for.
func (s supervision) Returning() []podlist.StandInGang {
	gangs := s.Supervisor.Returning()
	if s.moves != nil {
		gangs = append(gangs, s.moves.Returning()...)
	}
	return gangs
}

// Fits passes on where the pods of a gang would go.
func (s supervision) Fits(ref string, found podlist.Placement) {
	if moves.IsRef(ref) {
		s.moves.Fits(ref, found)
		return
	}
	s.Supervisor.Fits(ref, found)
}
