package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/market"
)

const (
	resourceGPU   = corev1.ResourceName("nvidia.com/gpu")
	reclaimTaint  = "status-taint.cluster-autoscaler.kubernetes.io/spot-reclaim"
	instanceLabel = "alibabacloud.com/ecs-instance-id"

	requestAnnotation      = "gpu-spot.autoscaling/checkpoint-request"
	acknowledgedAnnotation = "gpu-spot.autoscaling/checkpoint-acknowledged"
	awaitAnnotation        = "gpu-spot.autoscaling/await-checkpoint"
)

// snapshot is what the API server and the cloud say at one moment.
type snapshot struct {
	at time.Time
	// pods of the demo's jobs, by name.
	pods map[string]pod
	// nodes of the cloud, by instance.
	nodes map[string]node
	// instances that exist, by id.
	instances map[string]alisim.InstanceView
	// requests that bought or removed instances, and Events of the cluster, since the snapshot before.
	requests      []alisim.RequestView
	clusterEvents []clusterEvent
	// quotes by offering.
	quotes map[offering]market.Quote
}

// pod is one of a job. A launcher needs no GPU.
type pod struct {
	job   string
	node  string
	phase corev1.PodPhase
	gpus  int
	// leaving says that it is being deleted.
	leaving bool
	// request is the id of the checkpoint that it was asked for, acknowledged the id of the one that it says it has saved.
	request, acknowledged string
}

// node is one that an instance registered.
type node struct {
	name string
	// ready says that pods can use its GPUs.
	ready bool
	gpus  int
	// tainted is when the reclaim taint was seen on it first; zero where it was not.
	tainted time.Time
}

// clusterEvent is an Event of the cluster.
type clusterEvent struct {
	at                        time.Time
	reason, object, text, uid string
}

// offering is a way to buy: the demo buys spot only.
type offering struct{ instanceType, zone string }

// String is short, for people: the type without its prefix, and the zone.
func (o offering) String() string {
	return strings.TrimPrefix(o.instanceType, "ecs.") + " in " + o.zone
}

func offeringOf(i alisim.InstanceView) offering { return offering{i.InstanceType, i.Zone} }

// observer takes snapshots.
type observer struct {
	cloud     *alisim.Server
	offerings []offering
	pods      corelisters.PodLister
	nodes     corelisters.NodeLister

	mu            sync.Mutex
	clusterEvents []clusterEvent
	// tainted is when the reclaim taint of each Node came: a snapshot is too coarse to tell how soon after the notice.
	tainted map[string]time.Time
	// seen are the latest request and the Events, by what tells them apart.
	lastRequest string
	seen        map[string]bool
}

// newObserver starts watches that end with ctx, and returns when they have caught up.
func newObserver(ctx context.Context, client kubernetes.Interface, cloud *alisim.Server, offerings []offering) (*observer, error) {
	factory := informers.NewSharedInformerFactory(client, 0)
	o := &observer{
		cloud: cloud, offerings: offerings, seen: map[string]bool{}, tainted: map[string]time.Time{},
		pods: factory.Core().V1().Pods().Lister(), nodes: factory.Core().V1().Nodes().Lister(),
	}
	if _, err := factory.Core().V1().Events().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { o.recordEvent(object.(*corev1.Event)) },
		UpdateFunc: func(_, object any) { o.recordEvent(object.(*corev1.Event)) },
	}); err != nil {
		return nil, err
	}
	if _, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { o.noteTaint(object.(*corev1.Node), time.Now()) },
		UpdateFunc: func(_, object any) { o.noteTaint(object.(*corev1.Node), time.Now()) },
	}); err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return nil, fmt.Errorf("watch %v: %w", kind, context.Cause(ctx))
		}
	}
	return o, nil
}

// recordEvent keeps an Event. One that repeats comes again with a higher count.
func (o *observer) recordEvent(e *corev1.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := fmt.Sprintf("%s/%d", e.UID, e.Count)
	if o.seen[key] {
		return
	}
	o.seen[key] = true
	at := e.LastTimestamp.Time
	if at.IsZero() {
		at = e.EventTime.Time
	}
	o.clusterEvents = append(o.clusterEvents, clusterEvent{at: at, reason: e.Reason, object: e.InvolvedObject.Name, text: e.Message, uid: string(e.InvolvedObject.UID)})
}

// noteTaint takes down when the Node got its reclaim taint, and that it has none any more.
func (o *observer) noteTaint(n *corev1.Node, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, known := o.tainted[n.Name]
	switch tainted := isReclaiming(n); {
	case tainted && !known:
		o.tainted[n.Name] = now
	case !tainted:
		delete(o.tainted, n.Name)
	}
}

func isReclaiming(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == reclaimTaint })
}

func (o *observer) taintedSince(n *corev1.Node) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tainted[n.Name]
}

// look takes a snapshot. It is not safe for concurrent use.
func (o *observer) look(now time.Time) (snapshot, error) {
	s := snapshot{
		at: now, pods: map[string]pod{}, nodes: map[string]node{}, instances: map[string]alisim.InstanceView{},
		quotes: map[offering]market.Quote{},
	}
	pods, err := o.pods.List(labels.Everything())
	if err != nil {
		return s, err
	}
	for _, p := range pods {
		if name := jobOf(p); name != "" {
			s.pods[p.Name] = viewPod(name, p)
		}
	}
	nodes, err := o.nodes.List(labels.Everything())
	if err != nil {
		return s, err
	}
	for _, n := range nodes {
		if id := n.Labels[instanceLabel]; id != "" {
			s.nodes[id] = viewNode(n, o.taintedSince(n))
		}
	}
	for _, i := range o.cloud.Instances() {
		if i.Status != "Released" {
			s.instances[i.ID] = i
		}
	}
	for _, offering := range o.offerings {
		s.quotes[offering] = o.cloud.Quote(offering.instanceType, offering.zone)
	}
	s.requests = o.newRequests()
	o.mu.Lock()
	defer o.mu.Unlock()
	s.clusterEvents, o.clusterEvents = o.clusterEvents, nil
	return s, nil
}

func (o *observer) newRequests() []alisim.RequestView {
	all := o.cloud.Requests("ScaleWithAdjustment", "RemoveInstances")
	first := 0
	for i, r := range all {
		if r.RequestID == o.lastRequest {
			first = i + 1
		}
	}
	if len(all) > 0 {
		o.lastRequest = all[len(all)-1].RequestID
	}
	return all[first:]
}

func viewPod(name string, p *corev1.Pod) pod {
	v := pod{job: name, node: p.Spec.NodeName, phase: p.Status.Phase, leaving: p.DeletionTimestamp != nil,
		request: p.Annotations[requestAnnotation], acknowledged: p.Annotations[acknowledgedAnnotation]}
	for _, c := range p.Spec.Containers {
		gpus := c.Resources.Limits[resourceGPU]
		v.gpus += int(gpus.Value())
	}
	return v
}

func viewNode(n *corev1.Node, tainted time.Time) node {
	gpus := n.Status.Allocatable[resourceGPU]
	v := node{name: n.Name, gpus: int(gpus.Value()), tainted: tainted}
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			v.ready = condition.Status == corev1.ConditionTrue && v.gpus > 0
		}
	}
	return v
}

// scaledUp finds the node groups in "pod triggered scale-up: [{<group> 0->3 (max: 20)} …]".
var scaledUp = regexp.MustCompile(`\{([^\s{}]+) \d+->\d+`)

// purchases reads the Event that core writes on each pod it bought for.
func (e clusterEvent) purchases() (bought []offering) {
	if e.reason != "TriggeredScaleUp" {
		return nil
	}
	for _, match := range scaledUp.FindAllStringSubmatch(e.text, -1) {
		if group := strings.Split(match[1], "/"); len(group) == 4 {
			bought = append(bought, offering{group[1], group[2]})
		}
	}
	return bought
}
