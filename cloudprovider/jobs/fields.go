package jobs

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	apicorev1 "k8s.io/kubernetes/pkg/apis/core/v1"
)

// count reads a number that must not be negative. found is false where the field is missing or null.
func count(object map[string]any, path ...string) (n int, found bool, err error) {
	value, found, err := unstructured.NestedFieldNoCopy(object, path...)
	if err != nil {
		return 0, false, &FieldError{strings.Join(path, "."), err.Error()}
	}
	if !found || value == nil {
		return 0, false, nil
	}
	switch value := value.(type) {
	case int64:
		n = int(value)
	case float64:
		n = int(value)
		if float64(n) != value {
			return 0, false, &FieldError{strings.Join(path, "."), fmt.Sprintf("%v is no whole number", value)}
		}
	default:
		return 0, false, &FieldError{strings.Join(path, "."), fmt.Sprintf("%v is no number", value)}
	}
	if n < 0 {
		return 0, false, &FieldError{strings.Join(path, "."), fmt.Sprintf("%d is negative", n)}
	}
	return n, true, nil
}

// countOr is count with a default.
func countOr(object map[string]any, otherwise int, path ...string) (int, error) {
	n, found, err := count(object, path...)
	if err != nil || found {
		return n, err
	}
	return otherwise, nil
}

// flag reads a boolean; false where it is missing.
func flag(object map[string]any, path ...string) (bool, error) {
	value, found, err := unstructured.NestedFieldNoCopy(object, path...)
	if err != nil {
		return false, &FieldError{strings.Join(path, "."), err.Error()}
	}
	if !found || value == nil {
		return false, nil
	}
	set, ok := value.(bool)
	if !ok {
		return false, &FieldError{strings.Join(path, "."), fmt.Sprintf("%v is neither true nor false", value)}
	}
	return set, nil
}

// text reads a string; empty where it is missing.
func text(object map[string]any, path ...string) (string, error) {
	value, _, err := unstructured.NestedString(object, path...)
	if err != nil {
		return "", &FieldError{strings.Join(path, "."), err.Error()}
	}
	return value, nil
}

// section reads an object, which must be there.
func section(object map[string]any, path ...string) (map[string]any, error) {
	value, found, err := unstructured.NestedFieldNoCopy(object, path...)
	if err != nil {
		return nil, &FieldError{strings.Join(path, "."), err.Error()}
	}
	if !found || value == nil {
		return nil, &FieldError{strings.Join(path, "."), "is missing"}
	}
	section, ok := value.(map[string]any)
	if !ok {
		return nil, &FieldError{strings.Join(path, "."), fmt.Sprintf("is a %T, not an object", value)}
	}
	return section, nil
}

// list reads a list of objects; empty where it is missing.
func list(object map[string]any, path ...string) ([]map[string]any, error) {
	value, found, err := unstructured.NestedFieldNoCopy(object, path...)
	if err != nil {
		return nil, &FieldError{strings.Join(path, "."), err.Error()}
	}
	if !found || value == nil {
		return nil, nil
	}
	items, ok := value.([]any)
	if !ok {
		return nil, &FieldError{strings.Join(path, "."), fmt.Sprintf("is a %T, not a list", value)}
	}
	sections := make([]map[string]any, 0, len(items))
	for i, item := range items {
		section, ok := item.(map[string]any)
		if !ok {
			return nil, &FieldError{fmt.Sprintf("%s[%d]", strings.Join(path, "."), i), fmt.Sprintf("is a %T, not an object", item)}
		}
		sections = append(sections, section)
	}
	return sections, nil
}

// condition says whether status.conditions has one of the types with the status True.
func condition(object map[string]any, kinds ...string) bool {
	conditions, err := list(object, "status", "conditions")
	if err != nil {
		return false
	}
	for _, condition := range conditions {
		for _, kind := range kinds {
			if condition["type"] == kind && condition["status"] == string(metav1.ConditionTrue) {
				return true
			}
		}
	}
	return false
}

// podsOf renders pods of a template: name is that of the i-th, and so are the labels that are added to the template's.
func podsOf(job Job, template map[string]any, path string, replicas int, name func(i int) string, labels func(i int) map[string]string) ([]*corev1.Pod, error) {
	var parsed corev1.PodTemplateSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, &parsed); err != nil {
		return nil, &FieldError{path, err.Error()}
	}
	if len(parsed.Spec.Containers) == 0 {
		return nil, &FieldError{path + ".spec.containers", "is missing"}
	}
	pods := make([]*corev1.Pod, 0, replicas)
	for i := range replicas {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: job.Namespace, Name: name(i),
				Labels: map[string]string{}, Annotations: map[string]string{},
			},
			Spec: *parsed.Spec.DeepCopy(),
		}
		for key, value := range parsed.Annotations {
			pod.Annotations[key] = value
		}
		for key, value := range parsed.Labels {
			pod.Labels[key] = value
		}
		for key, value := range labels(i) {
			pod.Labels[key] = value
		}
		pod.Spec.NodeName = ""
		apicorev1.SetObjectDefaults_Pod(pod) // requests from limits, above all
		pods = append(pods, pod)
	}
	return pods, nil
}

// gangTemplate is section with the template of a gang's pods.
func gangTemplate(job Job, path ...string) (map[string]any, string, error) {
	if job.Object == nil {
		return nil, "", ErrNoObject
	}
	template, err := section(job.Object.Object, path...)
	return template, strings.Join(path, "."), err
}

// numbered returns names such as prefix-0, prefix-1.
func numbered(prefix string) func(int) string {
	return func(i int) string { return prefix + "-" + strconv.Itoa(i) }
}
