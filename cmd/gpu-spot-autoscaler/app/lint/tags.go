package lint

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	apivalidation "k8s.io/apimachinery/pkg/util/validation"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/settings"
)

// What a scaling group takes. Source: docs/settings.md, "Where to put tags".
const (
	maxGroupTags = 20
	maxTagLength = 128
)

// Tags checks tags of a scaling group, or of a scaling configuration. File and resource are what the findings say of themselves.
func Tags(file, resource string, tags map[string]string, ofGroup bool) []Finding {
	found := Annotations(file, resource, tags)
	add := func(key, format string, args ...any) {
		found = append(found, Finding{file, resource, key, fmt.Sprintf(format, args...)})
	}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if utf8.RuneCountInString(key) > maxTagLength || utf8.RuneCountInString(tags[key]) > maxTagLength {
			add(key, "key and value of a tag have %d characters at most", maxTagLength)
		}
	}
	if !ofGroup {
		return found
	}
	if len(tags) > maxGroupTags {
		add("", "it has %d tags, and a scaling group has %d at most: put the rest into a ConfigMap of the pool", len(tags), maxGroupTags)
	}
	enabled, tagged := tags[api.TagEnabled]
	clusters := slices.Sorted(maps.Keys(settings.ClusterTags(tags)))
	switch {
	case tagged && enabled != "true":
		add(api.TagEnabled, "is %q: only true puts the scaling group under management", enabled)
	case tagged && len(clusters) == 0:
		add(api.TagCluster+"<cluster-name>", "is missing: the scaling group belongs to no cluster")
	case !tagged && len(clusters) > 0:
		add(api.TagEnabled, "is missing: the scaling group is not managed")
	}
	if len(clusters) > 1 {
		add("", "it is tagged for several clusters (%s): each needs scaling groups of its own", strings.Join(clusters, ", "))
	}
	for _, key := range clusters {
		if tags[key] != "owned" {
			add(key, "is %q: the shipped RAM policy allows purchases only where it is owned", tags[key])
		}
	}
	return found
}

// Annotations checks those of the ConfigMap of a pool, by the autoscaler's own parser.
func Annotations(file, resource string, annotations map[string]string) (found []Finding) {
	_, err := settings.Parse(annotations)
	if err == nil {
		return nil
	}
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return []Finding{{file, resource, "", err.Error()}}
	}
	for _, one := range joined.Unwrap() {
		var tag *settings.TagError
		if !errors.As(one, &tag) {
			found = append(found, Finding{file, resource, "", one.Error()})
			continue
		}
		found = append(found, Finding{file, resource, tag.Key, fmt.Sprintf("%q: %s", tag.Value, tag.Reason)})
	}
	return found
}

// objects checks ConfigMaps of pools, and in other objects of Kubernetes what annotations of pods, or of their templates, say of what may be bought.
func objects(file string, content map[string]any) (found []Finding, err error) {
	if items, ok := content["items"].([]any); ok {
		for _, item := range items {
			if object, ok := item.(map[string]any); ok {
				below, err := objects(file, object)
				if err != nil {
					return nil, err
				}
				found = append(found, below...)
			}
		}
		return found, nil
	}
	metadata, _ := content["metadata"].(map[string]any)
	if content["kind"] != "ConfigMap" {
		return ofPods(file, fmt.Sprintf("%v %v", content["kind"], metadata["name"]), content), nil
	}
	labels, _ := metadata["labels"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	resource := fmt.Sprintf("ConfigMap %v", metadata["name"])
	pool, labelled := labels[api.LabelPool]
	own := strs(annotations)
	if !labelled {
		for _, key := range slices.Sorted(maps.Keys(own)) {
			if strings.HasPrefix(key, api.Prefix) {
				found = append(found, Finding{file, resource, api.LabelPool, "this label is missing, so its annotations are read for no pool"})
				break
			}
		}
		return found, nil
	}
	if id, ok := pool.(string); !ok || id == "" {
		found = append(found, Finding{file, resource, api.LabelPool, "it has to be the id of a scaling group, such as asg-1a2b"})
	}
	for _, key := range slices.Sorted(maps.Keys(own)) {
		if wrong := apivalidation.IsQualifiedName(key); len(wrong) > 0 {
			found = append(found, Finding{file, resource, key, "Kubernetes takes no such annotation: " + strings.Join(wrong, "; ")})
		}
	}
	return append(found, Annotations(file, resource, own)...), nil
}
