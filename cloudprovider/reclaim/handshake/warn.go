package handshake

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	kubepod "k8s.io/kubernetes/pkg/api/v1/pod"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/patch"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/work"
)

const (
	// warnPatience is for how long pods stay that could not be warned, and warnPatienceFraction the part of a short notice. In a
	// reclaim of thousands their turn comes late.
	warnPatience         = 2 * time.Minute
	warnPatienceFraction = 2
)

func warnPatienceOf(n notice.Notice) time.Duration {
	return min(warnPatience, n.Length()/warnPatienceFraction)
}

// warnPatience returns the least of those of the leaving pods.
func (l *loss) warnPatience() time.Duration {
	patience := warnPatience
	for _, pod := range l.leaving {
		patience = min(patience, warnPatienceOf(pod.notice))
	}
	return patience
}

// warner writes warnings on pods. It is safe for concurrent use.
type warner struct {
	client   kubernetes.Interface
	requests *work.Requests
	events   *events.Recorder
	sent     *sentWarnings
}

// sentWarnings has the warning that each pod was last sent by this process. The informer may not show it yet. It is safe for concurrent
// use.
type sentWarnings struct {
	mu      sync.Mutex
	byParty map[cluster.Party]map[types.UID]warning
}

// has returns whether the pod was last sent this warning.
func (s *sentWarnings) has(party cluster.Party, pod types.UID, w warning) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent, ok := s.byParty[party][pod]
	return ok && sent == w
}

func (s *sentWarnings) note(party cluster.Party, pod types.UID, w warning) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byParty[party] == nil {
		s.byParty[party] = map[types.UID]warning{}
	}
	s.byParty[party][pod] = w
}

// forgetPod forgets the warning of a pod that has it: if it is missing later, somebody took it off.
func (s *sentWarnings) forgetPod(party cluster.Party, pod types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byParty[party], pod)
}

// forget forgets all warnings of a party whose handshake has ended.
func (s *sentWarnings) forget(party cluster.Party) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byParty, party)
}

// warn writes the request on the pods of the job that do not have it, on the leaving pods first: it is by them that the next
// leader knows it. Pods of no known system are only warned of the loss of their own Node, unless their annotations make them one
// job: replicas of a service do not train together.
func (w *warner) warn(ctx context.Context, l loss, s state) error {
	instances := make(map[types.UID]string, len(l.leaving))
	for _, pod := range l.leaving {
		instances[pod.UID] = pod.notice.InstanceID
	}
	var leaving, survivors []*corev1.Pod
	for _, pod := range l.pods {
		instance, isLeaving := instances[pod.UID]
		switch {
		case pod.Spec.NodeName == "" || kubepod.IsPodTerminal(pod) || pod.DeletionTimestamp != nil:
		case len(s.warning(instance).missingOn(pod)) == 0:
			w.sent.forgetPod(l.party, pod.UID)
		case w.sent.has(l.party, pod.UID, s.warning(instance)):
		case isLeaving:
			leaving = append(leaving, pod)
		case areOneJob(l.party.Ref, pod) && s.concerns(pod):
			survivors = append(survivors, pod)
		}
	}
	warn := func(ctx context.Context, pod *corev1.Pod) error {
		return w.warnPod(ctx, l.party, pod, s, instances[pod.UID])
	}
	if err := w.requests.ForEach(ctx, leaving, warn); err != nil {
		return err
	}
	return w.requests.ForEach(ctx, survivors, warn)
}

// concerns returns whether a pod that survives has to save its work: every pod that was there when that was asked for, even if
// the acknowledgement came before it was warned. A pod that came later has nothing to save.
func (s *state) concerns(pod *corev1.Pod) bool {
	return !s.acknowledged && !s.phase.isDecided() || !pod.CreationTimestamp.After(s.requested)
}

// warnPod warns a pod. The instance is empty for survivors.
func (w *warner) warnPod(ctx context.Context, party cluster.Party, pod *corev1.Pod, s state, instance string) error {
	if err := w.annotate(ctx, pod, s.warning(instance).missingOn(pod)); err != nil {
		return fmt.Errorf("warn pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	w.sent.note(party, pod.UID, s.warning(instance))
	if pod.Annotations[api.AnnotationCheckpointRequest] == s.id {
		return nil // only completed
	}
	warnedPods.WithLabelValues(party.System).Inc()
	if instance != "" && areOneJob(party.Ref, pod) {
		what := notice.PrefixOf(s.drill) + "Instance %s of node %s will be released at %s; asked to save its work (request %s)"
		if s.move {
			what = "A spot instance is ready in place of %s of node %s, to move to until %s; asked to save its work (request %s)"
		}
		w.events.PodEventf(pod, events.ReasonWarned, what, instance, pod.Spec.NodeName, events.FormatTime(s.deadline), s.id)
	}
	return nil
}

func areOneJob(ref jobs.Ref, pod *corev1.Pod) bool {
	return ref.System != jobs.SystemPod || pod.Annotations[api.AnnotationJob] != ""
}

// warning is what a pod is told in its annotations. The instance is empty for survivors.
type warning struct{ deadline, id, instance string }

func (s *state) warning(instance string) warning {
	return warning{events.FormatTime(s.deadline), s.id, instance}
}

func (w warning) missingOn(pod *corev1.Pod) map[string]any {
	missing := map[string]any{}
	for key, value := range map[string]string{
		api.AnnotationReclaimDeadline:   w.deadline,
		api.AnnotationCheckpointRequest: w.id,
		api.AnnotationReclaimInstance:   w.instance,
	} {
		if value != "" && pod.Annotations[key] != value {
			missing[key] = value
		}
	}
	return missing
}

// annotate merges the annotations; nil removes one. It does nothing if the pod is gone.
func (w *warner) annotate(ctx context.Context, pod *corev1.Pod, annotations map[string]any) error {
	err := patch.Annotate(ctx, w.client.CoreV1().Pods(pod.Namespace), pod, annotations)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// takeBack takes the warnings off the pods of the job that are on Nodes of which lives returns true.
func (w *warner) takeBack(ctx context.Context, l loss, lives func(node string) bool) error {
	var warned []*corev1.Pod
	for _, pod := range l.pods {
		if len(warningOn(pod)) > 0 && !kubepod.IsPodTerminal(pod) && pod.DeletionTimestamp == nil && lives(pod.Spec.NodeName) {
			warned = append(warned, pod)
		}
	}
	return w.requests.ForEach(ctx, warned, func(ctx context.Context, pod *corev1.Pod) error {
		if err := w.annotate(ctx, pod, warningOn(pod)); err != nil {
			return fmt.Errorf("take the warning off pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		return nil
	})
}

// warningAnnotations are those by which pods are warned.
var warningAnnotations = []string{api.AnnotationReclaimDeadline, api.AnnotationCheckpointRequest, api.AnnotationReclaimInstance}

// warningOn returns what takes the pod's warning off.
func warningOn(pod *corev1.Pod) map[string]any { return WarningIn(pod.Annotations) }

// WarningIn returns the merge patch of a pod's annotations that takes its warning off. It is empty if they have none.
func WarningIn(annotations map[string]string) map[string]any {
	off := map[string]any{}
	for _, key := range warningAnnotations {
		if _, ok := annotations[key]; ok {
			off[key] = nil
		}
	}
	return off
}
