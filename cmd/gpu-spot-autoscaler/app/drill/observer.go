package drill

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs/podindex"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	outcomes "gpu-spot-autoscaler/cloudprovider/reclaim/drill"
	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

const (
	// resync is so long that it never happens.
	resync = 24 * time.Hour
	// listsWithin is how long the first lists may take.
	listsWithin = 30 * time.Second
	// eventSource is who writes the autoscaler's Events: its recorder is Cluster Autoscaler's.
	// Source: CreateEventRecorder of utils/kubernetes in Cluster Autoscaler 1.33.
	eventSource = "cluster-autoscaler"
)

// observer finds out what happens from Nodes, pods and Events, and enters it in the timeline. Only one goroutine may use it, beside its
// informers.
type observer struct {
	client   kubernetes.Interface
	clock    clock.PassiveClock
	plan     notice.Drill
	names    []string
	timeline *timeline

	nodes  corelisters.NodeLister
	events cache.Store
	// changed receives when there may be something new: a job may save its work, and its Node be given back, before the next look.
	changed chan struct{}
	// seen are the Events that are entered, or were there before.
	seen sets.Set[types.UID]
	// known are the Nodes that were there before.
	known sets.Set[string]
	// states are those of the drilled Nodes, by name.
	states map[string]*nodeState
	// pods are those seen on drilled Nodes, "<namespace>/<name>".
	pods sets.Set[string]
	jobs map[string]*job
	// endings is what the Events say about the end, by Node.
	endings map[string]string
}

// nodeState is how far a Node has got.
type nodeState struct {
	marked, over bool
	// takenBy is the source of the notice that has taken the place of the drill.
	takenBy string
}

// job is one job that was asked, by the id of its request.
type job struct{ Job }

func newObserver(client kubernetes.Interface, clk clock.PassiveClock, plan notice.Drill, names []string, t *timeline) *observer {
	o := &observer{
		client: client, clock: clk, plan: plan, names: names, timeline: t, seen: sets.New[types.UID](), known: sets.New[string](),
		states: map[string]*nodeState{}, pods: sets.New[string](), jobs: map[string]*job{}, endings: map[string]string{},
		changed: make(chan struct{}, 1),
	}
	for _, name := range names {
		o.states[name] = &nodeState{}
	}
	return o
}

// begin starts to watch, and notes what is there before the drill.
func (o *observer) begin(ctx context.Context) error {
	nodes := informers.NewSharedInformerFactory(o.client, resync)
	recorded := informers.NewSharedInformerFactoryWithOptions(o.client, resync, informers.WithTweakListOptions(func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector("source", eventSource).String()
	}))
	o.nodes = nodes.Core().V1().Nodes().Lister()
	o.events = recorded.Core().V1().Events().Informer().GetStore()
	for _, informer := range []cache.SharedIndexInformer{nodes.Core().V1().Nodes().Informer(), recorded.Core().V1().Events().Informer()} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { o.noteChange(object) },
			UpdateFunc: func(_, object any) { o.noteChange(object) },
		}); err != nil {
			return err
		}
	}
	bounded, cancel := context.WithTimeout(ctx, listsWithin)
	defer cancel()
	for _, factory := range []informers.SharedInformerFactory{nodes, recorded} {
		factory.Start(ctx.Done())
		for kind, synced := range factory.WaitForCacheSync(bounded.Done()) {
			if !synced {
				return fmt.Errorf("list %v: not complete within %v; may you list and watch Nodes and Events?", kind, listsWithin)
			}
		}
	}
	for _, object := range o.events.List() {
		o.seen.Insert(object.(*corev1.Event).UID)
	}
	all, err := o.nodes.List(everything)
	for _, node := range all {
		o.known.Insert(node.Name)
	}
	return err
}

// noteChange is called by the informers, with a Node or an Event.
func (o *observer) noteChange(object any) {
	if node, ok := object.(*corev1.Node); ok && !slices.Contains(o.names, node.Name) {
		return
	}
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// look enters what is new. What cannot be read is read next time.
func (o *observer) look(ctx context.Context) {
	o.lookAtEvents()
	o.lookAtNodes()
	o.lookAtPods(ctx)
}

func (o *observer) lookAtNodes() {
	for _, name := range o.names {
		state := o.states[name]
		node, err := o.nodes.Get(name)
		if err != nil || state.over {
			state.over = state.over || state.marked // the Node is gone
			continue
		}
		source := notice.Source(node.Annotations[api.AnnotationReclaimSource])
		marked := cluster.IsMarked(node)
		if marked && source == notice.SourceDrill && !state.marked {
			state.marked = true
			o.timeline.add(stepMark, name, "", "tainted and cordoned")
		}
		switch {
		case marked && source != notice.SourceDrill && source != "":
			state.over, state.takenBy = true, string(source)
			o.timeline.add(stepOvertaken, name, "", fmt.Sprintf("a notice has come (%s), and takes the place of the drill", source))
		case !marked && node.Annotations[api.AnnotationDrill] == "" && (state.marked || o.endings[name] != ""):
			state.over = true
			if !strings.HasPrefix(o.endings[name], string(outcomes.Refused)) {
				o.timeline.add(stepRestored, name, "", "schedulable as before, and the marks are off")
			}
		}
	}
	o.lookAtNewNodes()
}

// lookAtNewNodes enters the Nodes that came since the drill began, once they are ready.
func (o *observer) lookAtNewNodes() {
	all, err := o.nodes.List(everything)
	if err != nil {
		return
	}
	for _, node := range all {
		if !o.known.Has(node.Name) && cluster.IsReady(node) {
			o.known.Insert(node.Name)
			o.timeline.add(stepReplacement, node.Name, "", "a new node is ready")
		}
	}
}

// lookAtPods finds the pods on the Nodes, and those of their jobs, for what they are asked and what they report.
func (o *observer) lookAtPods(ctx context.Context) {
	namespaces := sets.New[string]()
	for _, name := range o.names {
		list, err := o.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", name).String()})
		if err != nil {
			continue
		}
		for i := range list.Items {
			pod := &list.Items[i]
			if pod.Spec.NodeName != name || podindex.BelongsToNode(pod) { // a fake knows no field selectors
				continue
			}
			o.pods.Insert(pod.Namespace + "/" + pod.Name)
			if id := pod.Annotations[api.AnnotationCheckpointRequest]; notice.IsOfDrill(id) {
				namespaces.Insert(pod.Namespace)
				o.asked(id, pod)
			}
		}
	}
	for _, j := range o.jobs {
		namespaces.Insert(j.Namespace)
	}
	for namespace := range namespaces {
		o.lookAtSteps(ctx, namespace)
	}
}

// asked enters the job whose pod has the request.
func (o *observer) asked(id string, pod *corev1.Pod) {
	if _, known := o.jobs[id]; known {
		return
	}
	j := &job{Job: Job{Namespace: pod.Namespace, Kind: "Pod", Name: pod.Name, Awaited: awaits(pod)}}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		j.Kind, j.Name = owner.Kind, owner.Name
	}
	if name := pod.Annotations[api.AnnotationJob]; name != "" {
		j.Kind, j.Name = "job", name
	}
	o.jobs[id] = j
	o.timeline.add(stepAsked, pod.Spec.NodeName, j.String(), "asked for a checkpoint")
}

func awaits(pod *corev1.Pod) bool {
	declared := pod.Annotations[api.AnnotationAwaitCheckpoint]
	return declared != "" && declared != "false"
}

// lookAtSteps reads how far the jobs of the namespace have got.
func (o *observer) lookAtSteps(ctx context.Context, namespace string) {
	list, err := o.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return
	}
	for _, pod := range list.Items {
		j := o.jobs[pod.Annotations[api.AnnotationCheckpointRequest]]
		if j == nil {
			continue
		}
		if pod.Annotations[api.AnnotationCheckpointAcknowledged] == pod.Annotations[api.AnnotationCheckpointRequest] {
			o.acknowledged(j)
		}
		j.Awaited = j.Awaited || awaits(&pod)
		j.TrainingStep = later(j.TrainingStep, pod.Annotations[api.AnnotationTrainingStep])
		j.CheckpointStep = later(j.CheckpointStep, pod.Annotations[api.AnnotationCheckpointStep])
	}
}

// acknowledged enters the acknowledgement once: of two leaders, neither may have written an Event.
func (o *observer) acknowledged(j *job) {
	if j.Outcome != OutcomeAcknowledged {
		j.Outcome = OutcomeAcknowledged
		o.timeline.add(stepAcknowledged, "", j.String(), "says that its work is saved")
	}
}

// later returns the later of two steps. A text that is no number is none.
func later(known *int64, text string) *int64 {
	step, err := strconv.ParseInt(text, 10, 64)
	if err != nil || known != nil && *known >= step {
		return known
	}
	return &step
}

// requestIn finds the id of a request in the message of an Event.
var requestIn = regexp.MustCompile(`\(request ([^)]+)\)`)

// lookAtEvents enters the Events of the drill in the order in which they were written.
func (o *observer) lookAtEvents() {
	var fresh []*corev1.Event
	for _, object := range o.events.List() {
		event := object.(*corev1.Event)
		if !o.seen.Has(event.UID) && strings.HasPrefix(event.Message, notice.PrefixOf(true)) {
			fresh = append(fresh, event)
		}
	}
	slices.SortFunc(fresh, func(a, b *corev1.Event) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, event := range fresh {
		if o.enter(event) {
			o.seen.Insert(event.UID)
		}
	}
}

// enter returns false for an Event that may belong to a job that is not known yet.
func (o *observer) enter(event *corev1.Event) bool {
	about := event.InvolvedObject
	text := strings.TrimPrefix(event.Message, notice.PrefixOf(true))
	switch event.Reason {
	case events.ReasonDrillEnded:
		if o.states[about.Name] != nil {
			o.endings[about.Name] = text
		}
	case events.ReasonDrained:
		if o.states[about.Name] != nil {
			o.timeline.add(stepDrained, about.Name, "", "no pods are left")
		}
	case events.ReasonEvicted:
		if pod := about.Namespace + "/" + about.Name; o.pods.Has(pod) {
			o.timeline.add(stepEvicted, "", pod, "evicted")
		}
	case events.ReasonSaved, events.ReasonUnsaved, events.ReasonUnprepared:
		return o.enterJob(event, text)
	}
	return true
}

// enterJob enters what a job has done.
func (o *observer) enterJob(event *corev1.Event, text string) bool {
	about, found := event.InvolvedObject, &job{Job: Job{Namespace: event.InvolvedObject.Namespace, Kind: event.InvolvedObject.Kind, Name: event.InvolvedObject.Name}}
	if match := requestIn.FindStringSubmatch(text); match != nil {
		if found = o.jobs[match[1]]; found == nil {
			return false
		}
		if about.Kind != "Pod" {
			found.Kind, found.Name = about.Kind, about.Name
		}
		text = requestIn.ReplaceAllString(text, "") // it is secret
	}
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, " ,", ",")), " ")
	switch event.Reason {
	case events.ReasonSaved:
		o.acknowledged(found)
	case events.ReasonUnsaved:
		found.Outcome = OutcomeMissed
		o.timeline.add(stepMissed, "", found.String(), "has not said in time that its work is saved")
	default:
		o.timeline.add(stepUnprepared, "", found.String(), text)
	}
	return true
}

// hasBegun returns whether a leader has begun with the drill, or refused it.
func (o *observer) hasBegun() bool {
	for name, state := range o.states {
		if state.marked || state.over || o.endings[name] != "" {
			return true
		}
	}
	return false
}

// isOver returns whether no Node is drilled any more. One with which no leader has begun in time is over once it does not say any more that
// there is a drill.
func (o *observer) isOver() bool {
	for name, state := range o.states {
		if !state.over && (state.marked || o.clock.Since(o.timeline.began) < beginsWithin || o.saysDrill(name)) {
			return false
		}
	}
	return true
}

func (o *observer) saysDrill(name string) bool {
	node, err := o.nodes.Get(name)
	return err == nil && (cluster.IsMarked(node) || node.Annotations[api.AnnotationDrill] != "")
}

// isExplained returns whether it is known of each Node how its drill has ended.
func (o *observer) isExplained() bool {
	for name, state := range o.states {
		if state.takenBy == "" && o.endings[name] == "" {
			return false
		}
	}
	return true
}

// refused returns why the leader has not begun.
func (o *observer) refused() error {
	for _, name := range o.names {
		if why, ok := strings.CutPrefix(o.endings[name], string(outcomes.Refused)+": "); ok {
			return errors.New("the leader refuses a drill of node " + name + ": " + why)
		}
	}
	return nil
}
