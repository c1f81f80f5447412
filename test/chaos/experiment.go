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

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/cloud"
	"gpu-spot-autoscaler/test/cluster"
	"gpu-spot-autoscaler/test/drill"
	"gpu-spot-autoscaler/test/operators"
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

	workers, gpus = 8, 8
	leastWorkers  = 2
	// reclaimedEighths of the nodes get their notice.
	reclaimedEighths = 5
	// trainingOneIn is how many of the nodes have room for TrainingJobs, whose operator places them itself: one in five.
	trainingOneIn = 5
	guardedOneIn  = 10

	region = "ap-southeast-1"
)

// experiment is a cluster in which a reclaim takes place.
type experiment struct {
	output io.Writer
	out    string
	random *rand.Rand
	seed   uint64
	// nodes is how many there are, a multiple of workers.
	nodes int
	// operated has the jobs be those of real operators.
	operated bool

	rig      *rig.Rig
	observer *drill.Observer
	jobs     []drill.Job
	replicas *replicas
	// operators are the real ones.
	operators []*operators.Operator

	began time.Time
	// reclaiming is when each instance with a notice is released, by instance ID.
	reclaiming map[string]time.Time

	// end ends what runs in the background, running waits for it.
	end     context.CancelFunc
	running sync.WaitGroup
	// broken is why something in the background failed.
	broken atomic.Pointer[error]
}

func newExperiment(ctx context.Context, output io.Writer, dir, out string, seed uint64, size int, operated bool) (e *experiment, err error) {
	e = &experiment{output: output, out: out, seed: seed, nodes: size, operated: operated, random: rand.New(rand.NewPCG(seed, seed))}
	ctx, e.end = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			e.stop()
		}
	}()
	if e.rig, err = rig.New(ctx, rig.Options{
		World: newWorld(size), Dir: filepath.Join(dir, "rig"), NodeGracePeriod: 24 * time.Hour, Output: output,
	}); err != nil {
		return nil, err
	}
	if err := e.startOperators(ctx, dir); err != nil {
		return nil, err
	}
	nodes, err := e.awaitNodes(ctx)
	if err != nil {
		return nil, err
	}
	if e.observer, err = drill.Watch(ctx, e.rig.Cluster.AdminConfig()); err != nil {
		return nil, err
	}
	e.jobs = newJobs(size)
	if operated {
		e.jobs = newOperatedJobs(size)
	}
	if err := drill.Populate(ctx, e.rig, e.jobs, func(job, worker int) string {
		return nodes[job/workers*workers+worker].Name
	}); err != nil {
		return nil, err
	}
	if err := e.awaitStates(ctx, 3*time.Minute, drill.Whole); err != nil {
		return nil, err
	}
	e.background(func() error { e.observer.Answer(ctx, e.rig.Client, checkpointTime); return nil })
	fmt.Fprintf(output, "%d jobs run on %d nodes\n", len(e.jobs), len(nodes))
	if e.replicas, err = startReplicas(ctx, e.rig); err != nil {
		return nil, err
	}
	e.background(func() error { return e.replicas.revive(ctx) })
	return e, nil
}

// background runs a function until the experiment ends. An error fails the run.
func (e *experiment) background(run func() error) {
	e.running.Go(func() {
		if err := run(); err != nil {
			e.broken.Store(&err)
		}
	})
}

// newWorld sells three types of eight GPUs in two zones, and has so many instances of them.
func newWorld(nodes int) alisim.World {
	w := alisim.NewWorld(region, region+"a", region+"b")
	w.Speed, w.NoticePeriod = speed, metav1.Duration{Duration: noticePeriod}
	w.TokenLife = metav1.Duration{Duration: cloud.Real.TokenLife} // the autoscaler sends again by the clock
	types := []string{"ecs.gn7i-8x.16xlarge", "ecs.ebmgn7ix.32xlarge", "ecs.gn6e-c12g1.24xlarge"}
	for i, t := range types {
		for j, v := range w.VSwitches {
			price := 40 + 10*float64(i) + float64(j)
			w.Sell(t, v.Zone, price, 5*price)
		}
	}
	pool := rig.SpotPool("asg-chaos", 4*nodes, types, w.VSwitchIDs())
	pool.MultiAZPolicy, pool.Instances = "BALANCE", nodes
	w.Pools = append(w.Pools, pool)
	return w
}

// newJobs are as many as nodes: a third of the first are all or nothing, the others elastic, and the last are
// TrainingJobs.
func newJobs(nodes int) (all []drill.Job) {
	for i := range nodes {
		job := drill.Job{
			Name: fmt.Sprintf("job-%03d", i), Kind: drill.Replicas, Workers: workers, Min: leastWorkers, Guarded: i%guardedOneIn == 0,
		}
		switch {
		case i >= nodes-nodes/trainingOneIn:
			job.Kind, job.Guarded = drill.Training, false
		case i%3 == 1:
			job.Kind = drill.Indexed
		}
		all = append(all, job)
	}
	return all
}

func (e *experiment) startOperators(ctx context.Context, dir string) error {
	if e.operated {
		return e.startRealOperators(ctx, dir)
	}
	return e.startETOperator(ctx)
}

// startETOperator also makes the Node that launchers run on.
func (e *experiment) startETOperator(ctx context.Context) error {
	system := cluster.NewFakeNode("system-0", corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("200"),
	})
	system.Labels[drill.LabelSystem] = "true"
	if err := e.rig.Cluster.CreateNodes(ctx, []*corev1.Node{system}); err != nil {
		return err
	}
	operator, err := standin.NewETOperator(e.rig.Cluster.AdminConfig())
	if err != nil {
		return err
	}
	if err := operator.Install(ctx, e.rig.Cluster); err != nil {
		return err
	}
	e.background(func() error { return operator.Run(ctx) })
	return nil
}

// awaitNodes returns the Nodes of instances when their GPUs are there.
func (e *experiment) awaitNodes(ctx context.Context) (nodes []corev1.Node, err error) {
	err = wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err := e.rig.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		nodes = slices.DeleteFunc(list.Items, func(node corev1.Node) bool {
			allocatable := node.Status.Allocatable["nvidia.com/gpu"]
			return allocatable.Value() != gpus || len(node.Spec.Taints) > 0
		})
		return len(nodes) == e.nodes, nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for %d nodes, there are %d: %w", e.nodes, len(nodes), err)
	}
	return nodes, nil
}

// awaitStates waits until every job is in one of the states.
func (e *experiment) awaitStates(ctx context.Context, timeout time.Duration, wanted ...drill.State) error {
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		if err := e.broken.Load(); err != nil {
			return false, *err
		}
		states, err := drill.States(ctx, e.rig, e.observer, e.jobs)
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

// giveNotices gives the notices.
func (e *experiment) giveNotices() error {
	e.began, e.reclaiming = time.Now(), map[string]time.Time{}
	instances := e.rig.Cloud.Instances()
	for _, i := range e.random.Perm(len(instances))[:e.nodes*reclaimedEighths/8] {
		if err := e.rig.Cloud.Reclaim(instances[i].ID); err != nil {
			return err
		}
		instance, _ := e.rig.Cloud.Instance(instances[i].ID)
		e.reclaiming[instance.ID] = instance.Deadline
	}
	return nil
}

// run reclaims, kills, waits for the end and judges.
func (e *experiment) run(ctx context.Context, kills int) (verdict, error) {
	if err := e.warmUp(ctx); err != nil {
		return verdict{}, err
	}
	// Some purchases are accepted without the buyer hearing of it.
	if err := e.rig.Cloud.Fault(alisim.Fault{Action: "ScaleWithAdjustment", Kind: alisim.FaultLostReply, Times: 2}); err != nil {
		return verdict{}, err
	}
	if err := e.giveNotices(); err != nil {
		return verdict{}, err
	}
	fmt.Fprintf(e.output, "%d of %d instances have their notice\n", len(e.reclaiming), e.nodes)
	moments, err := e.kill(ctx, schedule(e.random, kills, killSpan))
	if err != nil {
		return verdict{}, err
	}
	if err := e.awaitEnd(ctx); err != nil {
		return verdict{}, err
	}
	states, err := drill.States(ctx, e.rig, e.observer, e.jobs)
	if err != nil {
		return verdict{}, err
	}
	if err := e.broken.Load(); err != nil {
		return verdict{}, *err
	}
	v := judge(e.reclaiming, e.observer.Nodes(), e.observer.Pods(), drill.Purchases(e.rig, e.began), states)
	if e.operated {
		ends, err := e.finish(ctx)
		if err != nil {
			return v, err
		}
		v.addEnds(ends, states)
	}
	if v.JobsBroken > 0 {
		if err := e.dumpBrokenJobs(ctx, states, filepath.Join(e.out, "broken.yaml")); err != nil {
			return v, err
		}
	}
	v.Kills, v.Seed, v.Moments, v.Seconds = len(moments), e.seed, moments, time.Since(e.began).Seconds()
	for _, crash := range e.replicas.crashes {
		fmt.Fprintf(e.output, "a replica ended by itself:\n%s\n", crash)
	}
	return v, nil
}

// warmUp waits until a leader has looked at the cloud a few times.
func (e *experiment) warmUp(ctx context.Context) error {
	if _, err := e.replicas.awaitLeader(ctx); err != nil {
		return err
	}
	const polls = 3
	return wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		counts := e.rig.Cloud.RequestCounts()
		return counts["DescribeInstances"] >= polls && counts["DescribeSpotPriceHistory"] > 0, nil
	})
}

// awaitEnd waits until the reclaiming instances are gone, with their Nodes, and the jobs whole; no longer than recovery for
// the latter, since a job may also stay suspended.
func (e *experiment) awaitEnd(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, time.Until(e.began.Add(noticePeriod+recovery)), true, func(context.Context) (bool, error) {
		return e.progress().gone == len(e.reclaiming), nil
	})
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	left := time.Until(e.began.Add(noticePeriod + recovery))
	if err := e.awaitStates(ctx, max(left, 10*time.Second), drill.Whole); err != nil && ctx.Err() != nil {
		return err
	}
	return nil // what is wrong is told by the verdict
}

func (e *experiment) stop() {
	e.end()
	e.running.Wait()
	if e.replicas != nil {
		if err := e.replicas.stop(); err != nil {
			fmt.Fprintln(e.output, "the replicas:", err)
		}
	}
	for _, operator := range e.operators {
		operator.Stop()
	}
	if e.rig != nil {
		e.rig.Stop()
	}
}
