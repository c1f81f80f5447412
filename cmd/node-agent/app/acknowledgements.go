package app

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"gpu-spot-autoscaler/cloudprovider/api"
)

const (
	// maxOfPod bounds the acknowledgements on the Node from one address, maxOfHost those from the node's own address, which
	// pods on its network share, and maxOfOthers those from all addresses of which none is awaited any more. The oldest of
	// each are dropped, so a caller cannot displace what another has acknowledged.
	maxOfPod, maxOfHost, maxOfOthers = 4, 64, 64
	// conflictTries is how often writing an acknowledgement is tried on a Node that changes meanwhile.
	conflictTries = 5
	conflictPause = 50 * time.Millisecond
)

var (
	// errNotAwaited is returned for an acknowledgement that is not awaited from its caller.
	errNotAwaited = errors.New("no acknowledgement of this request, or in the name of this pod, is awaited from your address, or not yet")
	// errNeedsID is returned to the node's own address for an acknowledgement in the name of a pod.
	errNeedsID = errors.New("pods on the node's network share its address: give the id of the request")
)

// requestID matches ids of requests. They are without comma, @ and slash, which have a meaning in the list on the Node.
var requestID = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

// acknowledgement says that a checkpoint was saved. It has either the id of the request for the checkpoint, or namespace and
// name of a pod of the job.
type acknowledgement struct {
	ID        string `json:"id"`
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
}

// validate returns an error that names the field that is wrong.
func (k acknowledgement) validate() error {
	switch {
	case k.ID != "" && k.Namespace == "" && k.Pod == "":
		if !requestID.MatchString(k.ID) {
			return errors.New("id: not that of a request for a checkpoint")
		}
		return nil
	case k.ID == "" && k.Namespace != "" && k.Pod != "":
		if wrong := validation.IsDNS1123Label(k.Namespace); len(wrong) > 0 {
			return fmt.Errorf("namespace: %s", wrong[0])
		}
		if wrong := validation.IsDNS1123Subdomain(k.Pod); len(wrong) > 0 {
			return fmt.Errorf("pod: %s", wrong[0])
		}
		return nil
	default:
		return errors.New("give either id, or namespace and pod")
	}
}

// subject returns the id, or the pod as "<namespace>/<pod>".
func (k acknowledgement) subject() string {
	if k.ID != "" {
		return k.ID
	}
	return k.Namespace + "/" + k.Pod
}

// addTo returns the list with the acknowledgement added, and without those that it replaces or that are too many. One in the
// name of a pod has a time, rounded up to whole seconds so that it is not older than a request of the same second.
func (k acknowledgement) addTo(list string, caller string, awaited awaited, now time.Time) string {
	entry, prefix := k.subject()+"@"+caller, ""
	if k.ID == "" {
		prefix = k.subject() + "@"
		entry = fmt.Sprintf("%s%d@%s", prefix, now.Add(time.Second-1).Unix(), caller)
	}
	entries := slices.DeleteFunc(strings.Split(list, ","), func(old string) bool {
		return old == "" || old == entry || prefix != "" && strings.HasPrefix(old, prefix) && callerOf(old) == caller
	})
	return strings.Join(bounded(append(entries, entry), awaited), ",")
}

func callerOf(entry string) string {
	i := strings.LastIndexByte(entry, '@')
	return entry[i+1:]
}

// bounded returns the entries without the oldest of each caller that has too many. Callers of which none is awaited count as
// one.
func bounded(entries []string, awaited awaited) []string {
	seen := map[string]int{}
	slices.Reverse(entries)
	entries = slices.DeleteFunc(entries, func(entry string) bool {
		caller, most := callerOf(entry), maxOfPod
		switch {
		case awaited[caller] == nil:
			caller, most = "", maxOfOthers
		case caller == api.CallerHost:
			most = maxOfHost
		}
		seen[caller]++
		return seen[caller] > most
	})
	slices.Reverse(entries)
	return entries
}

// record writes the acknowledgement on the Node. It returns nil once it is written. One is recorded at a time.
func (a *agent) record(ctx context.Context, k acknowledgement, caller string) error {
	select {
	case a.recording <- struct{}{}:
		defer func() { <-a.recording }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for try := 1; ; try++ {
		err := a.recordOnce(ctx, k, caller)
		if !apierrors.IsConflict(err) || try == conflictTries || !a.sleep(ctx, conflictPause) {
			return err
		}
	}
}

func (a *agent) recordOnce(ctx context.Context, k acknowledgement, caller string) error {
	node, err := a.node.get(ctx, metadataOnly)
	if err != nil {
		return err
	}
	awaited := awaitedOn(node)
	if err := awaited.refuse(k, caller); err != nil {
		return err
	}
	before := node.Annotations[api.AnnotationCheckpointAcknowledged]
	if k.ID != "" && slices.Contains(strings.Split(before, ","), k.ID+"@"+caller) {
		return nil
	}
	after := k.addTo(before, caller, awaited, a.clock.Now())
	return a.node.annotate(ctx, map[string]*string{api.AnnotationCheckpointAcknowledged: &after}, node.ResourceVersion)
}
