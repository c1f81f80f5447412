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
	// maxOfPod bounds what stands on the Node from one address, maxOfHost from the node's own, which its pods share, and
	// maxOfOthers from all addresses from which nothing is awaited any more. Of each the oldest go first, so that nobody
	// pushes out what another has said.
	maxOfPod, maxOfHost, maxOfOthers = 4, 64, 64
	// conflictTries is how often an acknowledgement is written on a Node that keeps changing.
	conflictTries = 5
	conflictPause = 50 * time.Millisecond
)

var (
	// errNotAsked is returned for an acknowledgement that nobody awaits from its caller.
	errNotAsked = errors.New("no acknowledgement of this request, or in the name of this pod, is awaited from your address, or not yet")
	// errNameless is returned to the node's own address.
	errNameless = errors.New("pods on the node's network share its address: give the id of the request")
)

// requestID is what an id may look like: without the comma, the @ and the slash by which the list is read.
var requestID = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

// acknowledgement says that a checkpoint was saved: either by the id of the request for it, or by the name of a pod of the
// job.
type acknowledgement struct {
	ID        string `json:"id"`
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
}

// validate names what is wrong.
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

// what is the id, or the pod as "<namespace>/<pod>".
func (k acknowledgement) what() string {
	if k.ID != "" {
		return k.ID
	}
	return k.Namespace + "/" + k.Pod
}

// addTo returns the list with the acknowledgement in it, and without what it makes superfluous or is too much. That of a
// pod is dated, rounded up to whole seconds: it must not seem older than a request of the same second.
func (k acknowledgement) addTo(list string, caller string, awaited awaited, now time.Time) string {
	entry, prefix := k.what()+"@"+caller, ""
	if k.ID == "" {
		prefix = k.what() + "@"
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

// bounded drops the oldest of every caller who has too many, and of those from whom nothing is awaited.
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

// record writes the acknowledgement on the Node, and returns when it is there. One is recorded at a time.
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
