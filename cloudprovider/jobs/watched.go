package jobs

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// watched has the jobs that are held or are to grow, as the informers have them. A job is read again only once the informer has
// another object of it: both are asked for every few seconds. It is safe for concurrent use.
type watched struct {
	installed *installed
	ignored   *ignored

	mu            sync.Mutex
	held, growing map[types.UID]Job // as they were returned last
}

// Held returns the jobs that carry api.LabelHeld, as the informers have them. A malformed job is among them, with a Problem, so
// that it neither holds up the others nor is forgotten.
func (w *watched) Held(ctx context.Context) []Job {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = w.read(w.installed.held(), w.held, func(system System, object *unstructured.Unstructured, known error) Job {
		return readHeld(ctx, system, object, known)
	})
	return values(w.held)
}

// Growing returns the jobs that carry api.LabelGrow and are not held, as the informers have them. Where a job cannot get more
// workers, its Problem says why.
func (w *watched) Growing() []Job {
	w.mu.Lock()
	defer w.mu.Unlock()
	objects := w.installed.growing()
	for system := range objects {
		objects[system] = slices.DeleteFunc(objects[system], func(object *unstructured.Unstructured) bool { return object.GetLabels()[api.LabelHeld] != "" })
	}
	w.growing = w.read(objects, w.growing, readGrowing)
	return values(w.growing)
}

// read returns the jobs of the objects, by UID. Those whose object is known are not read again.
func (w *watched) read(
	objects map[System][]*unstructured.Unstructured, known map[types.UID]Job, read func(System, *unstructured.Unstructured, error) Job,
) map[types.UID]Job {
	jobs := map[types.UID]Job{}
	for system, objects := range objects {
		for _, object := range objects {
			if _, _, ok := parentOf(system, object); ok {
				continue // its label was copied from its parent's, and may be out of date
			}
			job := known[object.GetUID()]
			if job.Object != object {
				job = read(system, object, job.Problem)
				w.ignored.record(job)
			}
			jobs[job.UID] = job
		}
	}
	return jobs
}

func values(jobs map[types.UID]Job) []Job { return slices.Collect(maps.Values(jobs)) }

// readHeld reads a held job. It logs why it cannot, unless that was known.
func readHeld(ctx context.Context, system System, object *unstructured.Unstructured, known error) Job {
	job, err := read(system, object)
	if err == nil {
		return job
	}
	if known == nil || err.Error() != known.Error() {
		klog.FromContext(ctx).Error(err, "Cannot read a held job, which stays held", "system", system.Name(), "job", klog.KObj(object))
	}
	return Job{Ref: NewRef(system.Name(), object.GetNamespace(), object.GetName()), UID: object.GetUID(), Object: object, Problem: err}
}

func readGrowing(system System, object *unstructured.Unstructured, _ error) Job {
	job, err := read(system, object)
	if err != nil {
		return Job{Ref: NewRef(system.Name(), object.GetNamespace(), object.GetName()), UID: object.GetUID(), Object: object, Problem: err}
	}
	job.Problem = checkGrowth(system, job)
	return job
}

// maxIgnored is of how many jobs is known which annotations are ignored. Of more, the owners may be told again.
const maxIgnored = 1024

// ignored tells owners which annotations of their jobs are ignored. It is safe for concurrent use.
type ignored struct {
	recorder record.EventRecorder
	// reported has the messages of the last Events, by the UID of the job.
	reported *lru.Cache
}

func newIgnored(recorder record.EventRecorder) *ignored {
	return &ignored{recorder, lru.New(maxIgnored)}
}

// record tells the owner of the job which of its annotations are ignored: once for each mistake.
func (i *ignored) record(job Job) {
	if job.Ignored == nil {
		return
	}
	message := job.Ignored.Error()
	if known, ok := i.reported.Get(job.UID); ok && known == message {
		return
	}
	i.reported.Add(job.UID, message)
	i.recorder.Event(job.Object, corev1.EventTypeWarning, ReasonAnnotationMalformed, "Ignored: "+message)
}
