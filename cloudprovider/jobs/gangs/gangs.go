// Package gangs finds the gangs that pods belong to without a declaration of the size on the pods themselves: by the pod group of a
// scheduler, which is an object of its own, by the pod group of Kueue, or by the job.
//
// Objects are read when pods that name them are pending, and again while those wait. The autoscaler's loop never waits for that: as
// long as an object has yet to be read, its pods are in a gang that is not complete. Pods whose object cannot be read are pods like any
// other after a while.
//
// Whoever may create pods may name as many objects as he likes, so namespaces take turns at being read: see fairQueue.
package gangs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
	"gpu-spot-autoscaler/cloudprovider/work"
)

const (
	// workers is how many objects are read at once, readQPS how many in a second, and readTime how long each may take.
	workers  = 8
	readQPS  = 100
	readTime = 5 * time.Second
	// unreadTime is for how long pods wait for an object after it could not be read.
	unreadTime = 10 * time.Second
	// rereadEvery is how often an object is read again while its pods are pending, unless there are so many that this would take more than
	// half of all reads. forgetAfter is how long it is kept after that.
	rereadEvery = 30 * time.Second
	forgetAfter = 10 * time.Minute
	// discoverEvery is how often it is found out whether Kubernetes itself has pod groups.
	discoverEvery = 10 * time.Minute
)

// Jobs are the job systems. It is implemented by jobs.Starts, where it is explained.
type Jobs interface {
	JobOf(pod *corev1.Pod) (ref jobs.Ref, ok bool)
	GangsOf(ctx context.Context, ref jobs.Ref) (jobs.StartGangs, error)
}

// Config is what Gangs are made of. All is required.
type Config struct {
	Jobs    Jobs
	Dynamic dynamic.Interface
	// Discovery finds out whether Kubernetes itself has pod groups.
	Discovery discovery.DiscoveryInterface
	Clock     clock.WithTicker
	// Wake asks for a loop, because a gang is known that was not.
	Wake func()
}

// Gangs implements podlist.NativeGangs. It is safe for concurrent use.
type Gangs struct {
	config Config
	queue  work.Queue[key]
	reads  flowcontrol.RateLimiter

	mu      sync.Mutex
	objects objects
}

var _ podlist.NativeGangs = (*Gangs)(nil)

// New returns Gangs, which know none before they run.
func New(config Config) (*Gangs, error) {
	if config.Jobs == nil || config.Dynamic == nil || config.Discovery == nil || config.Clock == nil || config.Wake == nil {
		return nil, errors.New("gangs: Jobs, Dynamic, Discovery, Clock and Wake are required")
	}
	queue := newQueue(config.Clock)
	return &Gangs{
		config: config, queue: queue,
		reads:   flowcontrol.NewTokenBucketRateLimiter(readQPS, readQPS), // its Wait goes by the real clock, whichever it is given
		objects: objects{known: map[key]*known{}, clock: config.Clock, jobs: config.Jobs, queue: queue},
	}, nil
}

// Run reads objects until ctx ends. It is to be called once.
func (g *Gangs) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	defer g.queue.ShutDown()
	for range workers {
		running.Go(func() { g.queue.Work(ctx, g.sync) })
	}
	running.Go(func() { g.keepDiscovering(ctx) })
	ticker := g.config.Clock.NewTicker(forgetAfter)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C():
			g.forget()
		case <-ctx.Done():
			return nil
		}
	}
}

// Find returns the gang of a pending pod, and has what declares it read.
func (g *Gangs) Find(pod *corev1.Pod) podlist.NativeGang { return g.gangOf(pod, (*objects).use) }

// NameOf returns the name of the pod's gang as Find does, without having anything read.
func (g *Gangs) NameOf(pod *corev1.Pod) string {
	return g.gangOf(pod, func(o *objects, key key, _ *corev1.Pod) *known { return o.known[key] }).Name
}

func (g *Gangs) gangOf(pod *corev1.Pod, look lookup) podlist.NativeGang {
	if gang, ok := ofKueue(pod); ok {
		return gang
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.objects.gangOf(pod, look)
}

// sync reads whether pods are a gang.
func (g *Gangs) sync(ctx context.Context, key key) error {
	if !g.isKnown(key) {
		return nil
	}
	if err := g.reads.Wait(ctx); err != nil {
		return err
	}
	content, err := g.read(ctx, key)
	switch {
	case key.controller != "" && apierrors.IsNotFound(err):
		g.recordGone(key)
		return nil
	case err != nil:
		g.recordFailure(key)
		return err
	}
	g.record(key, content)
	return nil
}

// read returns what the object says of gangs. One that does not exist, or is malformed, says nothing. That a pod does not exist says nothing of
// the others of its controller: then the error is NotFound.
func (g *Gangs) read(ctx context.Context, key key) (content, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	read, err := g.readObject(ctx, key)
	var malformed *jobs.FieldError
	switch {
	case err == nil:
		return read, nil
	case key.controller == "" && (apierrors.IsNotFound(err) || errors.Is(err, jobs.ErrNoObject)):
		return content{}, nil
	case errors.As(err, &malformed):
		klog.FromContext(ctx).Error(err, "Buying for pods one by one, because what declares their gang is malformed", "object", key.String())
		return content{}, nil
	}
	return content{}, fmt.Errorf("read %s: %w", key, err)
}

func (g *Gangs) readObject(ctx context.Context, key key) (content, error) {
	switch {
	case key.group != nil:
		return key.group.read(ctx, g.config.Dynamic, key.job.NamespacedName)
	case key.controller != "":
		return g.readSchedulingGroup(ctx, key)
	}
	gangs, err := g.config.Jobs.GangsOf(ctx, key.job)
	return content{says: err == nil, gangs: gangs}, err
}

func (g *Gangs) record(key key, read content) {
	g.mu.Lock()
	isNew := g.objects.record(key, read)
	g.mu.Unlock()
	if isNew {
		g.config.Wake()
	}
}

func (g *Gangs) recordFailure(key key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.objects.recordFailure(key)
}

func (g *Gangs) recordGone(key key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.objects.recordGone(key)
}

// isKnown returns whether pods have named the object lately.
func (g *Gangs) isKnown(key key) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.objects.known[key] != nil
}

// forget drops the objects whose pods are not pending any more.
func (g *Gangs) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.objects.forget()
}
