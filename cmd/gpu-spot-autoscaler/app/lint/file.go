package lint

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/settings"
)

// File returns what is wrong in the documents of a file, YAML or JSON. The flags are those of the autoscaler, for values of the chart; without
// any, the names of flags are not checked. The error is about a file that is neither, or is empty: a pipe whose first command has failed is not
// in order.
func File(name string, text []byte, flags *pflag.FlagSet) ([]Finding, error) {
	var found []Finding
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errors.New("it is empty")
	}
	if json.Valid(text) { // the YAML reader splits at lines, and a plan is one long line
		return document(name, text, flags)
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		one, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		findings, err := document(name, one, flags)
		if err != nil {
			return nil, err
		}
		found = append(found, findings...)
	}
}

// document finds out what a document is, by what it has, and checks it.
func document(file string, text []byte, flags *pflag.FlagSet) ([]Finding, error) {
	asJSON, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(asJSON)) == 0 || string(asJSON) == "null" {
		return nil, nil // comments only
	}
	var content map[string]any
	if err := json.Unmarshal(asJSON, &content); err != nil {
		return nil, fmt.Errorf("it has no keys at the top: %w", err)
	}
	switch {
	case content["planned_values"] != nil:
		return plan(file, asJSON)
	case content["kind"] != nil && content["apiVersion"] != nil:
		return objects(file, content)
	case content["ScalingGroups"] != nil, content["ScalingConfigurations"] != nil, content["Tags"] != nil, content["tags"] != nil:
		return answers(file, content), nil
	case isTags(content):
		return Tags(file, "", strs(content), true), nil
	}
	return values(file, asJSON, flags)
}

// isTags tells a map of tags from values of the chart: keys of tags have a slash, or the form without slashes.
func isTags(content map[string]any) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(content)), func(key string) bool {
		return strings.Contains(key, "/") || strings.HasPrefix(key, api.TagNodeTemplateUnderscore)
	})
}

// strs returns the values as the strings that they become as tags.
func strs(content map[string]any) map[string]string {
	texts := make(map[string]string, len(content))
	for key, value := range content {
		texts[key] = fmt.Sprint(value)
	}
	return texts
}

// answers checks scaling groups and scaling configurations in the forms of Alibaba Cloud's API, its CLI and its SDKs.
func answers(file string, content map[string]any) (found []Finding) {
	if list, asked := content["ScalingGroups"]; asked && !hasGroup(list) {
		return []Finding{{file, "", "ScalingGroups", "there is no scaling group: check the id and the region that were asked for"}}
	}
	var hasGroups, managed bool
	walk(content, func(object map[string]any) {
		name, isGroup := object["ScalingGroupId"].(string)
		if configuration, ok := object["ScalingConfigurationId"].(string); ok {
			name, isGroup = configuration, false
		}
		list := object["Tags"]
		if list == nil {
			list = object["tags"]
		}
		tags := tagList(list)
		if list != nil {
			found = append(found, Tags(file, name, tags, isGroup)...)
		}
		if isGroup {
			hasGroups = true
			managed = managed || tags[api.TagEnabled] != "" || len(settings.ClusterTags(tags)) > 0
		}
	})
	if hasGroups && !managed {
		found = append(found, Finding{file, "", api.TagEnabled, "no scaling group here has it, so none is managed"})
	}
	return found
}

// hasGroup returns whether there is a scaling group in the list of an answer.
func hasGroup(list any) (found bool) {
	walk(list, func(object map[string]any) {
		_, isGroup := object["ScalingGroupId"]
		found = found || isGroup
	})
	return found
}

// walk calls visit for the object and all objects in it.
func walk(value any, visit func(map[string]any)) {
	switch value := value.(type) {
	case map[string]any:
		visit(value)
		for _, key := range slices.Sorted(maps.Keys(value)) {
			walk(value[key], visit)
		}
	case []any:
		for _, element := range value {
			walk(element, visit)
		}
	}
}

// tagList reads a list of tags: of a group (TagKey, TagValue), of a configuration (Key, Value), in an object Tag or not; or a map.
func tagList(value any) map[string]string {
	if wrapped, ok := value.(map[string]any); ok {
		if inner, listed := wrapped["Tag"].([]any); listed {
			return tagList(inner)
		}
		return strs(wrapped)
	}
	read := map[string]string{}
	list, _ := value.([]any)
	for _, element := range list {
		tag, _ := element.(map[string]any)
		for _, names := range [][2]string{{"TagKey", "TagValue"}, {"Key", "Value"}} {
			if key, ok := tag[names[0]].(string); ok {
				read[key], _ = tag[names[1]].(string)
			}
		}
	}
	return read
}
