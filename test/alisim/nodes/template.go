package nodes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Template describes the Nodes of a pool. Labels, taints and resources named by the pool's tags
// (k8s.io/cluster-autoscaler/node-template/…) need no mention: ACK applies them, and so does the simulator.
type Template struct {
	Labels map[string]string `json:"labels,omitempty"`
	// Taints have the form "key=value:effect".
	Taints []string `json:"taints,omitempty"`
	// Resources are quantities by name.
	Resources map[string]string `json:"resources,omitempty"`
}

// Prefixes of the tags that describe a pool's nodes.
const (
	labelTag    = "k8s.io/cluster-autoscaler/node-template/label/"
	taintTag    = "k8s.io/cluster-autoscaler/node-template/taint/"
	resourceTag = "k8s.io/cluster-autoscaler/node-template/resources/"
)

// Extras are the labels, taints and resources that a pool gives its nodes by its tags and its template. Tags that do not
// parse give none, as a kubelet would not have been told about them.
func (t Template) Extras(tags map[string]string) (labels map[string]string, taints []corev1.Taint, resources map[string]string) {
	labels, resources = map[string]string{}, map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		value := tags[key]
		if name, is := strings.CutPrefix(key, labelTag); is {
			labels[name] = value
		} else if name, is := strings.CutPrefix(key, resourceTag); is {
			resources[name] = value
		} else if name, is := strings.CutPrefix(key, taintTag); is {
			if taint, err := parseTaint(name + "=" + value); err == nil {
				taints = append(taints, taint)
			}
		}
	}
	more, _ := ParseTaints(t.Taints) // checked when the pool was made
	maps.Copy(labels, t.Labels)
	maps.Copy(resources, t.Resources)
	return labels, append(taints, more...), resources
}

// ParseTaints reads taints of the form "key=value:effect".
func ParseTaints(texts []string) ([]corev1.Taint, error) {
	var taints []corev1.Taint
	for _, text := range texts {
		t, err := parseTaint(text)
		if err != nil {
			return nil, err
		}
		taints = append(taints, t)
	}
	return taints, nil
}

// parseTaint reads "key=value:effect".
func parseTaint(text string) (corev1.Taint, error) {
	key, rest, hasValue := strings.Cut(text, "=")
	value, effect, hasEffect := strings.Cut(rest, ":")
	t := corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
	known := slices.Contains([]corev1.TaintEffect{
		corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule,
	}, t.Effect)
	if !hasValue || !hasEffect || key == "" || !known {
		return t, fmt.Errorf("taint %q is not of the form key=value:effect", text)
	}
	return t, nil
}
