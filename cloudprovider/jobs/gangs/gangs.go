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
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
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
	Discovery discovery.ServerResourcesInterface
	Clock     clock.WithTicker
	// Wake asks for a loop, because a gang is known that was not.
	Wake func()
}

// Gangs implements podlist.NativeGangs. It is safe for concurrent use.
type Gangs struct {
	config Config
	queue  workqueue.TypedRateLimitingInterface[key]
	reads  flowcontrol.RateLimiter

	mu    sync.Mutex
	known map[key]*known
	// isDiscovered is whether it is known whether Kubernetes has pod groups. If it has, kubernetes is the version that it serves.
	isDiscovered bool
	kubernetes   *podGroupKind
}

var _ podlist.NativeGangs = (*Gangs)(nil)

// key is what may have to be read to know a gang: a pod group if the kind is that of one, pods if there is a controller, else a job.
type key struct {
	group *podGroupKind
	job   jobs.Ref
	// controller is that of pods which may be in a group of Kubernetes. One of them is read for all: Job by Job they are in one group
	// (enhancement 5547), and nobody else makes such groups yet. A pod without a controller has its own UID here.
	controller types.UID
}

// String begins with the namespace, as the names of all gangs do: a gang that pods of another namespace declare can never have the same.
func (k key) String() string {
	kind, name := k.job.System, k.job.Name
	switch {
	case k.group != nil:
		kind = k.group.resource.GroupResource().String()
	case k.controller != "":
		kind, name = "pods", string(k.controller)
	}
	return k.job.Namespace + "/" + kind + "/" + name
}

// known is what is known of an object.
type known struct {
	// used is when the last pending pod named the object. read is when it was read, failed when it could not be for the first time.
	used, read, failed time.Time
	// pod is the one to read of the pods of a controller.
	pod string
	content
}

// content is what was read of an object.
type content struct {
	// says is false for an object that there is not, or that says nothing of gangs.
	says  bool
	gangs jobs.StartGangs
	// group is the group of Kubernetes that pods name.
	group string
}

// isUnread returns whether pods have to wait for the object.
func (k *known) isUnread(now time.Time) bool {
	return k.read.IsZero() && (k.failed.IsZero() || now.Sub(k.failed) < unreadTime)
}

// New returns Gangs, which know none before they run.
func New(config Config) (*Gangs, error) {
	if config.Jobs == nil || config.Dynamic == nil || config.Discovery == nil || config.Clock == nil || config.Wake == nil {
		return nil, errors.New("gangs: Jobs, Dynamic, Discovery, Clock and Wake are required")
	}
	return &Gangs{
		config: config, known: map[key]*known{}, reads: flowcontrol.NewTokenBucketRateLimiter(readQPS, readQPS),
		queue: newQueue(config.Clock),
	}, nil
}

// Run reads objects until ctx ends. It is to be called once.
func (g *Gangs) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	defer g.queue.ShutDown()
	for range workers {
		running.Go(func() {
			for g.next(ctx) {
			}
		})
	}
	ticker := g.config.Clock.NewTicker(forgetAfter)
	defer ticker.Stop()
	g.discover(ctx)
	for {
		select {
		case <-ticker.C():
			g.discover(ctx)
			g.forget()
		case <-ctx.Done():
			return nil
		}
	}
}

// Find returns the gang of a pending pod, and has what declares it read.
func (g *Gangs) Find(pod *corev1.Pod) podlist.NativeGang { return g.gangOf(pod, g.use) }

// NameOf returns the name of the pod's gang as Find does, without having anything read.
func (g *Gangs) NameOf(pod *corev1.Pod) string {
	return g.gangOf(pod, func(key key, _ *corev1.Pod) *known { return g.known[key] }).Name
}

// gangOf returns the gang of a pod by what look returns, which is nil for what is not known.
func (g *Gangs) gangOf(pod *corev1.Pod, look func(key key, pod *corev1.Pod) *known) podlist.NativeGang {
	if gang, ok := ofKueue(pod); ok {
		return gang
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now, keys := g.config.Clock.Now(), g.keysOf(pod)
	for i := 0; i < len(keys); i++ {
		object := look(keys[i], pod)
		switch {
		case object == nil:
			return podlist.NativeGang{}
		case object.isUnread(now):
			return podlist.NativeGang{Name: keys[i].String(), Size: podlist.UnknownSize, IsAssumed: keys[i].isJob()}
		case object.group != "" && g.kubernetes != nil:
			keys = slices.Insert(keys, i+1, key{group: g.kubernetes, job: jobs.NewRef("", pod.Namespace, object.group)})
		case object.says:
			return partOf(keys[i], object, pod)
		}
	}
	return podlist.NativeGang{}
}

// keysOf returns what may declare the pod's gang, in the order of precedence. The lock is held.
func (g *Gangs) keysOf(pod *corev1.Pod) (keys []key) {
	for _, kind := range podGroupKinds {
		if name := kind.nameOn(pod); name != "" {
			keys = append(keys, key{group: kind, job: jobs.NewRef("", pod.Namespace, name)})
		}
	}
	if len(keys) == 0 && (g.kubernetes != nil || !g.isDiscovered) {
		keys = append(keys, key{job: jobs.NewRef("", pod.Namespace, ""), controller: controllerOf(pod)})
	}
	if ref, ok := g.config.Jobs.JobOf(pod); ok {
		keys = append(keys, key{job: ref})
	}
	return keys
}

func (k key) isJob() bool { return k.group == nil && k.controller == "" }

// controllerOf returns the UID of the pod's controller, or its own.
func controllerOf(pod *corev1.Pod) types.UID {
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil {
		return controller.UID
	}
	return pod.UID
}

func partOf(key key, object *known, pod *corev1.Pod) podlist.NativeGang {
	part, size := object.gangs.Of(pod)
	if size < 2 {
		return podlist.NativeGang{}
	}
	name := key.String()
	if part != "" {
		name += "/" + part
	}
	return podlist.NativeGang{Name: name, Size: size, IsAssumed: key.isJob()}
}

// use returns what is known of the object, and has it read if it is time. The lock is held.
func (g *Gangs) use(key key, pod *corev1.Pod) *known {
	now := g.config.Clock.Now()
	found := g.known[key]
	if found == nil {
		found = &known{}
		g.known[key] = found
		g.queue.Add(key)
	}
	found.used, found.pod = now, pod.Name
	if !found.read.IsZero() && now.Sub(found.read) >= max(rereadEvery, 2*time.Duration(len(g.known))*time.Second/readQPS) {
		g.queue.Add(key)
	}
	return found
}

func (g *Gangs) next(ctx context.Context) bool {
	key, shutdown := g.queue.Get()
	if shutdown {
		return false
	}
	defer g.queue.Done(key)
	if !g.isKnown(key) {
		g.queue.Forget(key)
		return true
	}
	if err := g.reads.Wait(ctx); err != nil {
		return false
	}
	content, err := g.read(ctx, key)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		klog.FromContext(ctx).Error(err, "Cannot read whether pods are a gang, will try again", "object", key.String())
		g.recordFailure(key)
		g.queue.AddRateLimited(key)
	default:
		g.queue.Forget(key)
		g.record(key, content)
	}
	return true
}

// isKnown returns whether pods have named the object lately.
func (g *Gangs) isKnown(key key) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.known[key] != nil
}

// read returns what the object says of gangs. One that does not exist, or is malformed, says nothing.
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
	object := g.known[key]
	isNew := object != nil && (object.read.IsZero() || !reflect.DeepEqual(object.content, read))
	if object != nil {
		object.read, object.content = g.config.Clock.Now(), read
	}
	g.mu.Unlock()
	if isNew {
		g.config.Wake()
	}
}

// recordFailure has pods wait no longer than unreadTime, unless they know the object from before.
func (g *Gangs) recordFailure(key key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if object := g.known[key]; object != nil && object.failed.IsZero() {
		object.failed = g.config.Clock.Now()
	}
}

// forget drops the objects whose pods are not pending any more.
func (g *Gangs) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, object := range g.known {
		if g.config.Clock.Since(object.used) >= forgetAfter {
			delete(g.known, key)
		}
	}
}
