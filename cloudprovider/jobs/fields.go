package jobs

import (
	"fmt"
	"maps"
	"math"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	apicorev1 "k8s.io/kubernetes/pkg/apis/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// fields are those of an object, or of an object in it, at a path. What is null counts as missing.
type fields struct {
	values map[string]any
	path   string
}

func fieldsOf(object *unstructured.Unstructured) fields { return fields{values: object.Object} }

func (f fields) at(name string) string {
	if f.path == "" {
		return name
	}
	return f.path + "." + name
}

func (f fields) errorf(name, format string, args ...any) error {
	return &FieldError{Path: f.at(name), Problem: fmt.Sprintf(format, args...)}
}

// section is the object at the path, which must be there.
func (f fields) section(path ...string) (fields, error) {
	for _, name := range path {
		switch value := f.values[name].(type) {
		case nil:
			return fields{}, f.errorf(name, "is missing")
		case map[string]any:
			f = fields{values: value, path: f.at(name)}
		default:
			return fields{}, f.errorf(name, "is %T, not an object", value)
		}
	}
	return f, nil
}

// maybe is section for one that may be missing. It then has no fields.
func (f fields) maybe(path ...string) (fields, error) {
	for _, name := range path {
		if f.values[name] == nil {
			return fields{path: f.at(name)}, nil
		}
		var err error
		if f, err = f.section(name); err != nil {
			return fields{}, err
		}
	}
	return f, nil
}

// list is a list of objects, empty where it is missing.
func (f fields) list(name string) ([]fields, error) {
	switch value := f.values[name].(type) {
	case nil:
		return nil, nil
	case []any:
		items := make([]fields, 0, len(value))
		for i, item := range value {
			values, ok := item.(map[string]any)
			if !ok {
				return nil, f.errorf(fmt.Sprintf("%s[%d]", name, i), "is %T, not an object", item)
			}
			items = append(items, fields{values: values, path: fmt.Sprintf("%s[%d]", f.at(name), i)})
		}
		return items, nil
	default:
		return nil, f.errorf(name, "is %T, not a list", value)
	}
}

// strings is a list of strings, empty where it is missing.
func (f fields) strings(name string) ([]string, error) {
	list, _, err := unstructured.NestedStringSlice(f.values, name)
	if err != nil {
		return nil, f.errorf(name, "is no list of strings")
	}
	return list, nil
}

// count is a number of 32 bits, not negative, with a default: the product of two is still a number.
func (f fields) count(name string, otherwise int) (int, error) {
	switch value := f.values[name].(type) {
	case nil:
		return otherwise, nil
	case int64:
		if value < 0 {
			return 0, f.errorf(name, "%d is negative", value)
		}
		if value > math.MaxInt32 {
			return 0, f.errorf(name, "%d is above %d", value, math.MaxInt32)
		}
		return int(value), nil
	default:
		return 0, f.errorf(name, "%v is no whole number", value)
	}
}

// text is a string, empty where it is missing.
func (f fields) text(name string) (string, error) {
	switch value := f.values[name].(type) {
	case nil:
		return "", nil
	case string:
		return value, nil
	default:
		return "", f.errorf(name, "is %T, not a string", value)
	}
}

// flag is a boolean, false where it is missing.
func (f fields) flag(name string) (bool, error) {
	switch value := f.values[name].(type) {
	case nil:
		return false, nil
	case bool:
		return value, nil
	default:
		return false, f.errorf(name, "%v is neither true nor false", value)
	}
}

// flagAt is flag at a path.
func (f fields) flagAt(path ...string) (bool, error) {
	last := len(path) - 1
	holder, err := f.maybe(path[:last]...)
	if err != nil {
		return false, err
	}
	return holder.flag(path[last])
}

// phase is a string of the status.
func phase(object *unstructured.Unstructured, path ...string) (string, error) {
	last := len(path) - 1
	status, err := fieldsOf(object).maybe(append([]string{"status"}, path[:last]...)...)
	if err != nil {
		return "", err
	}
	return status.text(path[last])
}

// condition says whether status.conditions has one of the types, with the status True. No more is asked of the list.
func condition(object *unstructured.Unstructured, types ...string) bool {
	conditions, _, _ := unstructured.NestedFieldNoCopy(object.Object, "status", "conditions")
	list, _ := conditions.([]any)
	for _, item := range list {
		condition, _ := item.(map[string]any)
		for _, kind := range types {
			if condition["type"] == kind && condition["status"] == string(metav1.ConditionTrue) {
				return true
			}
		}
	}
	return false
}

// replicaGroup is the pods of one template.
type replicaGroup struct {
	template fields
	replicas int
	role     Role
	name     func(i int) string
	labels   func(i int) map[string]string
}

// mostPods is how many pods of one job are simulated at most: twice the nodes that a cluster of Kubernetes can have
// (https://kubernetes.io/docs/setup/best-practices/cluster-large/).
const mostPods = 10_000

// gang renders pods of several templates, but none where there is no room for those of one of them. Their role is written
// on them as an annotation, as nobody owns them.
func gang(job Job, room Room, groups ...replicaGroup) ([]*corev1.Pod, error) {
	templates := make([]*corev1.PodTemplateSpec, 0, len(groups))
	total := 0
	for _, group := range groups {
		template, err := group.read()
		if err != nil {
			return nil, err
		}
		if err := group.fits(job, template, room); err != nil {
			return nil, err
		}
		if total += group.replicas; total > mostPods {
			return nil, &TooManyPodsError{Path: "all templates", Pods: total, Most: mostPods}
		}
		templates = append(templates, template)
	}
	var pods []*corev1.Pod
	for i, group := range groups {
		for replica := range group.replicas {
			pods = append(pods, group.pod(job.Namespace, templates[i].DeepCopy(), replica))
		}
	}
	return pods, nil
}

// fits asks for one of the pods how many like it have room.
func (g *replicaGroup) fits(job Job, template *corev1.PodTemplateSpec, room Room) error {
	if g.replicas == 0 {
		return nil
	}
	if most := room(g.pod(job.Namespace, template.DeepCopy(), 0)); g.replicas > most {
		return &TooManyPodsError{Path: g.template.path, Pods: g.replicas, Most: most, Workers: g.role == RoleWorker}
	}
	return nil
}

func (g *replicaGroup) read() (*corev1.PodTemplateSpec, error) {
	template := &corev1.PodTemplateSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(g.template.values, template); err != nil {
		return nil, &FieldError{Path: g.template.path, Problem: err.Error()}
	}
	if len(template.Spec.Containers) == 0 {
		return nil, g.template.errorf("spec.containers", "is missing")
	}
	return template, nil
}

func (g *replicaGroup) pod(namespace string, template *corev1.PodTemplateSpec, i int) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: g.name(i),
			Labels: map[string]string{}, Annotations: map[string]string{api.AnnotationRole: string(g.role)},
		},
		Spec: template.Spec,
	}
	maps.Copy(pod.Annotations, template.Annotations)
	maps.Copy(pod.Labels, template.Labels)
	maps.Copy(pod.Labels, g.labels(i))
	pod.Spec.NodeName = ""
	apicorev1.SetObjectDefaults_Pod(pod) // requests where there are limits only, above all
	return pod
}

// numbered returns names such as prefix-0, prefix-1.
func numbered(prefix string) func(int) string {
	return func(i int) string { return prefix + "-" + strconv.Itoa(i) }
}

// objectOf is the fields of a job's object.
func objectOf(job Job) (fields, error) {
	if job.Object == nil {
		return fields{}, ErrNoObject
	}
	return fieldsOf(job.Object), nil
}

// byRole orders groups as their pods may go.
func byRole(a, b replicaGroup) int {
	turn := map[Role]int{RoleWorker: 0, RoleHost: 1, RoleLauncher: 2}
	return turn[a.role] - turn[b.role]
}
