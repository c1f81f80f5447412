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
	// maxWords bounds the annotation: with names of usual length it stays below 8 KiB, with the longest below 24 KiB.
	maxWords = 64
	// conflictTries is how often a word is written on a Node that keeps changing.
	conflictTries = 5
	conflictPause = 50 * time.Millisecond
)

// errNoNotice is returned for a word that nobody waits for.
var errNoNotice = errors.New("there is no reclaim notice for this node")

// requestID is what an id may look like: neither a comma, which separates words, nor an @, which makes it a pod's.
var requestID = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

// word says that a checkpoint was saved: either by the id of the request for it, or by the name of a pod of the job.
type word struct {
	ID        string `json:"id"`
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
}

// validate names what is wrong.
func (w word) validate() error {
	switch {
	case w.ID != "" && w.Namespace == "" && w.Pod == "":
		if !requestID.MatchString(w.ID) {
			return errors.New("id: not that of a request for a checkpoint")
		}
		return nil
	case w.ID == "" && w.Namespace != "" && w.Pod != "":
		if wrong := validation.IsDNS1123Label(w.Namespace); len(wrong) > 0 {
			return fmt.Errorf("namespace: %s", wrong[0])
		}
		if wrong := validation.IsDNS1123Subdomain(w.Pod); len(wrong) > 0 {
			return fmt.Errorf("pod: %s", wrong[0])
		}
		return nil
	default:
		return errors.New("give either id, or namespace and pod")
	}
}

// addTo returns the list with the word at its end, and without what it makes superfluous. A pod's word is dated, rounded
// up to whole seconds: it must not seem older than a request of the same second.
func (w word) addTo(list string, now time.Time) string {
	entry, prefix := w.ID, w.ID
	if w.ID == "" {
		prefix = w.Namespace + "/" + w.Pod + "@"
		entry = fmt.Sprintf("%s%d", prefix, now.Add(time.Second-1).Unix())
	}
	words := slices.DeleteFunc(strings.Split(list, ","), func(old string) bool {
		return old == "" || old == entry || strings.HasSuffix(prefix, "@") && strings.HasPrefix(old, prefix)
	})
	words = append(words, entry)
	return strings.Join(words[max(0, len(words)-maxWords):], ",")
}

// record writes the word on the Node, and returns when it is there. One is recorded at a time.
func (a *agent) record(ctx context.Context, w word) error {
	select {
	case a.recording <- struct{}{}:
		defer func() { <-a.recording }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for try := 1; ; try++ {
		err := a.recordOnce(ctx, w)
		if !apierrors.IsConflict(err) || try == conflictTries || !a.sleep(ctx, conflictPause) {
			return err
		}
	}
}

func (a *agent) recordOnce(ctx context.Context, w word) error {
	node, err := a.node.get(ctx, metadataOnly)
	if err != nil {
		return err
	}
	// An id answers a request that was made of the job, whichever of its nodes it is that goes.
	if w.ID == "" && node.Annotations[api.AnnotationReclaimDeadline] == "" && a.notice().IsZero() {
		return errNoNotice
	}
	before := node.Annotations[api.AnnotationCheckpointAcknowledged]
	after := w.addTo(before, a.clock.Now())
	if after == before {
		return nil
	}
	return a.node.annotate(ctx, map[string]*string{api.AnnotationCheckpointAcknowledged: &after}, node.ResourceVersion)
}
