package drill

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// Node is what was seen of a Node. A time is zero for what was not seen.
type Node struct {
	Name, InstanceID string
	// Marked is when it first had the taint of a reclaiming node, Gone when it was removed. Tainted is how it was seen last.
	Marked, Gone time.Time
	Tainted      bool
	// Emptied is when the last of the Jobs' pods that were ever on it had ended.
	Emptied time.Time
	// Busy is how many of them have not.
	Busy int
}

// Pod is what was seen of a pod of a Job.
type Pod struct {
	types.NamespacedName
	Job, Node string
	Running   bool
	// Warned is when it had a deadline and a request for a checkpoint, while nobody had deleted it; Deleting when somebody
	// had; Ended when it had ended or was gone.
	Warned, Deleting, Ended time.Time
	// Request is the one for a checkpoint that it was last seen with.
	Request string
}

// Observer sees every version of every Node and of every pod of a Job. It is safe for concurrent use.
type Observer struct {
	mu    sync.Mutex
	nodes map[string]*Node
	pods  map[types.UID]*Pod
	// byJob are those of each job.
	byJob map[string][]*Pod
	// requests has each request for a checkpoint once; asked are the last of each job.
	requests chan request
	asked    map[string]string
}

// request is one for a checkpoint.
type request struct {
	job, id string
	seen    time.Time
}

// maxRequests is more than there are jobs in any drill.
const maxRequests = 1 << 16

// Watch begins to watch, and returns when what there is has been seen. It ends with ctx.
func Watch(ctx context.Context, config *rest.Config) (*Observer, error) {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf // spares the API server time, which it has to share
	config.AcceptContentTypes = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	o := &Observer{
		nodes: map[string]*Node{}, pods: map[types.UID]*Pod{}, byJob: map[string][]*Pod{},
		requests: make(chan request, maxRequests), asked: map[string]string{},
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	nodes, err := factory.Core().V1().Nodes().Informer().AddEventHandler(handlers(o.node))
	if err != nil {
		return nil, err
	}
	pods, err := factory.Core().V1().Pods().Informer().AddEventHandler(handlers(o.pod))
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), nodes.HasSynced, pods.HasSynced) {
		return nil, fmt.Errorf("watch nodes and pods: %w", context.Cause(ctx))
	}
	return o, nil
}

// handlers call see with every version, and once more when the object is gone.
func handlers[T any](see func(object T, gone bool)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { see(object.(T), false) },
		UpdateFunc: func(_, object any) { see(object.(T), false) },
		DeleteFunc: func(object any) {
			if lost, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = lost.Obj
			}
			see(object.(T), true)
		},
	}
}

func (o *Observer) node(node *corev1.Node, gone bool) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	known := o.nodes[node.Name]
	if known == nil {
		_, id, _ := strings.Cut(node.Spec.ProviderID, ".") // <region>.<instance>
		known = &Node{Name: node.Name, InstanceID: id}
		o.nodes[node.Name] = known
	}
	known.Tainted = isTainted(node)
	if known.Tainted {
		note(&known.Marked, now)
	}
	if gone {
		note(&known.Gone, now)
	}
}

func isTainted(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == api.TaintReclaim {
			return true
		}
	}
	return false
}

func (o *Observer) pod(pod *corev1.Pod, gone bool) {
	job := pod.Labels[LabelJob]
	if job == "" {
		return
	}
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	known := o.pods[pod.UID]
	if known == nil {
		known = &Pod{NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, Job: job}
		o.pods[pod.UID] = known
		o.byJob[job] = append(o.byJob[job], known)
	}
	known.Node = pod.Spec.NodeName
	ended := gone || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
	known.Running = !ended && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil
	id := pod.Annotations[api.AnnotationCheckpointRequest]
	known.Request = id
	if id != "" && pod.DeletionTimestamp == nil && !gone {
		o.request(job, id, now)
		if pod.Annotations[api.AnnotationReclaimDeadline] != "" {
			note(&known.Warned, now)
		}
	}
	if pod.DeletionTimestamp != nil || gone {
		note(&known.Deleting, now)
	}
	if ended {
		note(&known.Ended, now)
	}
}

func (o *Observer) request(job, id string, now time.Time) {
	if o.asked[job] == id {
		return
	}
	o.asked[job] = id
	select {
	case o.requests <- request{job, id, now}:
	default: // nobody answers
	}
}

// note keeps the first time.
func note(at *time.Time, now time.Time) {
	if at.IsZero() {
		*at = now
	}
}

// Nodes returns what was seen of every Node, by instance.
func (o *Observer) Nodes() map[string]Node {
	o.mu.Lock()
	defer o.mu.Unlock()
	nodes := make(map[string]Node, len(o.nodes))
	byName := make(map[string]*Node, len(o.nodes))
	for name, node := range o.nodes {
		copied := *node
		byName[name] = &copied
	}
	for _, pod := range o.pods {
		node := byName[pod.Node]
		switch {
		case node == nil:
		case pod.Ended.IsZero():
			node.Busy++
		case pod.Ended.After(node.Emptied):
			node.Emptied = pod.Ended
		}
	}
	for _, node := range byName {
		if node.Busy > 0 {
			node.Emptied = time.Time{}
		}
		nodes[node.InstanceID] = *node
	}
	return nodes
}

// Pods returns what was seen of every pod.
func (o *Observer) Pods() []Pod {
	o.mu.Lock()
	defer o.mu.Unlock()
	pods := make([]Pod, 0, len(o.pods))
	for _, pod := range o.pods {
		pods = append(pods, *pod)
	}
	return pods
}

// Running counts, by job, the pods that run on Nodes that are not reclaiming.
func (o *Observer) Running() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	running := map[string]int{}
	for _, pod := range o.pods {
		if node := o.nodes[pod.Node]; pod.Running && node != nil && !node.Tainted && node.Gone.IsZero() {
			running[pod.Job]++
		}
	}
	return running
}

// answerers is how many words are given at once.
const answerers = 8

// Answer gives, in the name of each job, the word that its checkpoint is saved, so long after it was asked for, until ctx
// ends. A word that cannot be given is lost, as that of a job that crashes.
func (o *Observer) Answer(ctx context.Context, client kubernetes.Interface, after time.Duration) {
	var all sync.WaitGroup
	defer all.Wait()
	for range answerers {
		all.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case asked := <-o.requests:
					if sleepUntil(ctx, asked.seen.Add(after)) {
						o.answer(ctx, client, asked)
					}
				}
			}
		})
	}
}

func sleepUntil(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// answer has any pod of the job that is still there say the word.
func (o *Observer) answer(ctx context.Context, client kubernetes.Interface, asked request) {
	word := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, api.AnnotationCheckpointAcknowledged, asked.id)
	for _, pod := range o.warned(asked.job) {
		if _, err := client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, word, metav1.PatchOptions{}); err == nil {
			return
		}
	}
}

// warned are the names of the pods of a job that were asked for a checkpoint and still run.
func (o *Observer) warned(job string) (pods []types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, pod := range o.byJob[job] {
		if pod.Running && !pod.Warned.IsZero() {
			pods = append(pods, pod.NamespacedName)
		}
	}
	return pods
}
