// Package intervals advises jobs how often to save a checkpoint.
//
// A reclaim asks for a checkpoint, so that little is lost if the job answers in time. The interval is for all else: a job that does
// not answer, a notice that comes too late, a broken GPU. A pod says in api.AnnotationCheckpointTime how long a checkpoint takes, and gets
// api.AnnotationCheckpointInterval, by how long the instances of its job are kept. The same is written on the Node for the node-agent.
package intervals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	kubepod "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/work"
)

const (
	// adviseEvery is how often the intervals are looked at.
	adviseEvery = time.Minute
	// maxWrites is how many pods and Nodes are written at most each time. The others have to wait for the next.
	maxWrites = 300
	// maxMalformed is of how many pods is known what is malformed. Of more, the owners may be told again.
	maxMalformed = 1024
)

// Config is what an Adviser is made of. All of it is required.
type Config struct {
	// Member returns the job that a pod belongs to.
	Member func(*corev1.Pod) jobs.Membership
	// Life returns how long the instance of the Node is kept on average, zero for one that is not reclaimed.
	Life     func(*corev1.Node) time.Duration
	Client   kubernetes.Interface
	Pods     corelisters.PodLister
	Nodes    corelisters.NodeLister
	Recorder record.EventRecorder
	Clock    clock.WithTicker
}

// Adviser writes the intervals. What it has advised is written on the pods, so that a new leader goes on from there.
type Adviser struct {
	config Config
	// malformed has the values of which owners were told, by the UID of the pod.
	malformed *lru.Cache
}

// New returns an Adviser, which does nothing until it runs.
func New(config Config) *Adviser { return &Adviser{config, lru.New(maxMalformed)} }

// Run advises until ctx ends. It is to be called once, by the leader, after the informers have synced.
func (a *Adviser) Run(ctx context.Context) {
	work.Every(ctx, a.config.Clock, adviseEvery, func() {
		if err := a.advise(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Could not advise all jobs how often to save a checkpoint")
		}
	})
}

// asking is a pod that says how long a checkpoint takes.
type asking struct {
	*corev1.Pod
	checkpoint time.Duration
	// advised is the interval that the pod has, interval the one that it is to have.
	advised, interval time.Duration
}

func (a *Adviser) advise(ctx context.Context) error {
	pods, err := a.config.Pods.List(labels.Everything())
	if err != nil {
		return err
	}
	nodes, err := a.config.Nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	byJob := a.byJob(pods)
	left, wanted := maxWrites, map[string]map[string]time.Duration{}
	var errs []error
	for _, job := range byJob {
		life := together(a.lives(job))
		for i := range job {
			job[i].decide(life)
			errs = append(errs, a.write(ctx, &left, &job[i]))
			note(wanted, &job[i])
		}
	}
	for _, node := range nodes {
		errs = append(errs, a.writeNode(ctx, &left, node, wanted[node.Name]))
	}
	return errors.Join(errs...)
}

// byJob returns the pods that run and say how long a checkpoint takes, by their job.
func (a *Adviser) byJob(pods []*corev1.Pod) map[jobs.Ref][]asking {
	byJob := map[jobs.Ref][]asking{}
	for _, pod := range pods {
		text, asks := pod.Annotations[api.AnnotationCheckpointTime]
		if !asks || pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || kubepod.IsPodTerminal(pod) {
			continue
		}
		checkpoint, err := time.ParseDuration(text)
		if err != nil || checkpoint <= 0 {
			a.recordMalformed(pod, text)
			continue
		}
		advised, _ := time.ParseDuration(pod.Annotations[api.AnnotationCheckpointInterval])
		ref := a.config.Member(pod).Ref
		byJob[ref] = append(byJob[ref], asking{Pod: pod, checkpoint: checkpoint, advised: advised})
	}
	return byJob
}

func (a *Adviser) recordMalformed(pod *corev1.Pod, text string) {
	if known, ok := a.malformed.Get(pod.UID); ok && known == text {
		return
	}
	a.malformed.Add(pod.UID, text)
	a.config.Recorder.Eventf(pod, corev1.EventTypeWarning, jobs.ReasonAnnotationMalformed,
		"annotation %s=%q is ignored: it is not a duration such as 40s", api.AnnotationCheckpointTime, text)
}

// lives returns how long each of the Nodes of the job is kept on average.
func (a *Adviser) lives(job []asking) (lives []time.Duration) {
	names := sets.New[string]()
	for _, pod := range job {
		names.Insert(pod.Spec.NodeName)
	}
	for name := range names {
		if node, err := a.config.Nodes.Get(name); err == nil {
			lives = append(lives, a.config.Life(node))
		}
	}
	return lives
}

// decide sets the interval by how long none of the job's instances is lost. The advised one stays if it is close.
func (p *asking) decide(life time.Duration) {
	p.interval = Interval(p.checkpoint, life)
	if p.advised > 0 && p.interval > 0 && isClose(p.advised, p.interval) {
		p.interval = p.advised
	}
}

// write writes the interval on the pod if that has another.
func (a *Adviser) write(ctx context.Context, left *int, pod *asking) error {
	if _, has := pod.Annotations[api.AnnotationCheckpointInterval]; pod.interval == pod.advised && has == (pod.interval > 0) || *left == 0 {
		return nil
	}
	*left--
	var value any
	if pod.interval > 0 {
		value = pod.interval.String()
	}
	_, err := a.config.Client.CoreV1().Pods(pod.Namespace).Patch(
		ctx, pod.Name, types.MergePatchType, annotation(api.AnnotationCheckpointInterval, value, string(pod.UID)), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil // it is gone, or another has its name
	}
	if err != nil {
		return fmt.Errorf("patch pod %s: %w", klog.KObj(pod.Pod), err)
	}
	return nil
}

// note enters the interval of the pod for its Node, by the address from which the pod calls the node-agent. The pods on the Node's network have
// one address, and the shortest of their intervals.
func note(wanted map[string]map[string]time.Duration, pod *asking) {
	if pod.interval == 0 {
		return
	}
	node := wanted[pod.Spec.NodeName]
	if node == nil {
		node = map[string]time.Duration{}
		wanted[pod.Spec.NodeName] = node
	}
	for _, caller := range callersOf(pod.Pod) {
		if known, ok := node[caller]; !ok || pod.interval < known {
			node[caller] = pod.interval
		}
	}
}

// callersOf returns as whom the pod calls the node-agent. Informers have the addresses of pods that ask, and not PodIP.
func callersOf(pod *corev1.Pod) (callers []string) {
	if pod.Spec.HostNetwork {
		return []string{api.CallerHost}
	}
	for _, address := range pod.Status.PodIPs {
		callers = append(callers, address.IP)
	}
	return callers
}

// writeNode writes the intervals of the Node's pods on it if it has others.
func (a *Adviser) writeNode(ctx context.Context, left *int, node *corev1.Node, intervals map[string]time.Duration) error {
	entries := make([]string, 0, len(intervals))
	for _, caller := range slices.Sorted(maps.Keys(intervals)) {
		entries = append(entries, caller+"="+intervals[caller].String())
	}
	text := strings.Join(entries, ",")
	if text == node.Annotations[api.AnnotationCheckpointIntervals] || *left == 0 {
		return nil
	}
	*left--
	var value any
	if text != "" {
		value = text
	}
	_, err := a.config.Client.CoreV1().Nodes().Patch(
		ctx, node.Name, types.MergePatchType, annotation(api.AnnotationCheckpointIntervals, value, string(node.UID)), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("patch node %s: %w", node.Name, err)
	}
	return nil
}

// annotation returns the merge patch that sets an annotation of the object with the UID, or removes it if the value is nil.
func annotation(key string, value any, uid string) []byte {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "annotations": map[string]any{key: value}}})
	if err != nil {
		panic(err) // texts only
	}
	return patch
}
