package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/cloud"
	"gpu-spot-autoscaler/test/alisim/market"
	"gpu-spot-autoscaler/test/cluster"
	"gpu-spot-autoscaler/test/drill"
	"gpu-spot-autoscaler/test/rig"
	"gpu-spot-autoscaler/test/standin"
)

const (
	// speed makes everything that the cloud takes its time for last half as long, so that a run takes less than five minutes.
	speed = 2
	// noticePeriod is that of Alibaba Cloud at this speed.
	noticePeriod = 300 * time.Second / speed
	// killSpan is from the notices until there are no more kills: over the release.
	killSpan = noticePeriod + 10*time.Second
	// recovery is how long after the release jobs may take to be whole again.
	recovery = time.Minute
	// checkpointTime is how long after it was asked to a job says that it has saved its work.
	checkpointTime = 4 * time.Second

	nodeCount, doomedCount = 80, 50
	workers, gpus          = 8, 8
	leastWorkers           = 2
	// trainingNodes have room for the TrainingJobs, whose operator places them itself.
	trainingNodes = 16
	guardedOneIn  = 10

	region = "ap-southeast-1"
)

// scene is a cluster in which a reclaim takes place.
type scene struct {
	told   io.Writer
	out    string
	random *rand.Rand
	seed   uint64

	rig      *rig.Rig
	witness  *drill.Witness
	jobs     []drill.Job
	replicas *replicas

	began time.Time
	// doomed has when each instance is released.
	doomed map[string]time.Time

	// end ends what runs beside, running waits for it.
	end     context.CancelFunc
	running sync.WaitGroup
	// broken is why something that runs beside gave up.
	broken atomic.Pointer[error]
}

func newScene(ctx context.Context, told io.Writer, dir, out string, seed uint64) (s *scene, err error) {
	s = &scene{told: told, out: out, seed: seed, random: rand.New(rand.NewPCG(seed, seed))}
	ctx, s.end = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if s.rig, err = rig.New(ctx, rig.Options{
		World: newWorld(), Dir: filepath.Join(dir, "rig"), NodeGracePeriod: 24 * time.Hour, Output: told,
	}); err != nil {
		return nil, err
	}
	if err := s.startOperator(ctx); err != nil {
		return nil, err
	}
	nodes, err := s.awaitNodes(ctx)
	if err != nil {
		return nil, err
	}
	if s.witness, err = drill.Watch(ctx, s.rig.Cluster.AdminConfig()); err != nil {
		return nil, err
	}
	s.jobs = newJobs()
	if err := drill.Populate(ctx, s.rig, s.jobs, func(job, worker int) string {
		return nodes[job/workers*workers+worker].Name
	}); err != nil {
		return nil, err
	}
	if err := s.awaitStates(ctx, time.Minute, drill.Whole); err != nil {
		return nil, err
	}
	s.beside(func() error { s.witness.Answer(ctx, s.rig.Client, checkpointTime); return nil })
	fmt.Fprintf(told, "%d jobs run on %d nodes\n", len(s.jobs), len(nodes))
	if s.replicas, err = startReplicas(ctx, s.rig); err != nil {
		return nil, err
	}
	s.beside(func() error { return s.replicas.revive(ctx) })
	return s, nil
}

// beside runs until the scene ends. An error fails the run.
func (s *scene) beside(run func() error) {
	s.running.Go(func() {
		if err := run(); err != nil {
			s.broken.Store(&err)
		}
	})
}

// newWorld sells three types of eight GPUs in two zones.
func newWorld() alisim.World {
	w := alisim.World{
		Region: region, Speed: speed, NoticePeriod: metav1.Duration{Duration: noticePeriod},
		TokenLife: metav1.Duration{Duration: cloud.Real.TokenLife}, // the autoscaler sends again by the clock
	}
	var vswitches []string
	for _, zone := range []string{region + "a", region + "b"} {
		w.VSwitches = append(w.VSwitches, alisim.VSwitch{ID: "vsw-" + zone, Zone: zone})
		vswitches = append(vswitches, "vsw-"+zone)
	}
	types := []string{"ecs.gn7i-8x.16xlarge", "ecs.ebmgn7ix.32xlarge", "ecs.gn6e-c12g1.24xlarge"}
	for i, t := range types {
		for j, v := range w.VSwitches {
			price := 40 + 10*float64(i) + float64(j)
			w.Market.Script = append(w.Market.Script, alisim.Change{
				InstanceType: t, Zone: v.Zone, Stock: ptr.To(market.Unlimited), Spot: &price, OnDemand: ptr.To(5 * price),
			})
		}
	}
	pool := rig.SpotPool("asg-chaos", 4*nodeCount, types, vswitches)
	pool.MultiAZPolicy, pool.Instances = "BALANCE", nodeCount
	w.Pools = append(w.Pools, pool)
	return w
}

// newJobs are as many as nodes: a third of the first are all or nothing, the others elastic, and the last are
// TrainingJobs.
func newJobs() (all []drill.Job) {
	for i := range nodeCount {
		job := drill.Job{
			Name: fmt.Sprintf("job-%02d", i), Kind: drill.Replicas, Workers: workers, Min: leastWorkers, Guarded: i%guardedOneIn == 0,
		}
		switch {
		case i >= nodeCount-trainingNodes:
			job.Kind, job.Guarded = drill.Training, false
		case i%3 == 1:
			job.Kind = drill.Indexed
		}
		all = append(all, job)
	}
	return all
}

// startOperator also makes the Node that launchers run on.
func (s *scene) startOperator(ctx context.Context) error {
	system := cluster.NewFakeNode("system-0", corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("200"),
	})
	system.Labels[drill.LabelSystem] = "true"
	if err := s.rig.Cluster.CreateNodes(ctx, []*corev1.Node{system}); err != nil {
		return err
	}
	operator, err := standin.NewETOperator(s.rig.Cluster.AdminConfig())
	if err != nil {
		return err
	}
	if err := operator.Install(ctx, s.rig.Cluster); err != nil {
		return err
	}
	s.beside(func() error { return operator.Run(ctx) })
	return nil
}

// awaitNodes returns the Nodes of instances when their GPUs are there.
func (s *scene) awaitNodes(ctx context.Context) (nodes []corev1.Node, err error) {
	err = wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err := s.rig.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		nodes = slices.DeleteFunc(list.Items, func(node corev1.Node) bool {
			allocatable := node.Status.Allocatable["nvidia.com/gpu"]
			return allocatable.Value() != gpus || len(node.Spec.Taints) > 0
		})
		return len(nodes) == nodeCount, nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for %d nodes, there are %d: %w", nodeCount, len(nodes), err)
	}
	return nodes, nil
}

// awaitStates waits until every job is in one of the states.
func (s *scene) awaitStates(ctx context.Context, timeout time.Duration, wanted ...drill.State) error {
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		if err := s.broken.Load(); err != nil {
			return false, *err
		}
		states, err := drill.States(ctx, s.rig, s.witness, s.jobs)
		if err != nil {
			return false, err
		}
		for _, state := range states {
			if !slices.Contains(wanted, state) {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("wait for all jobs to be %v: %w", wanted, err)
	}
	return nil
}

// doom gives the notices.
func (s *scene) doom() error {
	s.began, s.doomed = time.Now(), map[string]time.Time{}
	instances := s.rig.Cloud.Instances()
	for _, i := range s.random.Perm(len(instances))[:doomedCount] {
		if err := s.rig.Cloud.Reclaim(instances[i].ID); err != nil {
			return err
		}
		doomed, _ := s.rig.Cloud.Instance(instances[i].ID)
		s.doomed[doomed.ID] = doomed.Deadline
	}
	return nil
}

// play reclaims, kills, waits for the end and judges.
func (s *scene) play(ctx context.Context, kills int) (verdict, error) {
	if err := s.warmUp(ctx); err != nil {
		return verdict{}, err
	}
	// Some purchases are accepted without the buyer hearing of it.
	if err := s.rig.Cloud.Fault(alisim.Fault{Action: "ScaleWithAdjustment", Kind: alisim.FaultLostReply, Times: 2}); err != nil {
		return verdict{}, err
	}
	if err := s.doom(); err != nil {
		return verdict{}, err
	}
	fmt.Fprintf(s.told, "%d of %d instances have their notice\n", len(s.doomed), nodeCount)
	moments, err := s.kill(ctx, schedule(s.random, kills, killSpan))
	if err != nil {
		return verdict{}, err
	}
	if err := s.awaitEnd(ctx); err != nil {
		return verdict{}, err
	}
	states, err := drill.States(ctx, s.rig, s.witness, s.jobs)
	if err != nil {
		return verdict{}, err
	}
	if err := s.broken.Load(); err != nil {
		return verdict{}, *err
	}
	v := judge(s.doomed, s.witness.Nodes(), s.witness.Pods(), drill.Purchases(s.rig, s.began), states)
	if v.JobsBroken > 0 {
		if err := s.keepEvidence(ctx, states, filepath.Join(s.out, "broken.yaml")); err != nil {
			return v, err
		}
	}
	v.Kills, v.Seed, v.Moments, v.Seconds = len(moments), s.seed, moments, time.Since(s.began).Seconds()
	for _, crash := range s.replicas.crashes {
		fmt.Fprintf(s.told, "a replica ended by itself:\n%s\n", crash)
	}
	return v, nil
}

// warmUp waits until a leader has looked at the cloud a few times.
func (s *scene) warmUp(ctx context.Context) error {
	if _, err := s.replicas.awaitLeader(ctx); err != nil {
		return err
	}
	const polls = 3
	return wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		counts := s.rig.Cloud.RequestCounts()
		return counts["DescribeInstances"] >= polls && counts["DescribeSpotPriceHistory"] > 0, nil
	})
}

// awaitEnd waits until the doomed instances are gone, with their Nodes, and the jobs whole; no longer than recovery for
// the latter, since a job may also stay suspended.
func (s *scene) awaitEnd(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, time.Until(s.began.Add(noticePeriod+recovery)), true, func(context.Context) (bool, error) {
		return s.standing().gone == len(s.doomed), nil
	})
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	left := time.Until(s.began.Add(noticePeriod + recovery))
	if err := s.awaitStates(ctx, max(left, 10*time.Second), drill.Whole); err != nil && ctx.Err() != nil {
		return err
	}
	return nil // what is wrong is told by the verdict
}

func (s *scene) stop() {
	s.end()
	s.running.Wait()
	if s.replicas != nil {
		if err := s.replicas.stop(); err != nil {
			fmt.Fprintln(s.told, "the replicas:", err)
		}
	}
	if s.rig != nil {
		s.rig.Stop()
	}
}
