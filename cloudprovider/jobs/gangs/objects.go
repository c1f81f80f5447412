package gangs

import (
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
)

// objects are what is known of the objects that declare gangs. Gangs guards them.
type objects struct {
	known map[key]*known
	// isDiscovered is whether it is known whether Kubernetes has pod groups. If it has, kubernetes is the version that it serves.
	// undiscovered is when that could not be found out for the first time.
	isDiscovered bool
	kubernetes   *podGroupKind
	undiscovered time.Time

	clock clock.PassiveClock
	jobs  Jobs
	// queue has what is to be read.
	queue workqueue.TypedInterface[key]
}

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
	// pod is the one to read of the pods of a controller, and isGone is true if it did not exist when it was read.
	pod    string
	isGone bool
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

// lookup returns what is known of an object, nil if nothing is.
type lookup func(o *objects, key key, pod *corev1.Pod) *known

// gangOf returns the gang of a pod by what look returns.
func (o *objects) gangOf(pod *corev1.Pod, look lookup) podlist.NativeGang {
	now, keys := o.clock.Now(), o.keysOf(pod)
	for i := 0; i < len(keys); i++ {
		object := look(o, keys[i], pod)
		switch {
		case object == nil:
			return podlist.NativeGang{}
		case object.isUnread(now):
			return podlist.NativeGang{Name: keys[i].String(), Size: podlist.UnknownSize, IsAssumed: keys[i].isJob()}
		case object.group != "" && o.isUndiscovered(now):
			return podlist.NativeGang{Name: keys[i].String(), Size: podlist.UnknownSize}
		case object.group != "" && o.kubernetes != nil:
			keys = slices.Insert(keys, i+1, key{group: o.kubernetes, job: jobs.NewRef("", pod.Namespace, object.group)})
		case object.says:
			return partOf(keys[i], object, pod)
		}
	}
	return podlist.NativeGang{}
}

// keysOf returns what may declare the pod's gang, in the order of precedence.
func (o *objects) keysOf(pod *corev1.Pod) (keys []key) {
	for _, kind := range podGroupKinds {
		if name := kind.nameOn(pod); name != "" {
			keys = append(keys, key{group: kind, job: jobs.NewRef("", pod.Namespace, name)})
		}
	}
	if len(keys) == 0 && (o.kubernetes != nil || !o.isDiscovered) {
		keys = append(keys, key{job: jobs.NewRef("", pod.Namespace, ""), controller: controllerOf(pod)})
	}
	if ref, ok := o.jobs.JobOf(pod); ok {
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

// use returns what is known of the object, and has it read if it is time.
func (o *objects) use(key key, pod *corev1.Pod) *known {
	now := o.clock.Now()
	found := o.known[key]
	if found == nil {
		found = &known{}
		o.known[key] = found
		o.queue.Add(key)
	}
	found.used, found.pod = now, pod.Name
	isDue := !found.read.IsZero() && now.Sub(found.read) >= max(rereadEvery, 2*time.Duration(len(o.known))*time.Second/readQPS)
	if isDue || found.isGone {
		found.isGone = false
		o.queue.Add(key)
	}
	return found
}

// record enters what was read, and returns whether that is news.
func (o *objects) record(key key, read content) bool {
	object := o.known[key]
	if object == nil {
		return false
	}
	isNew := object.read.IsZero() || !reflect.DeepEqual(object.content, read)
	object.read, object.content = o.clock.Now(), read
	return isNew
}

// recordFailure has pods wait no longer than unreadTime, unless they know the object from before.
func (o *objects) recordFailure(key key) {
	if object := o.known[key]; object != nil && object.failed.IsZero() {
		object.failed = o.clock.Now()
	}
}

// recordGone has another pod of the controller be read, once one is pending.
func (o *objects) recordGone(key key) {
	if object := o.known[key]; object != nil {
		object.isGone = true
	}
}

// discovered enters which pod groups Kubernetes serves, nil for none, and returns whether that is news.
func (o *objects) discovered(served *podGroupKind) bool {
	isNew := !o.isDiscovered || served != o.kubernetes
	o.isDiscovered, o.kubernetes = true, served
	return isNew
}

// recordUndiscovered has pods that are in a group of Kubernetes wait no longer than unreadTime, unless it is known from before which it has.
func (o *objects) recordUndiscovered() {
	if o.undiscovered.IsZero() {
		o.undiscovered = o.clock.Now()
	}
}

// isUndiscovered returns whether pods that are in a group of Kubernetes have to wait until it is known which it has.
func (o *objects) isUndiscovered(now time.Time) bool {
	return !o.isDiscovered && (o.undiscovered.IsZero() || now.Sub(o.undiscovered) < unreadTime)
}

// forget drops the objects whose pods are not pending any more.
func (o *objects) forget() {
	maps.DeleteFunc(o.known, func(_ key, object *known) bool { return o.clock.Since(object.used) >= forgetAfter })
}
